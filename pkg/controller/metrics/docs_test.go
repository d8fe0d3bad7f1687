package metrics_test

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

var groups = []struct{ title, text, prefix string }{
	{"Passes", "What the controllers do, counted as it happens.", "steadwatch_reconcile_ steadwatch_requeue_ steadwatch_convergence_ steadwatch_unconverged_"},
	{"Queues", "What waits, read from the controllers when scraped. Zero on a standby.", "steadwatch_queue_"},
	{"Controllers", "", "steadwatch_"},
	{"Informers", "How fresh the local copies are. The same on a standby.", "steadwatch_informer_ steadwatch_quarantined_ steadwatch_unreadable_"},
	{"Lists and watches", "Counted where they are asked for.", "steadwatch_lists_ steadwatch_watch"},
	{"Canary", "The write that must come back. A standby has the state standby and writes nothing. Absent with --watch-canary-interval=0, but for the histogram.", "steadwatch_canary_"},
	{"Workqueue", "client-go's, with the names, labels and buckets of Kubernetes components.", "workqueue_"},
	{"Requests", "client-go's. The limiter's histogram counts the wait of each client for itself.", "rest_client_"},
	{"Leader election", "client-go's.", "leader_election_"},
}

// TestDocs keeps docs/metrics.md in step: run it with -update to write the file.
func TestDocs(t *testing.T) {
	m, registry := newMetrics(t)
	m.Observe("webapp")
	m.Converged("WebApp")
	m.NewLeaderMetric().On("steadwatch")
	m.NewLeaderMetric().SlowpathExercised("steadwatch")
	opts := m.RESTClient()
	opts.RequestResult.Increment(t.Context(), "200", "GET", "host")
	opts.RequestRetry.IncrementRetry(t.Context(), "429", "GET", "host")
	opts.RequestLatency.Observe(t.Context(), "GET", url.URL{Host: "host"}, time.Second)
	opts.RateLimiterLatency.Observe(t.Context(), "GET", url.URL{Host: "host"}, time.Second)
	registry.MustRegister(metrics.NewUnconverged("WebApp", func() (int, bool) { return 0, true }))
	registry.MustRegister(metrics.NewCollector(
		[]metrics.Informer{fakeInformer(informer.Snapshot{Restarts: map[string]uint64{"deaf": 0}})},
		[]metrics.Controller{fakeController(controller.Snapshot{})},
	))
	registry.MustRegister(metrics.NewCanaryCollector(fakeCanary{}))
	got := document(gather(t, registry))

	path := filepath.Join("..", "..", "..", "docs", "metrics.md")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/metrics.md is out of date, run this test with -update (-file +metrics):\n%s", diff)
	}
}

func document(families map[string]*dto.MetricFamily) string {
	// The longest prefix wins.
	groupOf := func(name string) int {
		best, length := -1, 0
		for i, g := range groups {
			for _, prefix := range strings.Fields(g.prefix) {
				if strings.HasPrefix(name, prefix) && len(prefix) > length {
					best, length = i, len(prefix)
				}
			}
		}
		return best
	}
	rows := make([][]string, len(groups))
	for name, f := range families {
		var names []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			names = append(names, "`"+l.GetName()+"`")
		}
		slices.Sort(names)
		rows[groupOf(name)] = append(rows[groupOf(name)], fmt.Sprintf("| `%s` | %s | %s | %s |\n",
			name, strings.ToLower(f.GetType().String()), strings.Join(names, ", "), strings.ReplaceAll(f.GetHelp(), "<", "&lt;")))
	}
	var b strings.Builder
	b.WriteString("<!-- Written by `go test ./pkg/controller/metrics -update`. Do not edit. -->\n" +
		"# Metrics\n\n" +
		"Served at `/metrics` on `--metrics-bind-address`. Labels never hold the name of an object, a namespace\n" +
		"or a path. Counters exist from the start, at 0. The usual `go_*` and `process_*` metrics are served too.\n")
	for i, g := range groups {
		slices.Sort(rows[i])
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		if g.text != "" {
			fmt.Fprintf(&b, "%s\n\n", g.text)
		}
		b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n" + strings.Join(rows[i], ""))
	}
	return b.String()
}

// Names and types follow Prometheus' conventions.
func TestNames(t *testing.T) {
	m, registry := newMetrics(t)
	m.Observe("webapp")
	registry.MustRegister(metrics.NewUnconverged("WebApp", func() (int, bool) { return 0, true }))
	registry.MustRegister(metrics.NewCollector(
		[]metrics.Informer{fakeInformer(informer.Snapshot{Restarts: map[string]uint64{"deaf": 0}})},
		[]metrics.Controller{fakeController(controller.Snapshot{})},
	))
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
