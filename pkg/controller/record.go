package controller

import (
	"math"
	"time"

	"k8s.io/client-go/tools/cache"
)

// record is all that is known of a key. It, and not the key, is what client-go's
// queues carry, so that a key is looked up once, when it is enqueued: lanes,
// limiter and ledger each have their part in here.
//
// A key has one record at a time. The ledger gives up a record only while it is
// idle; should client-go's delaying heap still have it, it comes back to nobody
// and is dropped when it is popped.
type record struct {
	// link is its place in a ring, at the lane of that. Both under the workqueue's
	// lock.
	link link[record]
	at   Lane

	// What follows, up to key, is under the ledger's lock.

	state state
	lane  Lane // while ready: its lane; while waiting: the lane of its timer
	// wanted and want are an Enqueue that no Push or Touch has seen yet. An Add of
	// a key that is being processed only marks it dirty: the wish has to survive
	// until Done pushes the key, and must not be taken for anything else.
	wanted bool
	want   Lane

	event   bool   // ready because of an event, not only of a timer
	now     bool   // RetryNow: run whatever notBefore and floor say
	wedged  bool   // processing, past deadline and grace
	gone    bool   // given up
	settled uint32 // what ledger.settles was when it became idle

	since     moment // when the state began
	notBefore moment // never: no timer counts
	lastRun   moment
	took      time.Duration
	trouble   *trouble // of the passes since the last that was Done without a word

	key    cache.ObjectName // never changes, nor does tenant
	tenant *tenant

	// streak is the limiter's. It is touched by the worker that has the key only.
	streak *streak
}

// trouble is what there is to say of a key that did not simply succeed. Most keys
// have none.
type trouble struct {
	class        Class
	attempts     int    // failed passes in a row
	conflicts    int    // conflicts in a row
	failingSince moment // the first pass without a success after the last with one
	floor        moment // a server's Retry-After, which events do not override
	lastError    string
	lastReason   string
}

// tenant is what the keys of a namespace share. It goes with its last record.
type tenant struct {
	records map[string]*record // by name; under the ledger's lock, and so is peak
	peak    int                // the most records since the map was made: its size
	rings   [laneCount]ring    // under the workqueue's lock
}

// said returns the record's trouble for reading, never nil.
func (r *record) said() *trouble {
	if r.trouble != nil {
		return r.trouble
	}
	if r.lastRun == never {
		return &trouble{}
	}
	return &trouble{class: ClassDone}
}

type state int8

const (
	idle       state = iota // nothing is owed; kept only for its history
	waiting                 // notBefore is set
	ready                   // in a lane
	processing              // a worker has it
)

func (s state) String() string {
	return [...]string{"Idle", "Waiting", "Ready", "Processing"}[s]
}

// moment is a time in nanoseconds on the ledger's clock: a third the size of a
// time.Time, and half its price to read.
type moment int64

// never is no moment; it is before all others.
const never moment = 0

// after returns the moment d after m.
func (m moment) after(d time.Duration) moment {
	if moment(d) > math.MaxInt64-m {
		return math.MaxInt64
	}
	return m + moment(d)
}

// sub returns the time from earlier to m.
func (m moment) sub(earlier moment) time.Duration { return time.Duration(m - earlier) }

// clock counts moments from the time at which it was made.
type clock struct{ epoch time.Time }

func newClock() clock { return clock{time.Now()} }

// now returns the present moment, which is not never.
func (c clock) now() moment { return moment(time.Since(c.epoch)) + 1 }

// time returns m as people read it: the zero time for never.
func (c clock) time(m moment) time.Time {
	if m == never {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(m - 1))
}
