package monitoring_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const (
	manifests = "../../manifests/monitoring"
	runbooks  = "../../docs/runbooks"
	// published is where the runbooks can be read; alerts point there.
	published = "https://github.com/steadwatch/steadwatch/blob/main/docs/runbooks/"
)

var update = flag.Bool("update", false, "write manifests/monitoring/prometheusrule.yaml")

// rule is an alert or, without the name of one, a recording rule.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(manifests, "rules.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 {
		t.Fatalf("rules.yaml has %d groups: rules of different groups are evaluated at different times, and the alerts use what is recorded", len(file.Groups))
	}
	return file.Groups[0].Rules
}

func alerts(t *testing.T) []rule {
	t.Helper()
	return slices.DeleteFunc(rules(t), func(r rule) bool { return r.Alert == "" })
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPrometheusRule keeps the rules for prometheus-operator equal to rules.yaml:
// run it with -update to write them.
func TestPrometheusRule(t *testing.T) {
	path := filepath.Join(manifests, "prometheusrule.yaml")
	var b bytes.Buffer
	b.WriteString(`# Written from rules.yaml by ` + "`go test ./hack/monitoring -update`" + `. Do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: steadwatch
  labels:
    app.kubernetes.io/name: steadwatch
spec:
`)
	_, groups, found := strings.Cut(read(t, filepath.Join(manifests, "rules.yaml")), "\ngroups:\n")
	if !found {
		t.Fatal("rules.yaml has no line \"groups:\"")
	}
	for line := range strings.Lines("groups:\n" + groups) {
		if line != "\n" {
			line = "  " + line
		}
		b.WriteString(line)
	}
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read(t, path), b.String()); diff != "" {
		t.Errorf("prometheusrule.yaml is not what rules.yaml gives, run this test with -update (-file +rules):\n%s", diff)
	}
	// Lines were indented: what they mean must be the same.
	var operator struct{ Spec map[string]any }
	var plain map[string]any
	if err := yaml.Unmarshal(b.Bytes(), &operator); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(manifests, "rules.yaml"))), &plain); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, operator.Spec); diff != "" {
		t.Errorf("rules of PrometheusRule (-rules.yaml +prometheusrule.yaml):\n%s", diff)
	}
}

// What a person needs who is woken up by an alert.
func TestAlerts(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		t.Run(a.Alert, func(t *testing.T) {
			if seen[a.Alert] {
				t.Error("two alerts have this name")
			}
			seen[a.Alert] = true
			if !strings.HasPrefix(a.Alert, "Steadwatch") {
				t.Error("the name does not begin with Steadwatch: those of all programs share one space")
			}
			if s := a.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("severity is %q, want critical or warning", s)
			}
			for _, name := range []string{"summary", "description"} {
				if a.Annotations[name] == "" {
					t.Errorf("annotation %s is missing", name)
				}
			}
			if want := published + page(a); a.Annotations["runbook_url"] != want {
				t.Errorf("runbook_url is %q, want %q", a.Annotations["runbook_url"], want)
			}
		})
	}
}

var capital = regexp.MustCompile(`[A-Z]`)

// page is the name of an alert's runbook: watch-stalled.md of SteadwatchWatchStalled.
func page(a rule) string {
	words := capital.ReplaceAllStringFunc(strings.TrimPrefix(a.Alert, "Steadwatch"), func(c string) string { return "-" + strings.ToLower(c) })
	return strings.TrimPrefix(words, "-") + ".md"
}

// The PodMonitor finds the pods of manifests/base and their port.
func TestPodMonitor(t *testing.T) {
	var monitor struct {
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []struct{ Port string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(manifests, "podmonitor.yaml"))), &monitor); err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(read(t, "../../manifests/base/deployment.yaml")), &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template
	if selector := labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels); selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("selector %q does not select pods with labels %v", selector, pod.Labels)
	}
	for _, e := range monitor.Spec.PodMetricsEndpoints {
		if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == e.Port }) {
			t.Errorf("the pods have no port named %q", e.Port)
		}
	}
	if len(monitor.Spec.PodMetricsEndpoints) != 1 {
		t.Errorf("%d endpoints, want 1", len(monitor.Spec.PodMetricsEndpoints))
	}
}
