package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Result is what a pass without an error has to say.
type Result struct {
	// After, if positive, is when to look again although nothing has changed.
	// Waiting is not failing: no backoff, no failure counted. It is ignored
	// beside an error, which has a delay of its own (logged and counted, since
	// such code does not do what it says).
	After time.Duration
	// Reason says in a few words what the key waits for. It is shown to people.
	Reason string
}

// A Reconciler brings the world in line with the object that key names.
//
// It is called for one key by one worker at a time. ctx carries a logger with the
// controller, object, reconcileID and attempt, and ends at the reconcile timeout
// or when a shutdown has lasted too long. A key whose object is gone is passed
// too: return no error once nothing is left to do for it, so that the key is
// forgotten.
type Reconciler interface {
	Reconcile(ctx context.Context, key cache.ObjectName) (Result, error)
}

// ReconcilerFunc makes a Reconciler of a function.
type ReconcilerFunc func(ctx context.Context, key cache.ObjectName) (Result, error)

// Reconcile calls f.
func (f ReconcilerFunc) Reconcile(ctx context.Context, key cache.ObjectName) (Result, error) {
	return f(ctx, key)
}

// VerdictState is the gate's word on a key.
type VerdictState int

const (
	// Proceed: reconcile it.
	Proceed VerdictState = iota
	// Stale: the cache lacks a write of our own; look again in a moment.
	Stale
	// Frozen: do not reconcile it until an event says that this has changed. Only
	// Config.Frozen, if there is one, is called for it.
	Frozen
)

// Verdict is the gate's answer for a key. The zero value lets it pass.
type Verdict struct {
	State VerdictState
	// Reason is shown to people, for Stale and Frozen.
	Reason string
}

// Config is what New needs. Zero values of optional fields mean the default that
// the field names.
type Config struct {
	// Name identifies the controller in logs and metrics. Required.
	Name string
	// Reconciler does the work. Required.
	Reconciler Reconciler
	// Keys returns every key in the listers. It is called once in each Run, after
	// Enqueue has begun to take keys, and its keys are enqueued in Background.
	// Required.
	Keys func() []cache.ObjectName

	// Gate is asked before every pass, so that no Reconciler can forget to. It
	// must be quick and safe for concurrent use. Nil lets every key pass.
	Gate func(cache.ObjectName) Verdict
	// Frozen is called in place of Reconciler for a key that the gate freezes, with
	// the same deadline, containment and rules for what it returns: it may tell
	// people, and let go of an object that is being deleted, but has no spec to act
	// on. What it returns without an error is shown as ClassFrozen, an After
	// included; an error has its own class. Nil: a frozen key is only looked at
	// again.
	Frozen Reconciler
	// Workers is the number of passes at a time. 0 means 4.
	Workers int
	// ReconcileTimeout ends the context of a pass. 0 means 15 minutes.
	ReconcileTimeout time.Duration
	// ShutdownTimeout is how long running passes may go on after Run's context
	// has ended before theirs end too. 0 means 30 seconds.
	ShutdownTimeout time.Duration
	// RetryBaseDelay is the delay after a key's first failure; it doubles with
	// every further one up to RetryMaxDelay. 0 means 100 ms and 30 s. Both are
	// jittered by 10 %.
	RetryBaseDelay, RetryMaxDelay time.Duration
	// RetryQPS and RetryBurst limit the retries of all keys together, from a
	// key's second failure in a row on. 0 means 10 a second and 100.
	RetryQPS   float64
	RetryBurst int
	// TerminalRecheck is when a key that waits for a change (Terminal, Frozen) is
	// looked at all the same. 0 means 1 hour.
	TerminalRecheck time.Duration
	// MetricsProvider receives client-go's workqueue metrics. Nil means none.
	MetricsProvider workqueue.MetricsProvider
	// Observe is called once for each pass with how long it took, 0 for one that the
	// gate kept back and that called nothing, and the delay after which the key is
	// tried again by itself, 0 for none. A pass that a shutdown cut short is not
	// observed. Nil means none.
	Observe func(class Class, took, again time.Duration)
}

