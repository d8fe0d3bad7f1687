package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		const remedy = "no promtool in PATH: install the package prometheus (Debian, Ubuntu), or put the binary of a Prometheus release there"
		if os.Getenv("CI") == "true" {
			t.Fatal(remedy)
		}
		t.Skip("skipped, " + remedy)
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestCheckRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", filepath.Join(manifests, "rules.yaml"))
}

func TestRules(t *testing.T) {
	for _, file := range testFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			promtool(t, "test", "rules", file)
		})
	}
}

func testFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in testdata: %v", err)
	}
	return files
}

// ruleTest is a test of promtool's.
type ruleTest struct {
	Name        string
	InputSeries []struct{ Series, Values string } `json:"input_series"`
	ExprTests   []struct {
		Expr    string
		Samples []struct{ Labels string } `json:"exp_samples"`
	} `json:"promql_expr_test"`
}

// Every alert has a file that shows it firing, and shows that it does not fire when
// less is wrong and when all of it is wrong with a standby. Every test asks for all
// alerts, so that none of another's fires unseen.
func TestEveryAlertIsTested(t *testing.T) {
	of := map[string]rule{}
	for _, a := range alerts(t) {
		of[strings.TrimSuffix(page(a), ".md")+".yaml"] = a
	}
	for _, file := range testFiles(t) {
		name := filepath.Base(file)
		a, found := of[name]
		delete(of, name)
		if !found && name != "start.yaml" && name != "leader-change.yaml" {
			t.Errorf("%s is the test of no alert", file)
		}
		var tests struct{ Tests []ruleTest }
		if err := yaml.Unmarshal([]byte(read(t, file)), &tests); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		has := map[string]bool{}
		for _, test := range tests.Tests {
			fires := false
			for _, e := range test.ExprTests {
				for _, s := range e.Samples {
					if !strings.HasPrefix(s.Labels, "ALERTS{") || !strings.Contains(s.Labels, `alertstate="firing"`) {
						t.Errorf("%s, %q expects %s: expect firing alerts only", file, test.Name, s.Labels)
					}
					fires = fires || strings.Contains(s.Labels, `alertname="`+a.Alert+`"`)
				}
			}
			kind, _, _ := strings.Cut(test.Name, " ")
			if want := kind == "fires"; want != fires {
				t.Errorf("%s, %q: fires %t, and is named as if %t", file, test.Name, fires, want)
			}
			has[kind] = true
		}
		for _, kind := range []string{"fires", "does", "standby"} {
			if found && !has[kind] {
				t.Errorf("%s has no test whose name begins with %q", file, kind)
			}
		}
	}
	var missing []string
	for name := range of {
		missing = append(missing, name)
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("alerts without a test: write testdata/%s", strings.Join(missing, ", testdata/"))
	}
}
