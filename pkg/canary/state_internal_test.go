package canary

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func sleep(d time.Duration) {
	time.Sleep(d) // in a bubble
	synctest.Wait()
}

// A healthy API server: heard within moments of the start, and for hours.
func TestHearing(t *testing.T) {
	for name, opaque := range map[string]bool{"Comparable": false, "Opaque": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				s.opaque = opaque
				p := s.process(t, "a")
				p.is(true, Standby)
				p.lead()
				sleep(time.Second)
				p.is(true, Hearing)
				sleep(3 * time.Hour)
				p.is(true, Hearing)
				got := p.Snapshot()
				if n := got.Writes[Acknowledged]; n < 180 || n > 183 {
					t.Errorf("%d writes in 3 h, want one a minute", n)
				}
				if p.late != 0 || got.Reconnects != 0 || len(p.trips) != int(got.Writes[Acknowledged]) {
					t.Errorf("late %d times, %d reconnects, %d round trips", p.late, got.Reconnects, len(p.trips))
				}
				p.leave()
				p.is(true, Standby)
			})
		})
	}
}

// The first list shows the first write before the API server has answered it: no event
// of that will come, and another write follows at once, not after an interval.
func TestListFasterThanTheAnswer(t *testing.T) {
	for name, opaque := range map[string]bool{"Comparable": false, "Opaque": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				s.opaque, s.answering = opaque, 100*time.Millisecond
				s.before = func(verb string) {
					if verb == "list" {
						time.Sleep(50 * time.Millisecond)
					}
				}
				p := s.process(t, "a")
				p.lead()
				sleep(time.Second)
				p.is(true, Hearing)
				if got := p.Snapshot().Writes[Acknowledged]; got != 2 {
					t.Errorf("%d writes, want the one that the list shows and one more", got)
				}
				p.leave()
			})
		})
	}
}

// Watches that deliver nothing, old and new: the table from top to bottom.
func TestR26SilentWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		a := s.process(t, "a")
		a.lead()
		sleep(90 * time.Second) // the last write was at 60 s
		a.is(true, Hearing)
		s.set(func(s *fakeServer) { s.frozen = true })
		sleep(85 * time.Second) // not seen: that of 120 s, for 55 s
		a.is(true, Hearing)
		sleep(10 * time.Second)
		a.is(true, Late)
		if a.lates() != 1 || s.cuts != 1 {
			t.Fatalf("called %d times, connection closed %d times, want once", a.lates(), s.cuts)
		}
		sleep(4*time.Minute - 20*time.Second)
		a.is(true, Late)
		if a.lates() != 1 || s.cuts != 1 {
			t.Fatalf("called %d times, connection closed %d times, want once while late", a.lates(), s.cuts)
		}
		// The ask is written before liveness fails.
		var asked atomic.Bool
		s.set(func(s *fakeServer) {
			s.before = func(string) {
				if a.Check() != nil && !asked.Load() {
					asked.Store(readAsks(s.stored()) == 1)
					if !asked.Load() {
						t.Error("liveness fails before the ask is written")
					}
				}
			}
		})
		sleep(30 * time.Second)
		a.is(false, Deaf)
		if got := readAsks(s.stored()); got != 1 {
			t.Fatalf("%d asks written, want 1", got)
		}
		if got := a.Snapshot(); !got.Asking || !strings.Contains(got.AskedFor, "come back") {
			t.Errorf("the snapshot does not say that a restart is asked for: %+v", got)
		}

		// Restarted in the midst of it: the second ask, then none.
		a.leave()
		a.is(true, Standby)
		b := s.process(t, "b")
		b.lead()
		sleep(6 * time.Minute)
		b.is(false, Deaf)
		b.leave()
		c := s.process(t, "c")
		c.lead()
		for range 20 {
			sleep(time.Minute)
			c.is(true, Pending, Late, Unrecoverable)
		}
		c.is(true, Unrecoverable)
		if got := c.Snapshot(); got.AsksSpent != 2 || got.Asking || !strings.Contains(got.Remedy, "kubectl -n system annotate lease steadwatch-canary "+annotationAsks+"-") {
			t.Errorf("unrecoverable: %+v", got)
		}

		// The fault ends; asks come back after ten minutes of hearing and not before.
		s.set(func(s *fakeServer) { s.frozen = false })
		sleep(time.Second)
		c.is(true, Hearing)
		sleep(9 * time.Minute)
		if got := readAsks(s.stored()); got != 2 {
			t.Errorf("%d asks spent after 9 min of hearing, want 2", got)
		}
		sleep(3 * time.Minute)
		if got := readAsks(s.stored()); got != 0 {
			t.Errorf("%d asks spent after 12 min of hearing, want 0", got)
		}
		c.leave()
	})
}

