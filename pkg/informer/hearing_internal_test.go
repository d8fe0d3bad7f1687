package informer

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A watch that delivers nothing any more, while the API server tells others, is
// opened again and nothing is listed.
func TestR25R28FrozenWatchIsReopened(t *testing.T) {
	for name, opaque := range map[string]bool{"comparable revisions": false, "opaque revisions": true} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.opaque = opaque
			a.put("x")
			hearInBubble(t, HearingConfig{AuditInterval: -1}, a, func(i *heardInformer) {
				before := a.counts()
				const rounds = 8 // more than the brake would let pass if it did not forget
				for range rounds {
					a.freezeOpen()
					a.put("x")
					a.put("y")
					i.within(41*time.Second, "what was missed", i.current)
					i.wait(3 * time.Minute) // the brake
				}
				i.wait(time.Second)
				i.expectState(StateHearing)
				i.expectRestarts(map[string]uint64{restartDeaf: rounds})
				after := a.counts()
				if after["list"] != before["list"] || after["watchlist"] != before["watchlist"] || after["watch"] != before["watch"]+rounds {
					t.Errorf("requests before %v, after %v", before, after)
				}
			})
		})
	}
}

// Long stretches in which nothing happens, a lot does, and little does.
func TestR31NoFalseAlarm(t *testing.T) {
	for name, every := range map[string]time.Duration{"quiet": 0, "busy": 700 * time.Millisecond, "now and then": 47 * time.Second} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				before := a.counts()
				const long = 40 * time.Minute
				for end := time.Now().Add(long); time.Now().Before(end); {
					if every == 0 {
						i.wait(time.Minute)
						continue
					}
					a.put("x")
					time.Sleep(every)
				}
				i.wait(time.Second)
				i.expectState(StateHearing)
				i.expectRestarts(nil)
				after := a.counts()
				if n := after["list"] + after["watchlist"] - before["list"] - before["watchlist"]; n != 0 {
					t.Errorf("listed %d times", n)
				}
				if n := after["watch"] - before["watch"]; n > 9 {
					t.Errorf("%d watches in %s", n, long)
				}
				if n := after["audit"] - before["audit"]; n < 7 || n > 9 {
					t.Errorf("%d audits in %s", n, long)
				}
				if !i.current() {
					t.Error("the copy is behind")
				}
			})
		})
	}
}

// An API server that does not answer at all makes nobody deaf.
func TestUnreachableIsNotDeaf(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.down = true })
		i.wait(4 * time.Minute)
		i.expectRestarts(nil)
		a.put("x")
		a.with(func(a *fakeAPI) { a.down = false })
		i.within(2*time.Minute, "what has happened meanwhile", i.current)
		i.expectRestarts(nil)
	})
}

// No watch delivers, new ones neither: the copy follows by polling, and streams
// again as soon as a watch delivers.
func TestR26PollingWhileNoWatchWorks(t *testing.T) {
	a := newFakeAPI()
	for _, name := range []string{"x", "y", "z"} {
		a.put(name)
	}
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		before := a.counts()
		a.with(func(a *fakeAPI) { a.frozen, a.mute = true, true })
		a.freezeOpen()
		a.put("x")
		i.within(70*time.Second, "the first change", i.current)
		i.expectState(StatePolling)
		for n := range 20 {
			switch n % 4 {
			case 0:
				a.put("x")
			case 1:
				a.put("new")
			case 2:
				a.remove("new")
			case 3: // more than are fetched one by one
				for m := range 30 {
					a.put("many" + string(rune('a'+m)))
				}
			}
			i.within(16*time.Second, "a change while polling", i.current)
		}
		a.with(func(a *fakeAPI) { a.frozen, a.mute = false, false })
		i.within(35*time.Second, "streaming again", func() bool { return i.Snapshot().State == StateHearing })
		a.put("y")
		i.within(time.Second, "a change by the watch", i.current)
		if after := a.counts(); after["watchlist"] != before["watchlist"] {
			t.Errorf("the Reflector has listed: %v, then %v", before, after)
		}
		if i.deleted["new"] != 5 {
			t.Errorf("%d deletes of an object that was deleted 5 times", i.deleted["new"])
		}
		i.wait(5 * time.Minute)
		i.expectState(StateHearing)
	})
}

// A process that is started while no watch works.
func TestR26StartWhileNoWatchWorks(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	a.frozen, a.mute = true, true
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		i.within(35*time.Second, "synced", i.HasSynced)
		i.within(15*time.Second, "polling", func() bool { return i.Snapshot().State == StatePolling })
		a.put("y")
		i.within(16*time.Second, "a change", i.current)
		a.with(func(a *fakeAPI) { a.frozen, a.mute = false, false })
		i.within(35*time.Second, "streaming again", func() bool { return i.Snapshot().State == StateHearing })
	})
}

// Of an empty kind a WatchList without its end delivers nothing. That is no reason to
// poll while watches work.
func TestSilentWatchListOfAnEmptyKind(t *testing.T) {
	a := newFakeAPI()
	a.noEnd = true
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		i.within(35*time.Second, "synced", i.HasSynced)
		i.wait(20 * time.Second)
		i.expectState(StateHearing)
		i.expectRestarts(map[string]uint64{restartWatchList: 1})
	})
}

// A WatchList that does not end is replaced by a list.
func TestR32WatchListHasToEnd(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		set    func(*fakeAPI)
		within time.Duration
		adding time.Duration // time between new objects
	}{
		"no end, more and more": {"new objects are ADDED too", func(a *fakeAPI) { a.noEnd = true }, 70 * time.Second, 2 * time.Second},
		"no end":                {"all objects, and then nothing", func(a *fakeAPI) { a.noEnd = true }, 35 * time.Second, 0},
		"no objects":            {"the same with nothing to list", func(a *fakeAPI) { a.noEnd, a.objects = true, nil }, 35 * time.Second, 0},
		"cut off":               {"it ends cleanly before its end", func(a *fakeAPI) { a.noEnd, a.endAfter = true, 1200*time.Millisecond }, 5 * time.Second, 0},
		"refused":               {"410 would be repeated without a pause", func(a *fakeAPI) { a.refuse = gone("watchlist") }, 5 * time.Second, 0},
		"refused twice":         {"by lists that are not the newest too", func(a *fakeAPI) { a.refuse = gone("watchlist", "watch") }, 5 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			test.set(a)
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				last := time.Now()
				i.within(test.within, test.reason, func() bool {
					if test.adding > 0 && time.Since(last) >= test.adding {
						last = time.Now()
						a.put(last.Format(time.TimeOnly))
					}
					return i.HasSynced()
				})
				i.wait(5 * time.Minute)
				if n := a.count("watchlist"); n > 30 {
					t.Errorf("%d WatchLists in 5 min", n)
				}
			})
		})
	}
}

func gone(kinds ...string) func(string) error {
	return func(kind string) error {
		for _, k := range kinds {
			if k == kind {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old"}}
			}
		}
		return nil
	}
}
