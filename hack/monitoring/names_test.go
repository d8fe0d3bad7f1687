package monitoring_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
)

var (
	documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\| (.*?) \\|")
	series     = regexp.MustCompile(`(^|[^:\w])((?:steadwatch|workqueue|leader_election|rest_client)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`(\w+)\s*(=~|=)\s*"([^"]*)"`)
	debugPath  = regexp.MustCompile(`localhost:8082(/debug/[a-z/]+)`)
)

// Labels that Prometheus or its histograms add, and those whose values are of no
// matter or not there before the API server has answered.
var otherLabels = []string{"namespace", "job", "instance", "pod", "le", "version", "verb", "kind"}

// Every metric, label and value that rules, their tests and runbooks name is one
// that the controller's binary serves.
func TestNames(t *testing.T) {
	types, labels := map[string]string{}, map[string][]string{}
	for _, m := range documented.FindAllStringSubmatch(read(t, "../../docs/metrics.md"), -1) {
		types[m[1]] = m[2]
		labels[m[1]] = strings.FieldsFunc(m[3], func(c rune) bool { return strings.ContainsRune("`, ", c) })
	}
	uses := map[string][]string{} // where: texts
	for _, r := range rules(t) {
		uses["rules.yaml"] = append(uses["rules.yaml"], r.Expr)
	}
	for _, file := range testFiles(t) {
		uses[file] = []string{read(t, file)}
	}
	pages, err := filepath.Glob(filepath.Join(runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pages {
		uses[file] = []string{read(t, file)}
	}
	served := serve(t)
	problems := map[string]bool{}
	for where, texts := range uses {
		for _, m := range series.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
			name, matchers := m[2], m[3]
			if base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"); types[base] == "histogram" && base != name {
				name = base
			}
			if types[name] == "" {
				problems[fmt.Sprintf("%s: %s is not in docs/metrics.md", where, m[2])] = true
				continue
			}
			for _, l := range matcher.FindAllStringSubmatch(matchers, -1) {
				switch {
				case slices.Contains(otherLabels, l[1]):
				case !slices.Contains(labels[name], l[1]):
					problems[fmt.Sprintf("%s: %s has no label %s", where, name, l[1])] = true
				default:
					for value := range strings.SplitSeq(l[3], "|") {
						if !served.has(name, l[1], value) {
							problems[fmt.Sprintf("%s: nothing serves %s{%s=%q}", where, name, l[1], value)] = true
						}
					}
				}
			}
		}
		for _, m := range debugPath.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
			method := http.MethodGet
			if m[1] == "/debug/queue/retry" {
				method = http.MethodPost
			}
			if code, body := served.ask(t, method, served.debug+m[1]); code == http.StatusNotFound || code == http.StatusMethodNotAllowed {
				problems[fmt.Sprintf("%s: %s answers %d %s", where, m[1], code, body)] = true
			}
		}
	}
	for _, problem := range slices.Sorted(maps.Keys(problems)) {
		t.Error(problem)
	}
}

// process is the controller without an API server: it serves all the same.
type process struct{ debug, scrape string }

// serve starts the controller and waits until it has named its metrics.
func serve(t *testing.T) process {
	t.Helper()
	binary, err := install.Binary(t.Context(), "../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var log output
	command := exec.CommandContext(t.Context(), binary, "--kubeconfig="+kubeconfig, "--health-probe-bind-address=0",
		"--metrics-bind-address=127.0.0.1:0", "--debug-bind-address=127.0.0.1:0")
	command.Stderr = &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	var p process
	controlplane.Eventually(t, time.Minute, "the controller to serve metrics", func() (bool, string) {
		at := install.Serving(log.String())
		if at.Metrics == "" || at.Debug == "" {
			return false, log.String()
		}
		p.debug = "http://" + at.Debug
		_, p.scrape = p.ask(t, http.MethodGet, "http://"+at.Metrics+"/metrics")
		return strings.Contains(p.scrape, "leader_election_master_status{"), log.String()
	})
	return p
}

// has reports whether a series with that value of the label is served.
func (p process) has(name, label, value string) bool {
	pair := fmt.Sprintf("%s=%q", label, value)
	for line := range strings.Lines(p.scrape) {
		if rest, found := strings.CutPrefix(line, name); found && strings.Contains(rest, pair) {
			return true
		}
	}
	return false
}

func (p process) ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A profile of CPU or a trace takes as long as it is asked to.
	response, err := (&http.Client{Timeout: 20 * time.Second}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
