package controller

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// ledger records what each key is doing and owns time: client-go's delaying queue
// can only bring a key forward and nothing can be taken out of it, so when a key
// is popped the ledger says whether it is due, early (put it back) or left over
// from a delay that no longer counts (drop it).
//
// Lock order: the workqueue's lock, then the ledger's. Nothing here calls a queue.
type ledger struct {
	clock

	mu      sync.Mutex
	tenants map[string]*tenant // by namespace
	records int                // of all tenants
	idle    int                // of them
	settles uint32             // how often a record has become idle; may wrap
}

// maxSettled is how many idle records are kept to answer "when did it last run?":
// those that became idle last. Older ones are given up now and then, all at once,
// so that there are at most maxSettled more of them than records that are not
// idle. Giving up each when its time comes would take a look-up in a large map.
const maxSettled = 4096

// maxText bounds the error and reason texts kept for a key, in bytes.
const maxText = 1024

func newLedger() *ledger {
	return &ledger{clock: newClock(), tenants: map[string]*tenant{}}
}

// of returns key's record, made if there is none. l.mu is held.
func (l *ledger) of(key cache.ObjectName) *record {
	t := l.tenants[key.Namespace]
	if t == nil {
		t = &tenant{records: map[string]*record{}}
		l.tenants[key.Namespace] = t
	}
	r := t.records[key.Name]
	if r == nil {
		r = &record{key: key, tenant: t}
		t.records[key.Name] = r
		t.peak = max(t.peak, len(t.records))
		l.records++
		l.idle++
	}
	return r
}

// find returns key's record, or nil. l.mu is held.
func (l *ledger) find(key cache.ObjectName) *record {
	if t := l.tenants[key.Namespace]; t != nil {
		return t.records[key.Name]
	}
	return nil
}

// all calls f for every record. l.mu is held.
func (l *ledger) all(f func(*record)) {
	for _, t := range l.tenants {
		for _, r := range t.records {
			f(r)
		}
	}
}

// forget gives up an idle record. l.mu is held.
func (l *ledger) forget(r *record) {
	if r.gone {
		return
	}
	r.gone = true
	r.trouble, r.streak = nil, nil // a timer may hold the record for long
	l.records--
	l.idle--
	delete(r.tenant.records, r.key.Name)
	if len(r.tenant.records) == 0 {
		delete(l.tenants, r.key.Namespace)
	}
}

// sweep gives up all idle records but the last maxSettled. l.mu is held.
func (l *ledger) sweep() {
	for _, t := range l.tenants {
		for _, r := range t.records {
			if r.state == idle && !r.wanted && l.settles-r.settled > maxSettled {
				l.forget(r)
			}
		}
		if len(t.records) < t.peak/4 { // a map never shrinks
			t.records, t.peak = maps.Collect(maps.All(t.records)), len(t.records)
		}
	}
}

// enter changes the state. l.mu is held.
func (l *ledger) enter(r *record, s state, now moment) {
	if !r.gone && r.state == idle {
		l.idle--
	}
	if !r.gone && s == idle {
		l.idle++
	}
	r.state, r.since = s, now
}

// rest puts a key that no worker has and no lane holds to rest: waiting where a
// timer counts, else idle. l.mu is held.
func (l *ledger) rest(r *record, now moment) {
	if r.notBefore != never {
		l.enter(r, waiting, now)
		return
	}
	l.enter(r, idle, now)
	if r.wanted { // about to be pushed
		return
	}
	if r.lastRun == never {
		l.forget(r)
		return
	}
	r.settled = l.settles
	l.settles++
	if active := l.records - l.idle; l.idle > 2*maxSettled && l.idle > active+maxSettled {
		l.sweep()
	}
}

// wish notes that key is to run, in lane or a higher one, and returns its record,
// which is to be added to the queue then.
func (l *ledger) wish(key cache.ObjectName, lane Lane) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of(key)
	l.wishLocked(r, lane)
	return r
}

