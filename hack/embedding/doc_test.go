package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/embedding.md quotes this program and nothing else, and says how long it is.
func TestDocQuotesTheProgram(t *testing.T) {
	doc, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	var program strings.Builder
	for _, file := range []string{"main.go", "reconcile.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		program.Write(source)
	}
	quotes := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(doc, -1)
	if len(quotes) == 0 {
		t.Fatal("docs/embedding.md quotes nothing")
	}
	for _, q := range quotes {
		if !strings.Contains(program.String(), string(q[1])) {
			t.Errorf("not in the program:\n%s", q[1])
		}
	}
	if says := fmt.Sprintf("%d lines of code", linesOfCode(program.String())); !strings.Contains(string(doc), says) {
		t.Errorf("docs/embedding.md does not say that the program has %s", says)
	}
}

// linesOfCode leaves out imports, comments and blank lines.
func linesOfCode(program string) (n int) {
	program = regexp.MustCompile(`(?s)\npackage main\n|\nimport \(.*?\n\)\n`).ReplaceAllLiteralString("\n"+program, "\n")
	for line := range strings.Lines(program) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}
