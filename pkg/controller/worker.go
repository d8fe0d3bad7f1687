package controller

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// staleDelay is when a Stale key is looked at again. The write that is missing
	// is an event on its way, which wakes the key itself when it arrives, some
	// milliseconds after the write as a rule: this is only the second look for the
	// case that it does not, and it costs a gate call and no request.
	staleDelay = 200 * time.Millisecond
	// invalidFloor is the least delay of an Invalid key. With its jitter it is just
	// under 5 minutes: what a mended admission policy lets through converges within
	// that without anybody touching the object.
	invalidFloor = 4*time.Minute + 30*time.Second
	// fieldConflictFloor is the least delay of a FieldConflict key. The other
	// manager's letting go is a change of the child and wakes the key by itself.
	fieldConflictFloor = time.Minute
	// minDelay keeps a key that always asks to run again from running hot.
	minDelay = time.Millisecond
	// conflictSpeedup is how much sooner than after a failure a key is retried
	// after a conflict: the cache is behind for milliseconds.
	conflictSpeedup = 10
)

// errReconcileTimeout is the cause of the end of a pass past its deadline, to tell
// it from a shutdown and from shorter deadlines of the Reconciler's own.
var errReconcileTimeout = errors.New("reconcile timeout is over")

// errGoexit stands for a pass that ended its goroutine with runtime.Goexit.
var errGoexit = errors.New("pass called runtime.Goexit")

// work is the one worker loop.
func (t *term) work() {
	for !t.pool.surplus() {
		r, down := t.queue.Get()
		if down {
			return
		}
		t.turn(r)
	}
}

// turn deals with one popped key.
func (t *term) turn(r *record) {
	defer t.queue.Done(r)
	if t.stopping.Load() {
		t.ledger.drop(r)
		return
	}
	next := t.ledger.popped(r)
	switch {
	case next.run:
	case next.putBack > 0:
		t.c.counts.early.Add(1)
		t.queue.AddAfter(r, next.putBack)
		return
	default:
		t.c.counts.leftOver.Add(1)
		return
	}

	logger := klog.LoggerWithValues(klog.FromContext(t.ctx),
		"object", klog.KRef(r.key.Namespace, r.key.Name), "reconcileID", fmt.Sprintf("%016x", rand.Uint64()), "attempt", next.attempt)
	limit := t.c.cfg.ReconcileTimeout + wedgeGrace
	watched := t.pool.watch(limit, func() { t.ledger.wedge(r) }, func(replaced bool) {
		logger.Error(nil, "Reconcile has not returned long after its deadline; its worker is given up", "after", limit, "replaced", replaced)
	})

	p := panicked(errGoexit, nil)
	defer func() { // deferred for Goexit's sake
		watched.end()
		ended := t.ledger.now()
		p.took, p.attempt = ended.sub(next.began), next.attempt
		t.settle(logger, r, ended, p)
	}()
	p = t.pass(klog.NewContext(t.ctx, logger), r.key)
}

// pass is what came of one pass.
type pass struct {
	result Result
	class  Class // "" if the shutdown cut it short
	err    error
	stack  []byte // of a panic
	gated  bool   // nothing was called
	frozen string // why the gate freezes the key

	text       string        // of err
	retryAfter time.Duration // asked for in err

	took    time.Duration
	attempt int // 1 for the first pass of a streak
}

func panicked(err error, stack []byte) pass {
	return pass{class: ClassPanic, err: err, text: err.Error(), stack: stack}
}

// pass runs gate, deadline and Reconcile, and classifies. All code of others is
// called in here, methods of errors included: a nil *StatusError in an error panics
// in them.
func (t *term) pass(ctx context.Context, key cache.ObjectName) (p pass) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.c.cfg.ReconcileTimeout, errReconcileTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			frozen := p.frozen
			p = panicked(fmt.Errorf("panic: %v", v), debug.Stack())
			p.frozen = frozen
		}
	}()

	reconciler, frozen := t.c.cfg.Reconciler, false
	switch verdict := t.c.cfg.Gate(key); verdict.State {
	case Stale:
		return pass{class: ClassStale, gated: true, result: Result{Reason: verdict.Reason}}
	case Frozen:
		if t.c.cfg.Frozen == nil {
			return pass{class: ClassFrozen, gated: true, result: Result{Reason: verdict.Reason}}
		}
		reconciler, frozen = t.c.cfg.Frozen, true
		p.frozen = verdict.Reason
	}
	p.result, p.err = reconciler.Reconcile(ctx, key)
	if p.err != nil {
		p.text, p.retryAfter = p.err.Error(), retryAfter(p.err)
	}
	switch {
	case p.err == nil && frozen:
		p.class = ClassFrozen
	case p.err == nil && p.result.After > 0:
		p.class = ClassWait
	case p.err == nil:
		p.class = ClassDone
	case t.ctx.Err() != nil: // whatever it says, it was not let finish
		p.class = ""
	default:
		p.class = Classify(p.err)
		if p.class == ClassRetry && context.Cause(ctx) == errReconcileTimeout {
			p.class = ClassDeadline
		}
	}
	return p
}

