package informer

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Reasons for which a watch was ended on our side, the keys of Snapshot.Restarts.
const (
	// restartDeaf: it did not deliver what the API server tells others.
	restartDeaf = "deaf"
	// restartDelayed: it delivered, but late.
	restartDelayed = "delayed"
	// restartTimeout: the API server should have ended it long ago.
	restartTimeout = "timeout"
	// restartEarly: watches ended again and again before they had delivered
	// anything, or with an error; this one replaces the last of them.
	restartEarly = "early"
	// restartPolling: one of those that are tried while polling.
	restartPolling = "polling"
	// restartWatchList: the initial events did not come to their end.
	restartWatchList = "watchlist"
	// restartRewind: the API server was set back.
	restartRewind = "rewind"
)

var restartReasons = []string{restartDeaf, restartDelayed, restartTimeout, restartEarly, restartPolling, restartWatchList, restartRewind}

const (
	// patience is how long what the API server tells others may take to arrive here.
	patience = 5 * time.Second
	// watchListSilence is how long the initial events may stand still, where
	// ProbeAfter does not say.
	watchListSilence = 30 * time.Second
	// listFor is how long a resource lists after a WatchList that did not end.
	listFor = 10 * time.Minute
	// endSlack is how much later than its timeoutSeconds a watch is ended here.
	endSlack = 10 * time.Second
	// openPatience is how long the Reflector waits for the API server's answer to a
	// watch, beginAfter for that to a WatchList, and openTimeout how long the watch
	// itself does. Some proxies hold the answer back until there is a first event.
	openPatience = 5 * time.Second
	openTimeout  = 90 * time.Second
)

// questioner is an asker.
type questioner interface {
	auditor
	ask(ctx context.Context, from string) answer
	// askBoth is ask, at a higher cost and sooner.
	askBoth(ctx context.Context, from string) answer
	// begins asks whether WatchLists begin.
	begins(ctx context.Context) answer
	// reach returns nil if the API server answers anything.
	reach(ctx context.Context) error
}

// ear is what a listWatch knows about whether it still hears. It outlives the
// sessions, which are the watches that the Reflector holds one after the other.
type ear struct {
	resource   schema.GroupVersionResource
	namespace  string
	hearing    *Hearing
	connection *Connection
	asker      questioner
	record     *record
	ledger     *ledger
	quarantine *quarantine
	feeder     feeder
	typ        reflect.Type // the struct whose pointer the informer holds
	rewound    func()       // told of a rewind
	alarm      chan string  // of AuditNow
	news       stateNews    // nil: nobody wants to know

	probeAfter, auditInterval, pollInterval time.Duration // 0: off

	// turn is held by the session that is under way; what follows is its.
	turn      sync.Mutex
	brake     brake
	from      string        // everything up to here was delivered: where to ask and to reopen
	lag       time.Duration // how late news have been; 0: they are not
	lateAt    time.Time     // when they were last
	rewoundAt time.Time
	auditAt   time.Time
	auditedAt time.Time
	wanted    bool   // an audit was asked for since the last one began
	polledTo  string // everything up to here was delivered by polling
	left      map[cache.ObjectName]leftOut

	polled atomic.Bool // since the last list, so that events may come a second time

	mu        sync.Mutex
	logger    klog.Logger
	state     State // StateHearing, StateDelayed, StateDeaf or StatePolling
	since     time.Time
	message   string
	restarts  map[string]uint64
	checks    map[string]check
	resigned  bool      // the state is final
	listUntil time.Time // no WatchList before
	cut       int       // WatchLists in a row that ended cleanly before their end
	silent    bool      // the last WatchList delivered nothing at all
	fresh     bool      // the next list must not start from a revision of before
	fill      *fill     // of the list whose pages are being read
}

func newEar(h *Hearing, c *Connection, resource schema.GroupVersionResource, namespace string, q *quarantine, f feeder, example runtime.Object, rewound func()) *ear {
	r := newRecord(q)
	return &ear{
		resource: resource, namespace: namespace, hearing: h, connection: c, asker: h.newAsker(resource, namespace),
		record: r, ledger: newLedger(r), quarantine: q, feeder: f, typ: reflect.TypeOf(example).Elem(), rewound: rewound,
		probeAfter: max(h.probeAfter, 0), auditInterval: max(h.auditInterval, 0), pollInterval: max(h.pollInterval, 0),
		alarm: make(chan string, 1), logger: klog.Background(), state: StateHearing, restarts: map[string]uint64{}, checks: map[string]check{},
	}
}

