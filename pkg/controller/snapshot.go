package controller

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Snapshot is the state of a Controller in numbers: what metrics, health checks
// and /debug/queue are drawn from.
type Snapshot struct {
	Controller string `json:"controller"`
	// Running is whether a Run is taking keys. The numbers of keys are zero
	// otherwise, except for passes that outlived their Run.
	Running bool    `json:"running"`
	Workers Workers `json:"workers"`
	Ready   Ready   `json:"ready"`

	Processing int `json:"processing"`
	// Waiting is the number of keys that a timer will run: backoff, After, recheck.
	Waiting int `json:"waiting"`
	// Failing is the number of keys whose last passes failed; conflicts, stale
	// caches and waits are no failures.
	Failing int `json:"failing"`
	// Conflicting is the number of keys whose last pass met a conflict.
	Conflicting int `json:"conflicting"`
	// Frozen is the number of keys that the gate held back when last asked.
	Frozen int `json:"frozen"`
	// OldestDueSeconds is how long the key that has been due for longest has been
	// waiting for a worker, or 0.
	OldestDueSeconds float64 `json:"oldestDueSeconds"`
	// OldestFailingSeconds is how long the key that has gone longest without a
	// success since its first failure or conflict has done so, or 0.
	OldestFailingSeconds float64 `json:"oldestFailingSeconds"`
	// Wedged lists the keys in passes past their deadline and grace.
	Wedged []string `json:"wedged,omitempty"`

	// What follows is counted since New.

	Wakeups Wakeups `json:"wakeups"`
	// IgnoredAfter counts passes that returned an After beside an error.
	IgnoredAfter int64 `json:"ignoredAfter"`
	// Panics is sorted by origin.
	Panics []Panics `json:"panics,omitempty"`
}

// Workers counts workers. At most Size of those Running are not Wedged.
type Workers struct {
	Size    int `json:"size"`
	Running int `json:"running"`
	Wedged  int `json:"wedged"`
}

// Ready counts the keys that wait for a worker, by lane.
type Ready struct {
	Urgent     int `json:"urgent"`
	Normal     int `json:"normal"`
	Background int `json:"background"`
}

// Wakeups counts timers that ran nothing: Early ones were put back, LeftOver ones
// dropped because the key had succeeded meanwhile.
type Wakeups struct {
	Early    int64 `json:"early"`
	LeftOver int64 `json:"leftOver"`
}

// KeyState is what the ledger knows of a key.
type KeyState struct {
	Key string `json:"key"`
	// State is Waiting, Ready, Processing, or Idle: nothing is owed to it.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Lane is the lane it is ready in.
	Lane string `json:"lane,omitempty"`
	// NotBefore is when a Waiting key runs by itself.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// HeldUntil is the end of a server's Retry-After: events do not run it sooner.
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// Wedged: it is in a pass past its deadline and grace.
	Wedged bool `json:"wedged,omitempty"`

	// Attempts is the number of failures in a row, Conflicts that of conflicts.
	Attempts  int `json:"attempts"`
	Conflicts int `json:"conflicts"`
	// FailingSince is the first of them since the last success. A stale cache
	// neither begins nor ends it.
	FailingSince time.Time `json:"failingSince,omitzero"`
	// Class, Error and Reason are of the last pass, LastRun its end and
	// DurationSeconds its length. Texts are cut at 1 KiB.
	Class           Class     `json:"class,omitempty"`
	Error           string    `json:"error,omitempty"`
	Reason          string    `json:"reason,omitempty"`
	LastRun         time.Time `json:"lastRun,omitzero"`
	DurationSeconds float64   `json:"durationSeconds,omitempty"`
}

// Snapshot returns the Controller's state.
func (c *Controller) Snapshot() Snapshot {
	s := Snapshot{
		Controller:   c.cfg.Name,
		Running:      c.taking.Load() != nil,
		Workers:      Workers{Size: c.cfg.Workers},
		Wakeups:      Wakeups{Early: c.counts.early.Load(), LeftOver: c.counts.leftOver.Load()},
		IgnoredAfter: c.counts.ignoredAfter.Load(),
		Panics:       c.counts.panicsByOrigin(),
	}
	if t := c.current(); t != nil {
		s.Workers.Running, s.Workers.Wedged = t.pool.counts()
		t.ledger.count(&s)
	}
	return s
}

// Keys returns the states of the first limit keys after the given one, sorted by
// namespace and name, and whether there are more. The zero value comes before all
// keys.
func (c *Controller) Keys(limit int, after cache.ObjectName) (page []KeyState, more bool) {
	if t := c.current(); t != nil {
		return t.ledger.page(limit, after)
	}
	return nil, false
}

// Key returns what is known of one key.
func (c *Controller) Key(key cache.ObjectName) (KeyState, bool) {
	t := c.current()
	if t == nil {
		return KeyState{}, false
	}
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	if r := t.ledger.find(key); r != nil {
		return t.ledger.shown(r), true
	}
	return KeyState{}, false
}

// current returns the running term, or the last one for as long as passes of it
// still run.
func (c *Controller) current() *term {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || !c.running && c.last.pool.empty() {
		return nil
	}
	return c.last
}

func (l *ledger) count(s *Snapshot) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var due, failing time.Duration
	l.all(func(r *record) {
		switch r.state {
		case waiting:
			s.Waiting++
			due = max(due, now.sub(r.notBefore))
		case ready:
			due = max(due, now.sub(r.since))
			switch r.lane {
			case Urgent:
				s.Ready.Urgent++
			case Normal:
				s.Ready.Normal++
			default:
				s.Ready.Background++
			}
		case processing:
			s.Processing++
		}
		if r.wedged {
			s.Wedged = append(s.Wedged, r.key.String())
		}
		t := r.trouble
		if t == nil {
			return
		}
		if t.failingSince != never {
			failing = max(failing, now.sub(t.failingSince))
		}
		switch {
		case t.class == ClassFrozen:
			s.Frozen++
		case t.conflicts > 0:
			s.Conflicting++
		case t.attempts > 0:
			s.Failing++
		}
	})
	s.OldestDueSeconds, s.OldestFailingSeconds = due.Seconds(), failing.Seconds()
	slices.Sort(s.Wedged)
}

func (l *ledger) page(limit int, after cache.ObjectName) (page []KeyState, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []cache.ObjectName
	l.all(func(r *record) {
		if compareKeys(r.key, after) > 0 {
			keys = append(keys, r.key)
		}
	})
	slices.SortFunc(keys, compareKeys)
	if limit < len(keys) {
		keys, more = keys[:max(limit, 0)], true
	}
	for _, key := range keys {
		page = append(page, l.shown(l.find(key)))
	}
	return page, more
}

func compareKeys(a, b cache.ObjectName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// shown is r as it is shown. l.mu is held.
func (l *ledger) shown(r *record) KeyState {
	t := r.said()
	s := KeyState{
		Key: r.key.String(), State: r.state.String(), Since: l.time(r.since),
		NotBefore: l.time(r.notBefore), HeldUntil: l.time(t.floor), Wedged: r.wedged,
		Attempts: t.attempts, Conflicts: t.conflicts, FailingSince: l.time(t.failingSince),
		Class: t.class, Error: t.lastError, Reason: t.lastReason,
		LastRun: l.time(r.lastRun), DurationSeconds: r.took.Seconds(),
	}
	if r.state == ready {
		s.Lane = r.lane.String()
	}
	return s
}
