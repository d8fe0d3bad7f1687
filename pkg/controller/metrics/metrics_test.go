package metrics_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

type fakeInformer informer.Snapshot

func (f fakeInformer) Snapshot() informer.Snapshot { return informer.Snapshot(f) }

type fakeController controller.Snapshot

func (f fakeController) Snapshot() controller.Snapshot { return controller.Snapshot(f) }

func newMetrics(t *testing.T) (*metrics.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := metrics.New(registry, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

func wantSeries(t *testing.T, g prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(g, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// An alert on increase() sees a counter's step from 0 to 1 only if 0 was there.
func TestSeriesExistBeforeTheFirstEvent(t *testing.T) {
	m, registry := newMetrics(t)
	m.Observe("webapp")
	families := gather(t, registry)
	for name, want := range map[string]int{
		"steadwatch_reconcile_total":            len(controller.Classes()),
		"steadwatch_reconcile_duration_seconds": len(controller.Classes()),
		"steadwatch_requeue_delay_seconds":      len(controller.Classes()),
		"workqueue_depth":                       1,
		"workqueue_adds_total":                  1,
		"workqueue_retries_total":               1,
		"workqueue_queue_duration_seconds":      1,
		"workqueue_unfinished_work_seconds":     1,
	} {
		if got := len(families[name].GetMetric()); got != want {
			t.Errorf("%s has %d series, want %d", name, got, want)
		}
	}
}

func TestObserve(t *testing.T) {
	m, registry := newMetrics(t)
	observe := m.Observe("webapp")
	observe(controller.ClassDone, time.Second, 0)
	observe(controller.ClassDone, time.Second, 0)
	observe(controller.ClassRetry, 0, 25*time.Second)
	got := map[string]float64{}
	for _, s := range gather(t, registry)["steadwatch_reconcile_total"].GetMetric() {
		if v := s.GetCounter().GetValue(); v != 0 {
			got[labels(s)] = v
		}
	}
	want := map[string]float64{"class=Done controller=webapp": 2, "class=Retry controller=webapp": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steadwatch_reconcile_total (-want +got):\n%s", diff)
	}
	for _, s := range gather(t, registry)["steadwatch_requeue_delay_seconds"].GetMetric() {
		want := 0.0
		if labels(s) == "class=Retry controller=webapp" {
			want = 25 // seconds; that no delay is no observation shows in the count
		}
		if h := s.GetHistogram(); h.GetSampleSum() != want || h.GetSampleCount() > 1 || want == 0 && h.GetSampleCount() > 0 {
			t.Errorf("steadwatch_requeue_delay_seconds{%s}: %v s in %d delays, want %v s", labels(s), h.GetSampleSum(), h.GetSampleCount(), want)
		}
	}
}

// A process that leads a second time makes a queue of the same name again.
func TestQueueOfTheSameName(t *testing.T) {
	m, registry := newMetrics(t)
	m.Observe("webapp")
	newQueue := func() workqueue.TypedInterface[string] {
		return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "webapp", MetricsProvider: m})
	}
	first := newQueue()
	first.Add("a")
	first.Add("b")
	first.ShutDown() // two keys are dropped
	second := newQueue()
	defer second.ShutDown()
	second.Add("a")
	wantSeries(t, registry, `
# HELP workqueue_adds_total Keys added.
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="webapp"} 3
# HELP workqueue_depth Keys that are ready and wait for a worker.
# TYPE workqueue_depth gauge
workqueue_depth{name="webapp"} 1
`, "workqueue_adds_total", "workqueue_depth")
}

// What client-go passes holds names of objects and namespaces; none may become a
// label.
func TestRequestsCarryNoPath(t *testing.T) {
	m, registry := newMetrics(t)
	opts := m.RESTClient()
	u, err := url.Parse("https://10.0.0.1:443/apis/apps/v1/namespaces/secret-project/deployments/acquisition?fieldManager=x")
	if err != nil {
		t.Fatal(err)
	}
	opts.RequestLatency.Observe(t.Context(), "PATCH", *u, time.Second)
	opts.RateLimiterLatency.Observe(t.Context(), "PATCH", *u, time.Second)
	opts.RequestResult.Increment(t.Context(), "200", "PATCH", u.Host)
	opts.RequestRetry.IncrementRetry(t.Context(), "429", "PATCH", u.Host)
	found := 0
	for name, family := range gather(t, registry) {
		for _, s := range family.GetMetric() {
			if strings.Contains(labels(s), "secret-project") || strings.Contains(labels(s), "acquisition") {
				t.Errorf("%s{%s}", name, labels(s))
			}
			if strings.Contains(labels(s), "host=10.0.0.1:443") {
				found++
			}
		}
	}
	if found != 4 {
		t.Errorf("%d series of requests, want 4", found)
	}
}

func TestCollector(t *testing.T) {
	heard := time.Unix(1700000000, 500000000)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCollector(
		[]metrics.Informer{
			fakeInformer{Resource: "webapps.platform.tejo.dev", State: informer.StateHearing, Objects: 7, Lists: 1, Watches: 2, LastHeard: heard,
				Events: map[watch.EventType]uint64{watch.Added: 9}, Restarts: map[string]uint64{"deaf": 2, "rewind": 0}},
			fakeInformer{Resource: "services", State: informer.StateUnlistable, Reason: informer.Forbidden},
		},
		[]metrics.Controller{
			fakeController{Controller: "webapp", Ready: controller.Ready{Urgent: 1, Normal: 2, Background: 3}, Waiting: 4,
				OldestDueSeconds: 1.5, OldestFailingSeconds: 1801, Workers: controller.Workers{Size: 4, Running: 5, Wedged: 1}},
		},
	))
	wantSeries(t, registry, `
# HELP steadwatch_informer_last_heard_timestamp_seconds When the API server last sent an event, a bookmark or a list; 0: never.
# TYPE steadwatch_informer_last_heard_timestamp_seconds gauge
steadwatch_informer_last_heard_timestamp_seconds{resource="services"} 0
steadwatch_informer_last_heard_timestamp_seconds{resource="webapps.platform.tejo.dev"} 1.7000000005e+09
# HELP steadwatch_informer_state 1 for the state that the informer of the resource is in.
# TYPE steadwatch_informer_state gauge
steadwatch_informer_state{resource="services",state="deaf"} 0
steadwatch_informer_state{resource="services",state="delayed"} 0
steadwatch_informer_state{resource="services",state="hearing"} 0
steadwatch_informer_state{resource="services",state="polling"} 0
steadwatch_informer_state{resource="services",state="starting"} 0
steadwatch_informer_state{resource="services",state="unlistable"} 1
steadwatch_informer_state{resource="webapps.platform.tejo.dev",state="deaf"} 0
steadwatch_informer_state{resource="webapps.platform.tejo.dev",state="delayed"} 0
steadwatch_informer_state{resource="webapps.platform.tejo.dev",state="hearing"} 1
steadwatch_informer_state{resource="webapps.platform.tejo.dev",state="polling"} 0
steadwatch_informer_state{resource="webapps.platform.tejo.dev",state="starting"} 0
steadwatch_informer_state{resource="webapps.platform.tejo.dev",state="unlistable"} 0
# HELP steadwatch_queue_depth Keys that are ready and wait for a worker, by lane.
# TYPE steadwatch_queue_depth gauge
steadwatch_queue_depth{controller="webapp",lane="background"} 3
steadwatch_queue_depth{controller="webapp",lane="normal"} 2
steadwatch_queue_depth{controller="webapp",lane="urgent"} 1
# HELP steadwatch_queue_oldest_failing_seconds How long the key that has gone longest without a success since it first failed or met a conflict has done so; 0: none.
# TYPE steadwatch_queue_oldest_failing_seconds gauge
steadwatch_queue_oldest_failing_seconds{controller="webapp"} 1801
# HELP steadwatch_watch_events_total Watch events received, by type; those of a watch's initial state too.
# TYPE steadwatch_watch_events_total counter
steadwatch_watch_events_total{resource="services",type="ADDED"} 0
steadwatch_watch_events_total{resource="services",type="BOOKMARK"} 0
steadwatch_watch_events_total{resource="services",type="DELETED"} 0
steadwatch_watch_events_total{resource="services",type="ERROR"} 0
steadwatch_watch_events_total{resource="services",type="MODIFIED"} 0
steadwatch_watch_events_total{resource="webapps.platform.tejo.dev",type="ADDED"} 9
steadwatch_watch_events_total{resource="webapps.platform.tejo.dev",type="BOOKMARK"} 0
steadwatch_watch_events_total{resource="webapps.platform.tejo.dev",type="DELETED"} 0
steadwatch_watch_events_total{resource="webapps.platform.tejo.dev",type="ERROR"} 0
steadwatch_watch_events_total{resource="webapps.platform.tejo.dev",type="MODIFIED"} 0
# HELP steadwatch_watch_restarts_total Watches ended on this side. deaf: did not deliver; delayed: did so late; timeout: had outlived its end; early: ended at once, repeatedly; polling: tried while polling; watchlist: initial events without an end; rewind: the API server was set back.
# TYPE steadwatch_watch_restarts_total counter
steadwatch_watch_restarts_total{reason="deaf",resource="webapps.platform.tejo.dev"} 2
steadwatch_watch_restarts_total{reason="rewind",resource="webapps.platform.tejo.dev"} 0
# HELP steadwatch_workers Workers: configured, running, and wedged in a pass past its deadline and grace.
# TYPE steadwatch_workers gauge
steadwatch_workers{controller="webapp",state="configured"} 4
steadwatch_workers{controller="webapp",state="running"} 5
steadwatch_workers{controller="webapp",state="wedged"} 1
`, "steadwatch_informer_state", "steadwatch_informer_last_heard_timestamp_seconds", "steadwatch_queue_depth",
		"steadwatch_queue_oldest_failing_seconds", "steadwatch_watch_events_total", "steadwatch_watch_restarts_total", "steadwatch_workers")
}

func TestNewTwice(t *testing.T) {
	_, registry := newMetrics(t)
	if _, err := metrics.New(registry, ""); err == nil {
		t.Error("a second New on one registry succeeded: two of them would each show half")
	}
}

func gather(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

func labels(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.GetLabel() {
		pairs = append(pairs, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(pairs, " ")
}