// alarmed is called by AuditNow.
func (e *ear) alarmed(reason string) {
	select {
	case e.alarm <- reason:
	default: // one is waiting already
	}
}

// patience is how long news may take to arrive before they are missed.
func (e *ear) patience() time.Duration {
	if e.probeAfter > 0 {
		return min(patience, e.probeAfter)
	}
	return patience
}

// grace is patience, or more where the watch is known to be slow.
func (e *ear) grace() time.Duration { return max(e.patience(), 2*e.lag) }

func (e *ear) watchListSilence() time.Duration {
	if e.probeAfter > 0 {
		return e.probeAfter
	}
	return watchListSilence
}

// started sets where e logs to and has it woken by AuditNow until ended is called.
func (e *ear) started(logger klog.Logger) (ended func()) {
	if e == nil {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.logger = logger.WithValues("resource", e.resource.GroupResource(), "namespace", e.namespace)
	cancel := e.hearing.subscribe(e.alarmed)
	return func() {
		cancel()
		if a, ok := e.asker.(*asker); ok {
			e.hearing.forget(a)
		}
	}
}

func (e *ear) log() klog.Logger {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.logger
}

// enter changes the state. Everything but StateHearing is logged with its reason, and
// that it is over.
func (e *ear) enter(state State, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resigned {
		return
	}
	if state == e.state {
		e.message = message
		return
	}
	now := time.Now()
	switch state {
	case StateHearing:
		e.logger.Info("Watch delivers again", "was", e.state, "after", now.Sub(e.since).Round(time.Second))
	case StateDelayed:
		e.logger.Info("Watch delivers late", "reason", message)
	case StateDeaf:
		e.logger.Error(nil, "Watch does not deliver", "reason", message)
	case StatePolling:
		e.logger.Error(nil, "No watch delivers, polling", "reason", message)
	}
	e.state, e.message, e.since = state, message, now
	e.news.tell()
}

func (e *ear) restarted(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restarts[reason]++
}

// describe fills in the state unless something worse is known, and which checks fail.
func (e *ear) describe(s *Snapshot) {
	s.Restarts = map[string]uint64{}
	for _, reason := range restartReasons {
		s.Restarts[reason] = 0
	}
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(s.Restarts, e.restarts)
	if s.State != StateHearing {
		return
	}
	if e.state != StateHearing {
		s.State, s.Message, s.Since = e.state, e.message, e.since
	}
	if failing := e.failing(); failing != "" {
		if s.Message != "" {
			s.Message += "; "
		}
		s.Message = cut(s.Message + failing)
	}
}

// listing makes a list's options those that e needs.
func (e *ear) listing(opts metav1.ListOptions) metav1.ListOptions {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fresh {
		opts.ResourceVersion = ""
		if opts.SendInitialEvents == nil {
			// Otherwise the Reflector's page size would send it past the watch cache.
			opts.Limit, opts.ResourceVersionMatch = 0, ""
		}
	}
	return opts
}

// listed notes a page that the Reflector is about to be given.
func (e *ear) listed(opts metav1.ListOptions, list runtime.Object, m metav1.ListInterface) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if opts.Continue == "" || e.fill == nil {
		e.fill = e.record.begin()
	}
	_ = eachItem(list, func(o metav1.Object) { e.fill.put(cache.MetaObjectToName(o), markOf(o)) })
	if m.GetContinue() == "" {
		e.polled.Store(false)
		e.fill.commit(m.GetResourceVersion())
		e.fill, e.fresh = nil, false
	}
}

// filled notes that a WatchList's initial events have come to their end.
func (e *ear) filled() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fresh, e.cut, e.silent = false, 0, false
}

// newObject returns an empty object of the type that the Reflector expects.
func (e *ear) newObject() object { return reflect.New(e.typ).Interface().(object) }

// rewindListeners are an Informer's.
type rewindListeners struct {
	mu  sync.Mutex
	all []func()
}

func (l *rewindListeners) tell() {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// OnRewind registers f, before Run. It is called when it turns out that the API
// server was set back to an older revision, as by restoring etcd from a backup, and
// before everything is listed anew: what is remembered of revisions is of a history
// that is no more. f must not block.
func (i *Informer[T]) OnRewind(f func()) {
	i.rewindListeners.mu.Lock()
	defer i.rewindListeners.mu.Unlock()
	i.rewindListeners.all = append(i.rewindListeners.all[:len(i.rewindListeners.all):len(i.rewindListeners.all)], f)
}
