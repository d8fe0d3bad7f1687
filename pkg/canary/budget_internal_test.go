package canary

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Where nobody restarts the process: liveness fails for 3 minutes, twice.
func TestAskLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		p := s.process(t, "a")
		p.lead()
		sleep(time.Second)
		s.set(func(s *fakeServer) { s.frozen = true })
		down := time.Duration(0)
		for range 3600 {
			sleep(time.Second)
			if p.Check() != nil {
				down += time.Second
			}
		}
		if down < 355*time.Second || down > 365*time.Second {
			t.Errorf("liveness failed for %s, want 2 times 3 min", down)
		}
		p.is(true, Unrecoverable)
		// The streams stay silent, new ones are not: the canary finds out by itself.
		s.set(func(s *fakeServer) {
			for _, w := range s.watches {
				w.mute = true
			}
			s.frozen = false
		})
		sleep(6 * time.Minute)
		p.is(true, Hearing)
		p.leave()
	})
}

// The check of another part draws on the same budget.
func TestWithinBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		p := s.process(t, "a")
		broken := errors.New("all workers are stuck")
		var wedged error
		check := p.WithinBudget(func() error { return wedged })
		probe := func() error { err := check(); synctest.Wait(); return err }
		wedged = broken
		if err := probe(); err != nil {
			t.Errorf("on standby: %v", err)
		}
		p.lead()
		sleep(time.Second)
		// Not before it is written, and not at all while it cannot be.
		s.set(func(s *fakeServer) { s.fail["update"] = apierrors.NewInternalError(errors.New("no space")) })
		for range 20 {
			sleep(20 * time.Second)
			if err := probe(); err != nil {
				t.Fatalf("liveness failed although the ask cannot be written: %v", err)
			}
		}
		s.set(func(s *fakeServer) { clear(s.fail) })
		sleep(time.Minute)
		if err := probe(); err != nil && readAsks(s.stored()) == 0 {
			t.Errorf("shown before the ask was written")
		}
		sleep(time.Minute)
		if err := probe(); !errors.Is(err, broken) || readAsks(s.stored()) != 1 {
			t.Fatalf("liveness %v, %d asks written, want the failure and 1", err, readAsks(s.stored()))
		}
		if err := p.Check(); err != nil {
			t.Errorf("the canary itself hears: %v", err)
		}
		wedged = nil
		if err := probe(); err != nil {
			t.Errorf("mended, and liveness still fails: %v", err)
		}
		// Deafness within the same ask spends no other one.
		wedged = broken
		if err := probe(); err == nil {
			t.Error("the ask lasts, and nothing is shown")
		}
		if got := p.Snapshot(); !got.Asking || got.AskedFor != broken.Error() {
			t.Errorf("the snapshot: %+v", got)
		}
		p.leave()

		// Two more processes: one ask left.
		failed := 0
		for _, name := range []string{"b", "c"} {
			p := s.process(t, name)
			check := p.WithinBudget(func() error { return broken })
			p.lead()
			for range 12 {
				sleep(20 * time.Second)
				if check() != nil {
					failed++
					break
				}
			}
			p.leave()
		}
		if failed != 1 || readAsks(s.stored()) != 2 {
			t.Errorf("%d of two further processes asked, %d asks written, want 1 and 2", failed, readAsks(s.stored()))
		}
	})
}