const (
	defaultWorkers          = 4
	defaultReconcileTimeout = 15 * time.Minute
	defaultShutdownTimeout  = 30 * time.Second
	defaultRetryBaseDelay   = 100 * time.Millisecond
	defaultRetryMaxDelay    = 30 * time.Second
	defaultRetryQPS         = 10
	defaultRetryBurst       = 100
	defaultTerminalRecheck  = time.Hour
)

const (
	// wedgeGrace is what a pass has after its deadline before its worker is given
	// up: enough for an HTTP client to notice its context and unwind.
	wedgeGrace = 30 * time.Second
	// joinGrace is what passes have to return once a shutdown has ended their
	// contexts. Less than the 5 s between the usual renew deadline and lease
	// duration: workers that have joined by then have joined before another
	// process can lead.
	joinGrace = 3 * time.Second
)

// complete checks c and fills in its defaults.
func (c *Config) complete() error {
	if c.Name == "" {
		return errors.New("Config.Name is empty: give the controller a name for its logs and metrics")
	}
	if c.Reconciler == nil {
		return fmt.Errorf("controller %s: Config.Reconciler is nil", c.Name)
	}
	if c.Keys == nil {
		return fmt.Errorf("controller %s: Config.Keys is nil: without it a new leader knows no key", c.Name)
	}
	for _, f := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"ReconcileTimeout", &c.ReconcileTimeout, defaultReconcileTimeout},
		{"ShutdownTimeout", &c.ShutdownTimeout, defaultShutdownTimeout},
		{"RetryBaseDelay", &c.RetryBaseDelay, min(defaultRetryBaseDelay, orMax(c.RetryMaxDelay))},
		{"RetryMaxDelay", &c.RetryMaxDelay, max(defaultRetryMaxDelay, c.RetryBaseDelay)},
		{"TerminalRecheck", &c.TerminalRecheck, defaultTerminalRecheck},
	} {
		if *f.value < 0 {
			return fmt.Errorf("controller %s: Config.%s is %s: it must be positive, or 0 for the default of %s", c.Name, f.name, *f.value, f.zero)
		}
		if *f.value == 0 {
			*f.value = f.zero
		}
	}
	if c.RetryMaxDelay < c.RetryBaseDelay {
		return fmt.Errorf("controller %s: Config.RetryMaxDelay (%s) is below Config.RetryBaseDelay (%s)", c.Name, c.RetryMaxDelay, c.RetryBaseDelay)
	}
	if c.Workers < 0 {
		return fmt.Errorf("controller %s: Config.Workers is %d: it must be positive, or 0 for the default of %d", c.Name, c.Workers, defaultWorkers)
	}
	if !(c.RetryQPS >= 0) || math.IsInf(c.RetryQPS, 1) { // NaN too
		return fmt.Errorf("controller %s: Config.RetryQPS is %v: it must be positive and finite, or 0 for the default of %d", c.Name, c.RetryQPS, defaultRetryQPS)
	}
	if c.RetryBurst < 0 {
		return fmt.Errorf("controller %s: Config.RetryBurst is %d: it must be positive, or 0 for the default of %d", c.Name, c.RetryBurst, defaultRetryBurst)
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.RetryQPS == 0 {
		c.RetryQPS = defaultRetryQPS
	}
	if c.RetryBurst == 0 {
		c.RetryBurst = defaultRetryBurst
	}
	if c.Gate == nil {
		c.Gate = func(cache.ObjectName) Verdict { return Verdict{} }
	}
	if c.Observe == nil {
		c.Observe = func(Class, time.Duration, time.Duration) {}
	}
	return nil
}

// orMax returns d, or the largest duration where d is not set.
func orMax(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return math.MaxInt64
}

// ErrAbort, as the cause of Run's context, asks that running passes end at once:
// the lead is lost and another process may soon act.
var ErrAbort = errors.New("lead lost")