// Watches that are ended early, or with an error, on each connection: late for as
// long as it lasts, but no restart is asked for, since none would help.
func TestEndsAreAnswers(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old").Status()
	for name, tc := range map[string]struct {
		after time.Duration
		with  *metav1.Status
	}{
		"ended at once":     {},
		"ended after 1.2 s": {after: 1200 * time.Millisecond},
		"cut after 50 s":    {after: 50 * time.Second},
		"410 in the stream": {with: &gone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				a := s.process(t, "a")
				a.lead()
				sleep(90 * time.Second)
				a.is(true, Hearing)
				s.set(func(s *fakeServer) { s.ends, s.endAfter, s.endWith = true, tc.after, tc.with })
				s.cut()
				for range 30 {
					sleep(time.Minute)
					a.is(true, Hearing, Late)
				}
				a.is(true, Late)
				if got := readAsks(s.stored()); got != 0 {
					t.Errorf("%d restarts asked for, want none", got)
				}
				s.set(func(s *fakeServer) { s.ends = false })
				sleep(3 * time.Minute)
				a.is(true, Hearing)
				a.leave()
			})
		})
	}
}

// R44: a proxy that holds bytes back for 90 s. Late, never deaf, one reconnect.
func TestR44Lag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		p := s.process(t, "a")
		p.lead()
		sleep(time.Second)
		s.set(func(s *fakeServer) { s.lag = 50 * time.Second })
		sleep(10 * time.Minute)
		p.is(true, Hearing)
		s.set(func(s *fakeServer) { s.lag = 90 * time.Second })
		sleep(3 * time.Minute)
		for range 60 {
			sleep(30 * time.Second)
			p.is(true, Late)
		}
		if p.lates() != 1 || s.cuts != 1 {
			t.Errorf("called %d times, connection closed %d times, want once", p.lates(), s.cuts)
		}
		if got := p.Snapshot().RoundTripSeconds; got < 89 || got > 91 {
			t.Errorf("round trip of %v s, want 90", got)
		}
		s.set(func(s *fakeServer) { s.lag = 0 })
		sleep(2 * time.Minute)
		p.is(true, Hearing)
		p.leave()
	})
}

// A process that was stopped finds its events unread when it goes on.
func TestStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		p := s.process(t, "a")
		p.lead()
		sleep(61 * time.Second)
		s.set(func(s *fakeServer) { s.frozen = true })
		sleep(3 * time.Minute)
		p.is(true, Late)
		var stopped atomic.Bool
		s.set(func(s *fakeServer) {
			s.before = func(string) {
				if stopped.CompareAndSwap(false, true) {
					time.Sleep(time.Hour) // the loop stands still, as all of the process would
				}
			}
		})
		sleep(time.Hour + time.Minute)
		if !stopped.Load() {
			t.Fatal("nothing stood still")
		}
		p.is(true, Late)
		s.set(func(s *fakeServer) { s.frozen = false })
		sleep(time.Second)
		p.is(true, Hearing)
		p.leave()
	})
}

