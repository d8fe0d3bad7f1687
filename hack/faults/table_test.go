package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A run of some scenarios leaves what the file says of the others.
func TestUpdateReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "faults.md")
	if err := os.WriteFile(file, []byte("before\n"+reportBegin+reportEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	began := time.Unix(0, 0)
	entryOf := func(name, note, problem string) map[string]entry {
		chosen, err := choose(name)
		if err != nil {
			t.Fatal(err)
		}
		r := &result{scenario: chosen[0], began: began, lifted: began.Add(time.Minute), notes: []string{note}}
		if problem != "" {
			r.problems = []string{problem}
		}
		return map[string]entry{name: newEntry(r)}
	}
	for _, entries := range []map[string]entry{
		entryOf("refused", "first", "too slow"), entryOf("one-watch-frozen", "second", ""), entryOf("refused", "third", ""),
	} {
		if err := updateReport(file, entries, settings{}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(got)) {
		if m := entryName.FindStringSubmatch(line); m != nil {
			names = append(names, m[1]+m[2]+line[strings.LastIndex(line, " "):])
		}
	}
	want := []string{"one-watch-frozen |\n", "refused |\n", "one-watch-frozen second\n", "refused third\n"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if s := string(got); !strings.HasPrefix(s, "before\n") || !strings.HasSuffix(s, "after\n") || !strings.Contains(s, noProblems) || strings.Contains(s, problemsTitle) {
		t.Errorf("got\n%s", s)
	}
}