// ErrWorkersRunning is returned by Run when passes are still running as it ends,
// and by a later Run for as long as they are. Two passes for the same key could
// otherwise run at once. It means that the lease must not be released.
var ErrWorkersRunning = errors.New("workers are still running")

// Controller runs a Reconciler. Its methods are safe for concurrent use.
type Controller struct {
	cfg     Config
	metrics *queueMetrics // nil: none
	counts  counts

	taking atomic.Pointer[term] // takes keys; nil while not running

	mu      sync.Mutex
	running bool
	last    *term // the current term, or the one before
}

// New checks cfg and returns a Controller that does nothing yet.
func New(cfg Config) (*Controller, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg}
	if cfg.MetricsProvider != nil {
		c.metrics = newQueueMetrics(cfg.MetricsProvider)
	}
	return c, nil
}

// Enqueue has keys reconciled, in lane or in a higher one that they are wanted in
// already. A key that waits in backoff runs at once; one that is being reconciled
// runs again. While Run is not running it does nothing. It never blocks.
func (c *Controller) Enqueue(lane Lane, keys ...cache.ObjectName) {
	t := c.taking.Load()
	if t == nil {
		return
	}
	lane = min(max(lane, Background), Urgent)
	for _, key := range keys {
		t.queue.Add(t.ledger.wish(key, lane))
	}
}

// RetryNow runs a waiting key now, whatever it waits for, a server's Retry-After
// included. It reports whether the key was waiting.
func (c *Controller) RetryNow(key cache.ObjectName) bool {
	t := c.taking.Load()
	if t == nil {
		return false
	}
	r := t.ledger.wishNow(key)
	if r == nil {
		return false
	}
	t.queue.Add(r)
	return true
}

// Run reconciles until ctx ends. It starts with a fresh queue, filled from
// Config.Keys, and may be called again after it has returned.
//
// When ctx ends no more keys are taken and the queued ones are dropped. Running
// passes go on for Config.ShutdownTimeout; then, or at once where the cause of ctx
// is ErrAbort, their contexts end, and after a short grace Run returns: nil if
// every worker has returned, else ErrWorkersRunning.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", c.cfg.Name)
	t, err := c.begin(klog.NewContext(ctx, logger))
	if err != nil {
		return err
	}
	logger.Info("Controller started", "workers", c.cfg.Workers)
	c.taking.Store(t)
	t.pool.start()
	// After taking: an event that came too early to be taken is in the listers.
	c.Enqueue(Background, c.cfg.Keys()...)

	<-ctx.Done()
	c.taking.Store(nil)
	err = t.end(context.Cause(ctx))
	c.mu.Lock()
	c.running = false
	c.mu.Unlock()
	if err != nil {
		logger.Error(err, "Controller stopped, but not all of its workers")
		return fmt.Errorf("stop controller %s: %w", c.cfg.Name, err)
	}
	logger.Info("Controller stopped")
	return nil
}

// begin makes a new term, unless there is one that still runs.
func (c *Controller) begin(ctx context.Context) (*term, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return nil, fmt.Errorf("start controller %s: it is running already", c.cfg.Name)
	}
	if c.last != nil && !c.last.pool.empty() {
		return nil, fmt.Errorf("start controller %s: of an earlier run: %w", c.cfg.Name, ErrWorkersRunning)
	}
	c.last = newTerm(ctx, c)
	c.running = true
	return c.last, nil
}

// Check returns an error when every worker, replacements included, is in a pass
// that is past its deadline and grace: nothing runs any more, and only a restart
// helps.
func (c *Controller) Check() error {
	c.mu.Lock()
	t := c.last
	c.mu.Unlock()
	if t == nil {
		return nil
	}
	if err := t.pool.check(); err != nil {
		return fmt.Errorf("controller %s: %w: %s", c.cfg.Name, err, strings.Join(c.Snapshot().Wedged, ", "))
	}
	return nil
}