// An API server that was away, with a write outstanding: what comes back late is not
// deafness, however slowly the watch finds its way back.
func TestR41OutageIsNotDeafness(t *testing.T) {
	all := []string{"get", "update", "list", "watch"}
	tests := map[string]struct {
		reason              string
		before, away, after time.Duration // silent, away, silent still
		refused             bool          // watches are refused for the first 50 s after
		verbs               []string      // that fail meanwhile
	}{
		"Refused": {"writes work at once, watches later", 5 * time.Second, time.Hour, 50 * time.Second, true, all},
		"Long":    {"an hour away is no hour of deafness", 5 * time.Second, time.Hour, 4 * time.Minute, false, all},
		"Restart": {"the watch gets an interval to come back, whatever was before", 4*time.Minute + 30*time.Second, 35 * time.Second, 55 * time.Second, false, all},
		"Writes":  {"also where watches were not refused but went on in silence", 4*time.Minute + 30*time.Second, 35 * time.Second, 55 * time.Second, false, []string{"get", "update"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				p := s.process(t, "a")
				p.lead()
				sleep(59 * time.Second)
				s.set(func(s *fakeServer) { s.frozen = true })
				sleep(time.Second + tc.before)
				refused := apierrors.NewServiceUnavailable("starting")
				s.set(func(s *fakeServer) {
					for _, verb := range tc.verbs {
						s.fail[verb] = refused
					}
				})
				if len(tc.verbs) == len(all) {
					s.cut()
				}
				sleep(tc.away)
				s.set(func(s *fakeServer) {
					clear(s.fail)
					if tc.refused {
						s.fail["watch"] = refused
					}
				})
				for range tc.after / (5 * time.Second) {
					sleep(5 * time.Second)
					p.is(true, Hearing, Late, Unwritable)
				}
				if n := p.Snapshot().Writes[Failed]; n == 0 {
					t.Error("no write failed: this shows nothing")
				}
				s.set(func(s *fakeServer) { clear(s.fail); s.frozen = false })
				sleep(2 * time.Minute)
				p.is(true, Hearing)
				p.leave()
			})
		})
	}
}

// Terms that end say nothing of what was written in them.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		for i := range 100 {
			name := []string{"a", "b"}[i%2]
			p := s.process(t, name)
			for _, term := range []time.Duration{0, time.Millisecond, time.Second, 59 * time.Second, 121 * time.Second} {
				p.lead()
				time.Sleep(term + time.Duration(i)*time.Millisecond)
				p.is(true, Pending, Hearing, Standby)
				// Every other term ends in the midst of a silence.
				s.set(func(s *fakeServer) { s.frozen = i%2 == 1 })
				time.Sleep(time.Duration(i) * time.Second)
				p.leave()
				s.set(func(s *fakeServer) { s.frozen = false })
				for range 2 {
					p.is(true, Standby)
					if got := p.Snapshot(); got.WaitingSeconds != 0 || got.Message != "" {
						t.Fatalf("round %d: after the term: %+v", i, got)
					}
					time.Sleep(10 * time.Minute)
				}
			}
			if got := p.Snapshot(); i%2 == 0 && (p.late != 0 || got.Reconnects != 0) || got.Rewinds != 0 || got.AsksSpent != 0 {
				t.Fatalf("round %d: late %d times, %+v", i, p.late, got)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	good := func() Config { return Config{Namespace: "n", Identity: "i"} }
	tests := map[string]struct {
		reason string
		change func(*Config)
		want   string
	}{
		"NoIdentity": {"rivals could not be told apart", func(c *Config) { c.Identity = "" }, "Config.Identity"},
		"Negative":   {"no such interval", func(c *Config) { c.Interval = -1 }, "Config.Interval"},
		"FailBefore": {"deaf before late", func(c *Config) { c.FailAfter = time.Second }, "Config.FailAfter"},
		"Defaults":   {"nothing else is needed", func(*Config) {}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			tc.change(&cfg)
			_, err := newCanary(cfg, nil, nil, nil, nil)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want one that names %q", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := New(Config{Namespace: "n", Identity: "i"}); err == nil || !strings.Contains(err.Error(), "Config.Client") {
		t.Errorf("no client: %v", err)
	}
}
