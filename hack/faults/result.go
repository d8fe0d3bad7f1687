package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// result is what was measured.
type result struct {
	scenario      *scenario
	began, lifted time.Time
	end           time.Time

	sights       []sight // from the fault's begin to the end of the measurement
	ours, peer   delays  // of changes during the fault
	settled      delays  // of those after the time in which work has to go on again
	hasPeer      bool
	peerSynced   bool
	requests     tally // of the product, during the fault
	peerRequests tally
	restarts     []restart
	failed       int // answers to the liveness probe other than 200
	lost         int // changes never acted on
	streaming    time.Duration
	streams      bool // streaming is known
	stale        bool // the local copy was not what etcd has, at the end
	// late is how long the process started in the middle took to converge, granted how
	// long it took to hear of a right. 0: never, or not asked.
	late, granted time.Duration

	// What changes without a fault waited for, at most, during this one and after.
	slack, slackAfter time.Duration

	// notes are findings of the scenario's own, problems what does not hold.
	notes, problems []string
}

// promptly is when a change counts as having come by a stream, if no change without a
// fault waited at that time.
const promptly = 2 * time.Second

func (t *trial) sum() {
	r := t.result
	r.end = time.Now()
	r.sights = t.observer.between(r.began, r.end)
	r.ours = t.book.delays(product, r.began, r.lifted)
	r.settled = t.book.delays(product, r.began.Add(t.lab.polled()), r.lifted)
	if t.plainSynced != nil {
		r.hasPeer, r.peerSynced = true, t.plainSynced()
		r.peer = t.book.delays(plain, r.began, r.lifted)
	}
	r.lost = t.book.unseen(product)
	r.slack, r.slackAfter = t.lab.slack(r.began, r.lifted), t.lab.slack(r.lifted, r.end)
	r.streaming, r.streams = t.book.prompt(product, r.lifted, promptly+r.slackAfter)
	r.requests = count(t.proxy.Requests(faultproxy.Match{UserAgentPrefix: "steadwatch"}), r.began, r.lifted)
	r.peerRequests = count(t.proxy.Requests(faultproxy.Match{UserAgentPrefix: plainAgent}), r.began, r.lifted)
	for _, replica := range t.replicas {
		restarts, failed := replica.count()
		r.restarts = append(r.restarts, restarts...)
		r.failed += failed
	}
}

func (r *result) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// said is when, after the fault's begin, the product first said so. 0: never.
func (r *result) said(kind sightKind, what string) time.Duration {
	for _, s := range r.sights {
		if s.kind == kind && strings.HasPrefix(s.what, what) {
			return max(s.at.Sub(r.began), 1)
		}
	}
	return 0
}

// copied are the kinds whose requests count: those that a WebApp needs. Others have
// nothing to do with the changes.
var copied = []string{"webapps", "deployments", "services", "configmaps"}

// tally counts requests for local copies and about them.
type tally struct {
	lists, watchLists, watches, questions, audits, gets int
	bytes                                               int64 // of answers' bodies
}

func count(requests []faultproxy.Request, from, to time.Time) tally {
	var t tally
	for _, r := range requests {
		if r.Time.Before(from) || !r.Time.Before(to) || !slices.Contains(copied, r.Resource) {
			continue
		}
		page := strings.Contains(r.URL, "continue=")
		one := r.Name != "" // by field selector
		switch {
		case r.Verb == "watch" && r.MetadataOnly:
			t.questions++
		case r.Verb == "watch" && r.WatchList:
			t.watchLists++
		case r.Verb == "watch":
			t.watches++
		case r.Verb == "list" && one:
			t.gets++
		case r.Verb == "list" && page:
		case r.Verb == "list" && r.MetadataOnly:
			t.audits++
		case r.Verb == "list":
			t.lists++
		case r.Verb == "get":
			t.gets++
		default:
			continue // a write
		}
		t.bytes += r.Bytes
	}
	return t
}

func (t tally) String() string {
	return fmt.Sprintf("%d / %d / %d / %d / %d", t.lists, t.watchLists, t.watches, t.questions, t.audits)
}

// relists are fillings of a local copy.
func (t tally) relists() int { return t.lists + t.watchLists }

// checks collects what does not hold.
type checks struct {
	r        *result
	problems []string
}

func (c *checks) that(holds bool, format string, args ...any) {
	if !holds {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func (c *checks) nothingLost() { c.that(c.r.lost == 0, "%d changes were never acted on", c.r.lost) }

// notRestarted holds wherever a restart would not help.
func (c *checks) notRestarted() {
	c.that(len(c.r.restarts) == 0, "restarted %d times: %v", len(c.r.restarts), whys(c.r.restarts))
	c.that(c.r.failed == 0, "/healthz failed %d times", c.r.failed)
}

// noAlarm holds where nothing is wrong. That a write of the canary takes long is no
// alarm, nor is one that comes back late if others had to wait as long.
func (c *checks) noAlarm(s settings) {
	late := max(c.r.slack, c.r.slackAfter) > s.canaryInterval/2
	for _, s := range c.r.sights {
		if s.kind == readySight || s.kind == canarySight && (s.what == "unwritable" || s.what == "late" && late) {
			continue
		}
		if s.kind == restartSight || !well(s) {
			c.that(false, "false alarm: %s %s after %s", s.subject, s.what, round(s.at.Sub(c.r.began)))
		}
	}
}

// onlyReopened holds if the watch of one resource was reopened, once, and no other. Their
// ends by the API server's own timeouts do not count.
func (c *checks) onlyReopened(resource string) {
	n := 0
	for _, s := range c.r.sights {
		if s.kind != restartSight || s.what == "" {
			continue
		}
		n++
		c.that(s.subject == resource, "the watch of %s was reopened: %s", s.subject, s.what)
	}
	c.that(n == 1, "%d watches were reopened, want one", n)
}

func (c *checks) actedWithin(d time.Duration) {
	c.that(c.r.ours.max <= d+c.allowed(), "a change was acted on after %s, want within %s", round(c.r.ours.max), c.with(d))
}

// settledWithin bounds what changes wait for once the fault has to have been found. What
// the kubelet waits before it starts a container again comes on top: nobody acts then.
func (c *checks) settledWithin(d time.Duration, s settings) {
	var backoff time.Duration
	for _, r := range c.r.restarts {
		backoff = max(backoff, r.backoff)
	}
	d += backoff
	c.that(c.r.settled.max <= d+c.allowed(), "from %s on a change was acted on after %s, want within %s", s.polled(), round(c.r.settled.max), c.with(d))
}

// allowed is what the machine may add: what a change without a fault waited for, at each
// of the steps of a remedy: to ask, to open again, to act.
func (c *checks) allowed() time.Duration { return 3 * c.r.slack }

func (c *checks) with(d time.Duration) string {
	return fmt.Sprintf("%s (and %s, since a change without a fault waited for %s)", d, round(c.allowed()), round(c.r.slack))
}

func (c *checks) streamsAgain(within time.Duration) {
	c.that(c.r.streams && c.r.streaming <= within+c.r.slackAfter, "not streaming again within %s of the fault's end (and %s, as without a fault)", within, round(c.r.slackAfter))
}

func whys(restarts []restart) string {
	var out []string
	for _, r := range restarts {
		out = append(out, r.why)
	}
	return strings.Join(out, "; ")
}
