package controller

import (
	"container/list"
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
	mu      sync.Mutex
	entries map[cache.ObjectName]*entry
	settled list.List // of cache.ObjectName: idle entries, most recent first
}

// maxSettled bounds the idle entries kept to answer "when did it last run?".
const maxSettled = 4096

// maxText bounds the error and reason texts kept for a key, in bytes.
const maxText = 1024

type state int

const (
	idle       state = iota // nothing is owed; kept only for its history
	waiting                 // notBefore is set
	ready                   // in a lane
	processing              // a worker has it
)

func (s state) String() string {
	return [...]string{"Idle", "Waiting", "Ready", "Processing"}[s]
}

type entry struct {
	state state
	since time.Time // when the state began
	lane  Lane      // while ready: its lane; while waiting: the lane of its timer

	// wanted and want are an Enqueue that no Push or Touch has seen yet. An Add of
	// a key that is being processed only marks it dirty: the wish has to survive
	// until Done pushes the key, and must not be taken for anything else.
	wanted bool
	want   Lane

	event     bool      // ready because of an event, not only of a timer
	now       bool      // RetryNow: run whatever notBefore and floor say
	notBefore time.Time // zero: no timer counts
	floor     time.Time // a server's Retry-After, which events do not override
	wedged    bool      // processing, past deadline and grace

	attempts   int // failed passes in a row
	conflicts  int // conflicts in a row
	class      Class
	lastError  string
	lastReason string
	lastRun    time.Time
	took       time.Duration

	settled *list.Element // in ledger.settled while idle
}

func newLedger() *ledger {
	return &ledger{entries: map[cache.ObjectName]*entry{}}
}

// of returns key's entry, made if there is none. l.mu is held.
func (l *ledger) of(key cache.ObjectName) *entry {
	e := l.entries[key]
	if e == nil {
		e = &entry{since: time.Now()}
		l.entries[key] = e
	}
	return e
}

// enter changes the state. l.mu is held.
func (l *ledger) enter(e *entry, s state) {
	if e.settled != nil {
		l.settled.Remove(e.settled)
		e.settled = nil
	}
	e.state, e.since = s, time.Now()
}

// rest puts a key that no worker has and no lane holds to rest: waiting where a
// timer counts, else idle, and then only as one of the last maxSettled. l.mu is
// held.
func (l *ledger) rest(key cache.ObjectName, e *entry) {
	if !e.notBefore.IsZero() {
		l.enter(e, waiting)
		return
	}
	l.enter(e, idle)
	if e.wanted { // about to be pushed
		return
	}
	if e.lastRun.IsZero() {
		delete(l.entries, key)
		return
	}
	e.settled = l.settled.PushFront(key)
	if l.settled.Len() > maxSettled {
		oldest := l.settled.Remove(l.settled.Back()).(cache.ObjectName)
		delete(l.entries, oldest)
	}
}

// wish notes that key is to run, in lane or a higher one. To be called before Add.
func (l *ledger) wish(key cache.ObjectName, lane Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wishLocked(l.of(key), lane)
}

func (l *ledger) wishLocked(e *entry, lane Lane) {
	if e.settled != nil { // must not be evicted while it is wanted
		l.settled.Remove(e.settled)
		e.settled = nil
	}
	if !e.wanted || lane > e.want {
		e.wanted, e.want = true, lane
	}
}

// wishNow is wish for a key that waits, overriding whatever it waits for. It
// reports whether the key was waiting.
func (l *ledger) wishNow(key cache.ObjectName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil || e.state != waiting {
		return false
	}
	e.now = true
	l.wishLocked(e, Urgent)
	return true
}

// pushed records that key becomes ready and returns its lane: the wished one, or
// without a wish, which means that a timer fired, that of the timer.
func (l *ledger) pushed(key cache.ObjectName) Lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(key)
	l.enter(e, ready)
	if e.wanted {
		e.wanted, e.event, e.lane = false, true, e.want
	}
	return e.lane
}

// touched records that a ready key is wanted again and returns its lane from now
// on. A key that only a timer had made ready now has an event for it.
func (l *ledger) touched(key cache.ObjectName) Lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(key)
	if e.wanted {
		e.wanted, e.event, e.lane = false, true, max(e.lane, e.want)
	}
	return e.lane
}

// decision is what to do with a key that was popped.
type decision struct {
	run     bool
	putBack time.Duration // when not run: add again after this; 0 drops it
	attempt int           // when run: 1 for the first pass of a streak
}

// popped decides. Where the pass is to run, the key is processing from here.
func (l *ledger) popped(key cache.ObjectName) decision {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(key)
	switch {
	case e.now:
	case e.event:
		if now.Before(e.floor) {
			e.notBefore = e.floor // what the event brings it forward to
			return l.putBack(e, now)
		}
	case e.notBefore.IsZero():
		l.rest(key, e)
		return decision{}
	case now.Before(e.notBefore):
		return l.putBack(e, now)
	}
	e.event, e.now = false, false
	e.notBefore, e.floor = time.Time{}, time.Time{}
	l.enter(e, processing)
	return decision{run: true, attempt: e.attempts + e.conflicts + 1}
}

func (l *ledger) putBack(e *entry, now time.Time) decision {
	e.event = false
	l.enter(e, waiting)
	return decision{putBack: e.notBefore.Sub(now)}
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

// finished records the end of a pass. To be called before AddAfter and Done.
func (l *ledger) finished(key cache.ObjectName, o outcome) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(key)
	e.wedged = false
	if o.class == "" {
		l.rest(key, e)
		return
	}
	switch o.class {
	case ClassDone, ClassWait, ClassFrozen:
		e.attempts, e.conflicts = 0, 0
	case ClassStale:
	case ClassConflict:
		e.conflicts++
	default:
		e.attempts++
		e.conflicts = 0
	}
	e.class, e.lastReason, e.lastError = o.class, clip(o.reason), clip(o.failure)
	e.lastRun, e.took = now, o.took
	if o.after > 0 {
		e.notBefore, e.lane = now.Add(o.after), o.lane
	}
	if o.floor > 0 {
		e.floor = now.Add(o.floor)
	}
	l.rest(key, e)
}

// conflictsOf returns how many conflicts in a row key has had.
func (l *ledger) conflictsOf(key cache.ObjectName) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		return e.conflicts
	}
	return 0
}

// wedge marks a key whose pass is past deadline and grace.
func (l *ledger) wedge(key cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(key).wedged = true
}

// drop forgets key: it was queued when the queue was shut down.
func (l *ledger) drop(key cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		l.enter(e, idle)
		delete(l.entries, key)
	}
}

// clip bounds a text that is kept or shown.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}
