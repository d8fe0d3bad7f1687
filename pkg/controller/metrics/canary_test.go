package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
)

type fakeCanary canary.Snapshot

func (f fakeCanary) Snapshot() canary.Snapshot { return canary.Snapshot(f) }

func TestCanary(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCanaryCollector(fakeCanary{State: canary.Deaf, AsksSpent: 1, Rewinds: 2, Writes: map[canary.Result]int64{canary.Acknowledged: 7}}))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP steadwatch_canary_state 1 for the state that the canary is in; /debug/canary says why.
# TYPE steadwatch_canary_state gauge
steadwatch_canary_state{state="deaf"} 1
steadwatch_canary_state{state="forbidden"} 0
steadwatch_canary_state{state="hearing"} 0
steadwatch_canary_state{state="late"} 0
steadwatch_canary_state{state="pending"} 0
steadwatch_canary_state{state="standby"} 0
steadwatch_canary_state{state="unrecoverable"} 0
steadwatch_canary_state{state="unwritable"} 0
# HELP steadwatch_canary_restarts_asked Restarts asked for by failing liveness and not given back yet, of two, by any process.
# TYPE steadwatch_canary_restarts_asked gauge
steadwatch_canary_restarts_asked 1
# HELP steadwatch_canary_rewinds_total Times that the revision of the canary's Lease has gone down, because etcd was set back.
# TYPE steadwatch_canary_rewinds_total counter
steadwatch_canary_rewinds_total 2
# HELP steadwatch_canary_writes_total Writes of the canary's Lease by what they came to; a conflict is tried again at once.
# TYPE steadwatch_canary_writes_total counter
steadwatch_canary_writes_total{result="acknowledged"} 7
steadwatch_canary_writes_total{result="conflict"} 0
steadwatch_canary_writes_total{result="failed"} 0
steadwatch_canary_writes_total{result="forbidden"} 0
`), "steadwatch_canary_state", "steadwatch_canary_restarts_asked", "steadwatch_canary_rewinds_total", "steadwatch_canary_writes_total"); err != nil {
		t.Error(err)
	}
	m, all := newMetrics(t)
	if n := count(t, all, "steadwatch_canary_round_trip_seconds"); n != 0 {
		t.Errorf("%d round trips before the first", n)
	}
	m.RoundTrip()(time.Second)
	if n := count(t, all, "steadwatch_canary_round_trip_seconds"); n != 1 {
		t.Errorf("%d round trips, want 1", n)
	}
}

// count is the number of observations of a histogram that has to exist.
func count(t *testing.T, g prometheus.Gatherer, name string) uint64 {
	t.Helper()
	f, ok := gather(t, g)[name]
	if !ok {
		t.Fatalf("%s does not exist", name)
	}
	return f.GetMetric()[0].GetHistogram().GetSampleCount()
}
