package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/embedding.md quotes this program and nothing else.
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
}
