package metrics

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// Metrics counts passes and what client-go reports. It is a
// workqueue.MetricsProvider and a leaderelection.MetricsProvider; RESTClient
// returns the rest.
type Metrics struct {
	reconciles        *prometheus.CounterVec
	reconcileDuration *prometheus.HistogramVec
	requeueDelay      *prometheus.HistogramVec
	convergence       *prometheus.HistogramVec
	roundTrip         prometheus.Histogram

	queue  queueMetrics
	leader leaderMetrics
	rest   restMetrics
}

// New registers the metrics with r. It fails if r has one of them already.
func New(r prometheus.Registerer, version string) (*Metrics, error) {
	m := &Metrics{
		// controller: the Config.Name of a controller. class: a controller.Class.
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "steadwatch_reconcile_total",
			Help: "Passes by outcome. Frozen ones were kept back by the gate.",
		}, []string{"controller", "class"}),
		reconcileDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "steadwatch_reconcile_duration_seconds",
			Help:    "How long passes took, by outcome.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 120, 900},
		}, []string{"controller", "class"}),
		requeueDelay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "steadwatch_requeue_delay_seconds",
			Help:    "How long after a pass the key runs again by itself, by the outcome that asks for it.",
			Buckets: []float64{0.01, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 35, 60, 120, 300, 600, 3600},
		}, []string{"controller", "class"}),
		// kind: of ours, such as WebApp.
		convergence: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "steadwatch_convergence_seconds",
			Help:    "From a change of spec to Ready, the time in the queue included; of changes that were followed from their beginning.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600},
		}, []string{"kind"}),
		roundTrip: newRoundTrip(),

		queue:  newQueueMetrics(),
		leader: newLeaderMetrics(),
		rest:   newRESTMetrics(),
	}
	// version: of this binary. goversion: of the compiler.
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "steadwatch_build_info",
		Help: "Always 1; what this process was built from.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(version, runtime.Version()).Set(1)

	collectors := []prometheus.Collector{m.reconciles, m.reconcileDuration, m.requeueDelay, m.convergence, m.roundTrip, build}
	collectors = append(collectors, m.queue.collectors()...)
	collectors = append(collectors, m.leader.collectors()...)
	collectors = append(collectors, m.rest.collectors()...)
	var errs []error
	for _, c := range collectors {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// Observe returns the func for controller.Config.Observe and creates all series
// of that controller and its queue.
func (m *Metrics) Observe(name string) func(class controller.Class, took, again time.Duration) {
	for _, class := range controller.Classes() {
		m.reconciles.WithLabelValues(name, string(class))
		m.reconcileDuration.WithLabelValues(name, string(class))
		m.requeueDelay.WithLabelValues(name, string(class))
	}
	m.queue.create(name)
	return func(class controller.Class, took, again time.Duration) {
		m.reconciles.WithLabelValues(name, string(class)).Inc()
		m.reconcileDuration.WithLabelValues(name, string(class)).Observe(took.Seconds())
		if again > 0 {
			m.requeueDelay.WithLabelValues(name, string(class)).Observe(again.Seconds())
		}
	}
}

// Converged returns the func that takes how long objects of a kind took from a change
// of spec to Ready, and creates its series.
func (m *Metrics) Converged(kind string) func(time.Duration) {
	series := m.convergence.WithLabelValues(kind)
	return func(took time.Duration) { series.Observe(took.Seconds()) }
}
