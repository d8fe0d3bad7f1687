package metrics

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
)

var (
	_ workqueue.MetricsProvider      = (*Metrics)(nil)
	_ leaderelection.MetricsProvider = (*Metrics)(nil)
)

// queueMetrics have the names, labels and buckets of
// k8s.io/component-base/metrics/prometheus/workqueue, so that dashboards and
// alerts written for Kubernetes components work.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func newQueueMetrics() queueMetrics {
	// name: the name of the queue, which is that of its controller.
	labels := []string{"name"}
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	return queueMetrics{
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "workqueue_depth",
			Help: "Keys that are ready and wait for a worker.",
		}, labels),
		adds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workqueue_adds_total",
			Help: "Keys added.",
		}, labels),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workqueue_retries_total",
			Help: "Keys added to run later.",
		}, labels),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "workqueue_queue_duration_seconds",
			Help:    "How long a key was ready before a worker took it.",
			Buckets: buckets,
		}, labels),
		work: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "workqueue_work_duration_seconds",
			Help:    "How long a worker had a key.",
			Buckets: buckets,
		}, labels),
		unfinished: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "workqueue_unfinished_work_seconds",
			Help: "Age of all running passes together. Grows without end while one is stuck.",
		}, labels),
		longest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "workqueue_longest_running_processor_seconds",
			Help: "Age of the oldest running pass.",
		}, labels),
	}
}

func (q *queueMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{q.depth, q.adds, q.retries, q.latency, q.work, q.unfinished, q.longest}
}

func (q *queueMetrics) create(name string) {
	q.depth.WithLabelValues(name)
	q.adds.WithLabelValues(name)
	q.retries.WithLabelValues(name)
	q.latency.WithLabelValues(name)
	q.work.WithLabelValues(name)
	q.unfinished.WithLabelValues(name)
	q.longest.WithLabelValues(name)
}

// A process that leads again makes a new queue of the same name: the series go
// on, and the gauges start anew with it.

func (m *Metrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return zeroed(m.queue.depth, name)
}

func (m *Metrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.queue.adds.WithLabelValues(name)
}

func (m *Metrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.queue.latency.WithLabelValues(name)
}

func (m *Metrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.queue.work.WithLabelValues(name)
}

func (m *Metrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return zeroed(m.queue.unfinished, name)
}

func (m *Metrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return zeroed(m.queue.longest, name)
}

func (m *Metrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.queue.retries.WithLabelValues(name)
}

func zeroed(vec *prometheus.GaugeVec, name string) prometheus.Gauge {
	gauge := vec.WithLabelValues(name)
	gauge.Set(0)
	return gauge
}

type leaderMetrics struct {
	status   *prometheus.GaugeVec
	slowpath *prometheus.CounterVec
}

func newLeaderMetrics() leaderMetrics {
	// name: the name of the Lease.
	labels := []string{"name"}
	return leaderMetrics{
		status: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status",
			Help: "1 while this process holds the lease.",
		}, labels),
		slowpath: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leader_election_slowpath_total",
			Help: "Renewals that had to read the lease first.",
		}, labels),
	}
}

func (l *leaderMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{l.status, l.slowpath}
}

// NewLeaderMetric is for leaderelection.SetProvider.
func (m *Metrics) NewLeaderMetric() leaderelection.LeaderMetric { return &m.leader }

func (l *leaderMetrics) On(name string)                { l.status.WithLabelValues(name).Set(1) }
func (l *leaderMetrics) Off(name string)               { l.status.WithLabelValues(name).Set(0) }
func (l *leaderMetrics) SlowpathExercised(name string) { l.slowpath.WithLabelValues(name).Inc() }

// restMetrics have the names and labels of
// k8s.io/component-base/metrics/prometheus/restclient. The host is the API
// server's; the rest of the URL, which client-go passes too, is left out.
type restMetrics struct {
	requests, retries     *prometheus.CounterVec
	duration, rateLimiter *prometheus.HistogramVec
}

func newRESTMetrics() restMetrics {
	buckets := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	return restMetrics{
		// code: HTTP status, or <error>. method or verb: of HTTP. host: of the API server.
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total",
			Help: "Requests to the API server; <error> is one that got no answer.",
		}, []string{"code", "method", "host"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_request_retries_total",
			Help: "Requests that client-go sent again by itself.",
		}, []string{"code", "verb", "host"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rest_client_request_duration_seconds",
			Help:    "Time to the answer; for a watch, to its beginning.",
			Buckets: buckets,
		}, []string{"verb", "host"}),
		rateLimiter: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rest_client_rate_limiter_duration_seconds",
			Help:    "How long requests waited for the limiter of their own client.",
			Buckets: buckets,
		}, []string{"verb", "host"}),
	}
}

func (r *restMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.requests, r.retries, r.duration, r.rateLimiter}
}

// RESTClient is for k8s.io/client-go/tools/metrics.Register.
func (m *Metrics) RESTClient() clientmetrics.RegisterOpts {
	return clientmetrics.RegisterOpts{
		RequestResult:      &m.rest,
		RequestRetry:       &m.rest,
		RequestLatency:     latency{m.rest.duration},
		RateLimiterLatency: latency{m.rest.rateLimiter},
	}
}

func (r *restMetrics) Increment(_ context.Context, code, method, host string) {
	r.requests.WithLabelValues(code, method, host).Inc()
}

func (r *restMetrics) IncrementRetry(_ context.Context, code, method, host string) {
	r.retries.WithLabelValues(code, method, host).Inc()
}

type latency struct{ vec *prometheus.HistogramVec }

func (l latency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	l.vec.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}