func (l *ledger) wishLocked(r *record, lane Lane) {
	if !r.wanted || lane > r.want {
		r.wanted, r.want = true, lane
	}
}

// wishNow is wish for a key that waits, overriding whatever it waits for. It
// returns nil if the key is not waiting.
func (l *ledger) wishNow(key cache.ObjectName) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(key)
	if r == nil || r.state != waiting {
		return nil
	}
	r.now = true
	l.wishLocked(r, Urgent)
	return r
}

// pushed records that r becomes ready and returns its lane: the wished one, or
// without a wish, which means that a timer fired, that of the timer.
func (l *ledger) pushed(r *record) Lane {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(r, ready, now)
	if r.wanted {
		r.wanted, r.event, r.lane = false, true, r.want
	}
	return r.lane
}

// touched records that a ready key is wanted again and returns its lane from now
// on. A key that only a timer had made ready now has an event for it.
func (l *ledger) touched(r *record) Lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.wanted {
		r.wanted, r.event, r.lane = false, true, max(r.lane, r.want)
	}
	return r.lane
}

// decision is what to do with a key that was popped.
type decision struct {
	run     bool
	putBack time.Duration // when not run: add again after this; 0 drops it
	attempt int           // when run: 1 for the first pass of a streak
	began   moment        // when run
}

// popped decides. Where the pass is to run, the key is processing from here.
func (l *ledger) popped(r *record) decision {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.now:
	case r.event:
		if r.trouble != nil && now < r.trouble.floor {
			r.notBefore = r.trouble.floor // what the event brings it forward to
			return l.putBack(r, now)
		}
	case r.notBefore == never:
		l.rest(r, now)
		return decision{}
	case now < r.notBefore:
		return l.putBack(r, now)
	}
	r.event, r.now = false, false
	r.notBefore = never
	l.enter(r, processing, now)
	attempt := 1
	if r.trouble != nil {
		r.trouble.floor = never
		attempt += r.trouble.attempts + r.trouble.conflicts
	}
	return decision{run: true, attempt: attempt, began: now}
}

func (l *ledger) putBack(r *record, now moment) decision {
	r.event = false
	l.enter(r, waiting, now)
	return decision{putBack: r.notBefore.sub(now)}
}

// outcome is how a pass ended and what follows.
type outcome struct {
	class   Class // "" for a pass that the shutdown cut short: nothing is counted
	failure string
	reason  string
	took    time.Duration
	after   time.Duration // 0: no timer
	floor   time.Duration // part of after that events do not shorten
	lane    Lane          // of the timer
}

// finished records the end of a pass, now. To be called before AddAfter and Done.
func (l *ledger) finished(r *record, now moment, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.wedged = false
	if o.class == "" {
		l.rest(r, now)
		return
	}
	r.lastRun, r.took = now, o.took
	if o.after > 0 {
		r.notBefore, r.lane = now.after(o.after), o.lane
	}
	if o.class == ClassDone && o.reason == "" {
		r.trouble = nil
	} else {
		if r.trouble == nil {
			r.trouble = &trouble{}
		}
		r.trouble.add(now, o)
	}
	l.rest(r, now)
}

// add records one more pass, which ended now.
func (t *trouble) add(now moment, o outcome) {
	t.class, t.lastReason, t.lastError = o.class, clip(o.reason), clip(o.failure)
	if o.floor > 0 {
		t.floor = now.after(o.floor)
	}
	switch o.class {
	case ClassDone, ClassWait, ClassFrozen:
		t.attempts, t.conflicts, t.failingSince = 0, 0, never
		return
	case ClassStale:
		return
	case ClassConflict:
		t.conflicts++
	default:
		t.attempts++
		t.conflicts = 0
	}
	if t.failingSince == never {
		t.failingSince = now
	}
}

// wedge marks a key whose pass is past deadline and grace.
func (l *ledger) wedge(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.wedged = true
}

// drop forgets a key that was queued when the queue was shut down.
func (l *ledger) drop(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(r, idle, l.now())
	l.forget(r)
}

// clip bounds a text that is kept or shown.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}
