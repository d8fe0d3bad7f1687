package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/steadwatch/steadwatch/pkg/canary"
)

// newRoundTrip: no labels.
func newRoundTrip() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "steadwatch_canary_round_trip_seconds",
		Help:    "From before the canary's Lease was written until a watch showed it.",
		Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 60, 120, 300, 900},
	})
}

// RoundTrip returns the func for canary.Config.RoundTrip.
func (m *Metrics) RoundTrip() func(time.Duration) {
	return func(took time.Duration) { m.roundTrip.Observe(took.Seconds()) }
}

// Canary is a *canary.Canary.
type Canary interface{ Snapshot() canary.Snapshot }

// NewCanaryCollector returns a collector that takes a snapshot of the canary when it
// is scraped.
func NewCanaryCollector(c Canary) prometheus.Collector { return &canaryCollector{c} }

type canaryCollector struct{ canary Canary }

// state: a canary.State. result: a canary.Result.
var (
	canaryState = desc("steadwatch_canary_state",
		"1 for the state that the canary is in; /debug/canary says why.", "state")
	canaryWrites = desc("steadwatch_canary_writes_total",
		"Writes of the canary's Lease by what they came to; a conflict is tried again at once.", "result")
	canaryReconnects = desc("steadwatch_canary_reconnects_total",
		"Times that the canary has closed the connection of its watch, because a write was late to be seen.")
	canaryRewinds = desc("steadwatch_canary_rewinds_total",
		"Times that the revision of the canary's Lease has gone down, because etcd was set back.")
	canaryAsks = desc("steadwatch_canary_restarts_asked",
		"Restarts asked for by failing liveness and not given back yet, of two, by any process.")
)

func (*canaryCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{canaryState, canaryWrites, canaryReconnects, canaryRewinds, canaryAsks} {
		ch <- d
	}
}

func (c *canaryCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.canary.Snapshot()
	for _, state := range canary.States() {
		ch <- prometheus.MustNewConstMetric(canaryState, prometheus.GaugeValue, indicator(s.State == state), string(state))
	}
	for _, result := range canary.Results() {
		ch <- prometheus.MustNewConstMetric(canaryWrites, prometheus.CounterValue, float64(s.Writes[result]), string(result))
	}
	ch <- prometheus.MustNewConstMetric(canaryReconnects, prometheus.CounterValue, float64(s.Reconnects))
	ch <- prometheus.MustNewConstMetric(canaryRewinds, prometheus.CounterValue, float64(s.Rewinds))
	ch <- prometheus.MustNewConstMetric(canaryAsks, prometheus.GaugeValue, float64(s.AsksSpent))
}
