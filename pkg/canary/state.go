package canary

import (
	"context"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// State says whether what is written comes back.
type State string

const (
	// Standby: Run is not running.
	Standby State = "standby"
	// Pending: nothing has been seen yet in this term, and nothing is late.
	Pending State = "pending"
	// Hearing: each write is seen again within Interval.
	Hearing State = "hearing"
	// Late: a write that the API server has acknowledged was not seen again within
	// Interval, or the API server answers the watch with an error.
	Late State = "late"
	// Deaf: not seen for longer than FailAfter, on a fresh connection either, while
	// reads and writes work.
	Deaf State = "deaf"
	// Unrecoverable: deaf, and no restart is left to ask for: those that were have
	// not helped. Or etcd was set back below a running API server, where none could.
	Unrecoverable State = "unrecoverable"
	// Forbidden: a permission is missing; Snapshot.Message names it.
	Forbidden State = "forbidden"
	// Unwritable: the Lease cannot be read or written now, for any other reason.
	Unwritable State = "unwritable"
)

// States returns all states.
func States() []State {
	return []State{Standby, Pending, Hearing, Late, Deaf, Unrecoverable, Forbidden, Unwritable}
}

// Result is what a write came to.
type Result string

const (
	// Acknowledged by the API server.
	Acknowledged Result = "acknowledged"
	// Conflict: somebody else wrote in between; tried again at once.
	Conflict Result = "conflict"
	// Refused for want of a permission.
	Refused Result = "forbidden"
	// Failed otherwise, the reading before it included.
	Failed Result = "failed"
)

// Results returns all results.
func Results() []Result { return []Result{Acknowledged, Conflict, Refused, Failed} }

// status is what a Canary knows, under its mutex.
type status struct {
	term

	state State
	since time.Time

	lastWrite, lastHeard time.Time
	roundTrip            time.Duration
	highest              string // the highest revision of the Lease known, "" if none
	rewound              bool
	rewinds, reconnects  int64
	writes               map[Result]int64
	sequence             int64
	// watch is counted up for each Reflector; what an older one says is not listened to.
	watch int

	budget
}

// term is what is known of one Run and forgotten after it.
type term struct {
	running bool

	outstanding []beat // acknowledged and not seen yet, oldest first
	// heardVersion is the last event's, heardSequence that of the last one of ours.
	heardVersion  string
	heardSequence int64
	heardAt       time.Time
	everHeard     bool
	// listedVersion is that of the Reflector's last list, empty before it, and
	// listedSequence of our write in it, if it is ours.
	listedVersion  string
	listedSequence int64

	wroteAt      time.Time // tried to
	writeAfter   time.Time // the API server asked not to come again before
	watchAfter   time.Time // the same, of lists and watches
	moot         bool      // a list shows the outstanding writes: their events will not come
	mootAt       time.Time // acted upon
	late, deaf   bool
	reopenedAt   time.Time // the connection of the watch
	chanceSince  time.Time // since when that connection could have delivered
	lookedAt     time.Time
	hearingSince time.Time

	failure     *failure // of the last write; nil if it was acknowledged
	failures    int      // in a row
	failedSince time.Time
	refusal     *failure // the API server's answer to the last list or watch; nil if accepted

	rewoundNow    bool // for Run to act upon
	rewindUnheard bool // nothing was heard since

	owned      bool // a write of this term was acknowledged
	rival      string
	rivalTurns int

	reported   State
	reportedAt time.Time
	rivalNamed bool
}

// beat is one acknowledged write.
type beat struct {
	version     string
	sequence    int64
	sent, acked time.Time
}

// maxOutstanding bounds what is remembered of a long silence: its beginning and
// its newest write.
const maxOutstanding = 100

func (s *status) addBeatLocked(b beat) {
	if len(s.outstanding) == maxOutstanding {
		s.outstanding = s.outstanding[:maxOutstanding-1]
	}
	s.outstanding = append(s.outstanding, b)
}

// observe takes an event of the watch.
func (c *Canary) observe(watch int, lease *coordinationv1.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || watch != c.watch {
		return
	}
	now := time.Now()
	c.heardVersion, c.heardAt, c.lastHeard = lease.ResourceVersion, now, now
	if holder(lease) == c.cfg.Identity {
		c.heardSequence = max(c.heardSequence, sequence(lease))
	}
	c.settleLocked(now)
	c.wake()
}

// settleLocked takes off what has been seen.
func (c *Canary) settleLocked(now time.Time) {
	for len(c.outstanding) > 0 && !c.heardAt.IsZero() && covers(c.heardVersion, c.heardSequence, c.outstanding[0]) {
		b := c.outstanding[0]
		c.outstanding = c.outstanding[1:]
		c.everHeard, c.deaf, c.moot, c.rewindUnheard = true, false, false, false
		c.roundTrip = max(c.heardAt.Sub(b.sent), 0)
		c.cfg.RoundTrip(c.roundTrip)
		// One that took too long does not end the lateness.
		c.late = c.roundTrip > c.cfg.Interval || len(c.outstanding) > 0 && now.Sub(c.outstanding[0].acked) > c.cfg.Interval
	}
	c.refreshLocked(now)
}

// covers reports whether one who has seen version and, of this process' own writes,
// all up to sequence has been told of b. Where revisions cannot be compared, only
// the write itself or a later one of ours is proof.
func covers(version string, sequence int64, b beat) bool {
	if order, err := resourceversion.CompareResourceVersion(version, b.version); err == nil {
		return order >= 0
	}
	return version == b.version || sequence >= b.sequence
}

// relisted takes what a list of the Reflector has shown. It proves nothing about
// the watch; but of what it shows no event will come, so that another write is
// needed.
func (c *Canary) relisted(watch int, version string, items []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || watch != c.watch {
		return
	}
	c.listedVersion, c.listedSequence = version, -1
	for _, item := range items {
		if lease, ok := item.(*coordinationv1.Lease); ok && holder(lease) == c.cfg.Identity {
			c.listedSequence = sequence(lease)
		}
	}
	c.mootLocked()
}

// mootLocked finds that the last list shows the newest write. Of either, the list or
// the answer to the write, may come first.
func (c *Canary) mootLocked() {
	n := len(c.outstanding)
	if n > 0 && c.listedVersion != "" && covers(c.listedVersion, c.listedSequence, c.outstanding[n-1]) {
		c.moot = true
		c.wake()
	}
}

// judge decides on lateness and deafness, and asks for restarts.
func (c *Canary) judge(ctx context.Context) {
	c.mu.Lock()
	now := time.Now()
	waiting := c.waitingLocked(now)
	reopen, called := false, false
	switch {
	case c.failure != nil || waiting <= c.cfg.Interval:
	case !c.late:
		c.late, called = true, true
		reopen = c.refusal == nil
	case c.deaf && now.Sub(c.reopenedAt) >= c.cfg.FailAfter:
		reopen = c.refusal == nil // what ailed the network may be over, and the stream still silent
	}
	if reopen {
		c.reopenedAt, c.chanceSince = now, now
		c.reconnects++
	}
	suspect := c.suspectLocked(now)
	c.refreshLocked(now)
	c.mu.Unlock()

	if reopen {
		c.cutWatched()
	}
	if called {
		c.cfg.Late()
	}
	if suspect && c.reads(ctx) {
		c.mu.Lock()
		c.deaf = c.suspectLocked(time.Now())
		c.refreshLocked(time.Now())
		c.mu.Unlock()
	}
	c.askIfWanted(ctx)
}

// suspectLocked says whether all is true of Deaf but that reads work, which has to
// be tried.
func (c *Canary) suspectLocked(now time.Time) bool {
	return c.late && !c.deaf && c.failure == nil && c.refusal == nil &&
		c.waitingLocked(now) >= c.cfg.FailAfter && now.Sub(c.chanceSince) >= c.cfg.Interval
}

func (c *Canary) waitingLocked(now time.Time) time.Duration {
	if len(c.outstanding) == 0 {
		return 0
	}
	if c.failure != nil {
		now = c.failedSince
	}
	return max(now.Sub(c.outstanding[0].acked), 0)
}

// refreshLocked derives the state, and what follows from it alone.
func (c *Canary) refreshLocked(now time.Time) {
	state := c.stateLocked(now)
	if state != c.state {
		c.state, c.since = state, now
	}
	switch {
	case state != Hearing:
		c.hearingSince = time.Time{}
	case c.hearingSince.IsZero():
		c.hearingSince = now
	case now.Sub(c.hearingSince) >= c.refillAfter:
		c.rewound = false
	}
}

func (c *Canary) stateLocked(now time.Time) State {
	switch {
	case !c.running:
		return Standby
	case c.failure != nil && c.failure.forbidden, c.failure == nil && c.refusal != nil && c.refusal.forbidden:
		return Forbidden
	case c.failure != nil:
		return Unwritable
	case c.deaf && (c.rewindUnheard || c.spent >= maxAsks && !c.askingLocked(now)):
		return Unrecoverable
	case c.deaf:
		return Deaf
	case c.late:
		return Late
	case c.everHeard:
		return Hearing
	default:
		return Pending
	}
}

// sequence of a Lease is its writer's count of writes, 0 if there is none.
func sequence(lease *coordinationv1.Lease) int64 {
	n, err := strconv.ParseInt(lease.Annotations[annotationSequence], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