// settle decides when key runs again, and records it. This is the one switch.
func (t *term) settle(logger klog.Logger, r *record, ended moment, p pass) {
	cfg := &t.c.cfg
	o := outcome{class: p.class, failure: p.text, took: p.took, lane: Normal}
	if p.err == nil {
		o.reason = p.result.Reason
	} else if p.class != "" {
		o.floor = p.retryAfter
	}
	if p.frozen != "" {
		o.reason = strings.TrimSuffix(p.frozen+"; "+o.reason, "; ")
	}

	switch p.class {
	case ClassDone:
		t.limiter.Forget(r)
	case ClassWait:
		t.limiter.Forget(r)
		o.after, o.lane = p.result.After, Background
	case ClassStale:
		o.after = staleDelay
	case ClassConflict:
		n := r.said().conflicts + 1 // only this worker changes it now
		o.after = jitter(backoff(cfg.RetryBaseDelay/conflictSpeedup, cfg.RetryMaxDelay, n))
	case ClassFieldConflict:
		o.after = max(t.limiter.When(r), jitterUp(fieldConflictFloor))
	case ClassRetry, ClassDeadline, ClassPanic:
		o.after = t.limiter.When(r)
	case ClassInvalid:
		o.after = max(t.limiter.When(r), jitterUp(invalidFloor))
	case ClassTerminal, ClassFrozen:
		t.limiter.Forget(r)
		o.after, o.lane = jitterUp(cfg.TerminalRecheck), Background
		if p.result.After > 0 && p.err == nil {
			o.after = min(o.after, p.result.After)
		}
	}
	if o.floor > 0 {
		o.after = max(o.after, jitterUp(o.floor))
	}
	if p.class != ClassDone && p.class != "" {
		o.after = max(o.after, minDelay)
	}

	t.ledger.finished(r, ended, o)
	if o.after > 0 {
		t.queue.AddAfter(r, o.after)
	}
	t.report(logger, r.key, p, o)
}

// report counts and logs a pass.
func (t *term) report(logger klog.Logger, key cache.ObjectName, p pass, o outcome) {
	if p.class == "" {
		logger.V(2).Info("Reconcile was cut short by the shutdown", "err", p.err)
		return
	}
	if p.gated {
		p.took = 0
	}
	t.c.cfg.Observe(p.class, p.took, o.after)
	logger = klog.LoggerWithValues(logger, "class", p.class, "duration", p.took, "after", o.after)
	if p.err != nil && p.result.After > 0 {
		t.c.counts.ignoredAfter.Add(1)
		logger.Info("Reconcile returned an After beside an error; the error decides", "ignoredAfter", p.result.After)
	}
	switch p.class {
	case ClassDone, ClassWait, ClassStale, ClassFrozen, ClassConflict:
		logger.V(4).Info("Reconciled", "reason", o.reason, "err", p.err)
	case ClassPanic:
		t.c.counts.panicked("Reconcile", key, p.text)
		if loud(p.attempt) {
			logger.Error(p.err, "Reconcile panicked", "stack", string(p.stack))
		} else {
			logger.V(4).Info("Reconcile panicked again", "err", p.err)
		}
	case ClassRetry:
		if loud(p.attempt) {
			logger.Error(p.err, "Reconcile failed")
		} else {
			logger.V(4).Info("Reconcile failed again", "err", p.err)
		}
	default: // slow enough as it is
		logger.Error(p.err, "Reconcile failed")
	}
}

// loud picks the occurrences in a row that are worth a line at level 0: the 1st,
// 2nd, 4th, 8th and so on. An outage makes every key fail at every retry, and what
// a key says now is in the ledger.
func loud(n int) bool { return bits.OnesCount(uint(n)) == 1 }
