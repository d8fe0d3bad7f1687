package monitoring_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What every runbook answers, in this order.
var sections = []string{"What it means", "What users notice", "Confirm", "Do", "Do not", "When it ends"}

var (
	heading   = regexp.MustCompile(`(?m)^## (.*)$`)
	indexLine = regexp.MustCompile(`(?m)^\| (.*) \| \[.*\]\((.*\.md)\) \| (.*) \|$`)
	link      = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
)

// Every alert has a runbook, every runbook is of an alert, or in the index as one of
// a symptom without one, and the index says of each what the page says.
func TestRunbooks(t *testing.T) {
	entries, err := os.ReadDir(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]rule{}
	for _, a := range alerts(t) {
		of[page(a)] = a
	}
	type row struct{ symptom, alert string }
	index, want := map[string]row{}, map[string]row{}
	for _, m := range indexLine.FindAllStringSubmatch(read(t, filepath.Join(runbooks, "README.md")), -1) {
		index[m[2]] = row{m[1], m[3]}
	}
	for _, e := range entries {
		text := read(t, filepath.Join(runbooks, e.Name()))
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(runbooks, m[1])); err != nil {
				t.Errorf("%s links to %s: %v", e.Name(), m[1], err)
			}
		}
		if e.Name() == "README.md" {
			continue
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		want[e.Name()] = row{title, "none"}
		if a, found := of[e.Name()]; found {
			want[e.Name()] = row{title, "`" + a.Alert + "`"}
			if begin := "`" + a.Alert + "`, " + a.Labels["severity"] + ":"; !strings.Contains(text, "\n"+begin) {
				t.Errorf("%s has no line that begins with %s", e.Name(), begin)
			}
		}
		delete(of, e.Name())
		var got []string
		for _, m := range heading.FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
		}
		if diff := cmp.Diff(sections, got); diff != "" {
			t.Errorf("sections of %s (-want +got):\n%s", e.Name(), diff)
		}
	}
	if diff := cmp.Diff(want, index, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("index in README.md (-pages +index):\n%s", diff)
	}
	var missing []string
	for name := range of {
		missing = append(missing, name)
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("alerts without a runbook: write docs/runbooks/%s", strings.Join(missing, ", docs/runbooks/"))
	}
}
