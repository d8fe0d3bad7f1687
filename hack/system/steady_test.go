package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// Where nothing changes nothing is written, Leases apart: not by a process that
// runs, nor by one that starts, nor by one that follows a killed one. Nothing is
// read but what fills the local copies.
func TestSteadyStateWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, span := 100, 20*time.Second
	if long {
		n, span = 500, 2*time.Minute
	}
	p := w.start(nil, alone)
	for i := range n {
		w.create(newApp(fmt.Sprintf("web-%d", i), replicas(1)))
	}
	w.allReady(n)
	// Events are told with a limit of their own, of five a second.
	w.eventually(patience+time.Duration(n)*time.Second/4, "the Events to be told", func() (bool, string) {
		told := len(w.events(""))
		return told >= n, fmt.Sprintf("%d of %d", told, n)
	})
	p.settles()

	since := time.Now()
	w.pass(span / 2)
	p.Stop(0)
	p = w.start(nil)
	if passes := p.passes(); passes < float64(n) {
		t.Errorf("the next process made %g passes over %d objects", passes, n)
	}
	p.restarts(nil)
	w.pass(span - span/2)
	if counts := w.writes(since); len(counts) > 0 {
		t.Errorf("writes by the controller with %d WebApps that nobody changed, in %s with two restarts: %v", n, span, counts)
	}
	reads := w.requests(since, func(e controlplane.AuditEvent) bool { return e.Verb == "get" && e.Resource != "leases" })
	if counts := count(reads); len(counts) > 0 {
		t.Errorf("reads beside the local copies: %v", counts)
	}
}
