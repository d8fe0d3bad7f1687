package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// Informer is what an informer.Informer of any type looks like from here.
type Informer interface{ Snapshot() informer.Snapshot }

// Controller is a *controller.Controller.
type Controller interface{ Snapshot() controller.Snapshot }

// NewCollector returns a collector that takes a snapshot of each informer and
// each controller when it is scraped.
func NewCollector(informers []Informer, controllers []Controller) prometheus.Collector {
	return &collector{informers: informers, controllers: controllers}
}

type collector struct {
	informers   []Informer
	controllers []Controller
}

// resource: in the form resource.group. state: an informer.State. type: of a
// watch event. reason: deaf, delayed, timeout, early, polling, watchlist or rewind.
var (
	informerState = desc("steadwatch_informer_state",
		"1 for the state that the informer of the resource is in.", "resource", "state")
	informerObjects = desc("steadwatch_informer_objects",
		"Objects in the local copy.", "resource")
	informerLastHeard = desc("steadwatch_informer_last_heard_timestamp_seconds",
		"When the API server last sent an event, a bookmark or a list; 0: never.", "resource")
	informerHandlerPanics = desc("steadwatch_informer_handler_panics_total",
		"Events lost to a handler that panicked on them.", "resource")
	informerIndexFailures = desc("steadwatch_informer_index_failures",
		"Objects that an index leaves out, because its func failed on them.", "resource")
	quarantined = desc("steadwatch_quarantined_objects",
		"Objects that cannot be decoded now and are set aside; /debug/quarantine names them.", "resource")
	quarantinedTotal = desc("steadwatch_quarantined_total",
		"Times that an object has been set aside because it cannot be decoded.", "resource")
	unreadable = desc("steadwatch_unreadable_total",
		"Objects left out because not even their name can be read.", "resource")
	lists = desc("steadwatch_lists_total",
		"Lists asked for, failed ones included; pages of one list are one.", "resource")
	watches = desc("steadwatch_watches_total",
		"Watches asked for, failed ones included.", "resource")
	watchEvents = desc("steadwatch_watch_events_total",
		"Watch events received, by type; those of a watch's initial state too.", "resource", "type")
	watchRestarts = desc("steadwatch_watch_restarts_total",
		"Watches ended on this side. deaf: did not deliver; delayed: did so late; timeout: had outlived its end; early: ended at once, repeatedly; polling: tried while polling; watchlist: initial events without an end; rewind: the API server was set back.", "resource", "reason")
)

// controller: its name. lane: urgent, normal or background. outcome: of the last
// pass. state: configured, running or wedged. origin: what panicked.
var (
	queueDepth = desc("steadwatch_queue_depth",
		"Keys that are ready and wait for a worker, by lane.", "controller", "lane")
	queueWaiting = desc("steadwatch_queue_waiting",
		"Keys that a timer will run: backoff, an asked for later look, recheck.", "controller")
	queueOldestDue = desc("steadwatch_queue_oldest_due_seconds",
		"How long the key that has been due for longest has waited for a worker.", "controller")
	queueOldestFailing = desc("steadwatch_queue_oldest_failing_seconds",
		"How long the key that has gone longest without a success since it first failed or met a conflict has done so; 0: none.", "controller")
	queueWakeups = desc("steadwatch_queue_wakeups_total",
		"Timers that ran nothing: early ones were put back, leftover ones dropped after a success.", "controller", "kind")
	keysByOutcome = desc("steadwatch_keys",
		"Keys by what the last pass came to: failing, conflicting, frozen.", "controller", "outcome")
	workers = desc("steadwatch_workers",
		"Workers: configured, running, and wedged in a pass past its deadline and grace.", "controller", "state")
	panics = desc("steadwatch_panics_total",
		"Panics that were contained, by origin.", "controller", "origin")
	ignoredAfter = desc("steadwatch_ignored_after_total",
		"Passes that asked for a later look beside an error, which decides alone.", "controller")
)

var descs = []*prometheus.Desc{
	informerState, informerObjects, informerLastHeard, informerHandlerPanics, informerIndexFailures,
	quarantined, quarantinedTotal, unreadable,
	lists, watches, watchEvents, watchRestarts,
	queueDepth, queueWaiting, queueOldestDue, queueOldestFailing, queueWakeups, keysByOutcome, workers, panics, ignoredAfter,
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	states = []informer.State{
		informer.StateStarting, informer.StateHearing, informer.StateDelayed, informer.StateDeaf, informer.StatePolling, informer.StateUnlistable,
	}
	eventTypes = []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error}
)

// originReconcile is the origin of panics of a pass.
const originReconcile = "Reconcile"

func (*collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	for _, i := range c.informers {
		s := i.Snapshot()
		for _, state := range states {
			gauge(informerState, indicator(s.State == state), s.Resource, string(state))
		}
		gauge(informerObjects, float64(s.Objects), s.Resource)
		gauge(informerLastHeard, unix(s.LastHeard), s.Resource)
		counter(informerHandlerPanics, float64(s.HandlerPanics), s.Resource)
		gauge(informerIndexFailures, float64(len(s.IndexFailures)), s.Resource)
		gauge(quarantined, float64(s.Quarantined), s.Resource)
		counter(quarantinedTotal, float64(s.QuarantinedTotal), s.Resource)
		counter(unreadable, float64(s.Unreadable), s.Resource)
		counter(lists, float64(s.Lists), s.Resource)
		counter(watches, float64(s.Watches), s.Resource)
		for _, t := range eventTypes {
			counter(watchEvents, float64(s.Events[t]), s.Resource, string(t))
		}
		for reason, n := range s.Restarts {
			counter(watchRestarts, float64(n), s.Resource, reason)
		}
	}
	for _, k := range c.controllers {
		s := k.Snapshot()
		gauge(queueDepth, float64(s.Ready.Urgent), s.Controller, "urgent")
		gauge(queueDepth, float64(s.Ready.Normal), s.Controller, "normal")
		gauge(queueDepth, float64(s.Ready.Background), s.Controller, "background")
		gauge(queueWaiting, float64(s.Waiting), s.Controller)
		gauge(queueOldestDue, s.OldestDueSeconds, s.Controller)
		gauge(queueOldestFailing, s.OldestFailingSeconds, s.Controller)
		counter(queueWakeups, float64(s.Wakeups.Early), s.Controller, "early")
		counter(queueWakeups, float64(s.Wakeups.LeftOver), s.Controller, "leftover")
		gauge(keysByOutcome, float64(s.Failing), s.Controller, "failing")
		gauge(keysByOutcome, float64(s.Conflicting), s.Controller, "conflicting")
		gauge(keysByOutcome, float64(s.Frozen), s.Controller, "frozen")
		gauge(workers, float64(s.Workers.Size), s.Controller, "configured")
		gauge(workers, float64(s.Workers.Running), s.Controller, "running")
		gauge(workers, float64(s.Workers.Wedged), s.Controller, "wedged")
		if !slices.ContainsFunc(s.Panics, func(p controller.Panics) bool { return p.Origin == originReconcile }) {
			counter(panics, 0, s.Controller, originReconcile)
		}
		for _, p := range s.Panics {
			counter(panics, float64(p.Count), s.Controller, p.Origin)
		}
		counter(ignoredAfter, float64(s.IgnoredAfter), s.Controller)
	}
}

func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}
