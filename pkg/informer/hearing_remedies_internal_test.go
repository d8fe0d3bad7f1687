package informer

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server's timeout does not get here: a bound of our own ends the watch. No
// question and no audit helps.
func TestR29WatchDoesNotOutliveItsTimeout(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{ProbeAfter: -1, AuditInterval: -1, PollInterval: -1}, a, func(i *heardInformer) {
		before := a.counts()
		a.freezeOpen()
		a.put("x")
		i.within(611*time.Second, "what was missed", i.current)
		i.expectRestarts(map[string]uint64{restartTimeout: 1})
		i.expectState(StateHearing)
		if after := a.counts(); after["list"] != before["list"] || after["watchlist"] != before["watchlist"] {
			t.Errorf("listed: %v, then %v", before, after)
		}
	})
}

// Whatever ends watches at once is not answered by a request each time, and changes
// arrive all the same.
func TestR40BrakeOnWatchesThatEnd(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		set    func(*fakeAPI)
		poll   time.Duration
	}{
		"after 1.2 s":              {"client-go watches again at once, for ever", func(a *fakeAPI) { a.endAfter, a.frozen = 1200*time.Millisecond, true }, 0},
		"at once":                  {"client-go lists again", func(a *fakeAPI) { a.endAfter, a.frozen = time.Millisecond, true }, 0},
		"after 1.2 s, no polling":  {"the same", func(a *fakeAPI) { a.endAfter, a.frozen = 1200*time.Millisecond, true }, -1},
		"410":                      {"client-go repeats a WatchList at once, for ever", func(a *fakeAPI) { a.refuse = gone("watch", "watchlist") }, 0},
		"410 on watches":           {"client-go lists again each time", func(a *fakeAPI) { a.refuse = gone("watch") }, 0},
		"410 on watches, no polls": {"the same", func(a *fakeAPI) { a.refuse = gone("watch") }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{PollInterval: test.poll}, a, func(i *heardInformer) {
				a.with(test.set)
				a.with(func(a *fakeAPI) {
					for _, s := range a.streams {
						s.cancel()
					}
				})
				i.wait(2 * time.Minute)
				before := a.counts()
				const long = 30 * time.Minute
				for end, n := time.Now().Add(long), 0; time.Now().Before(end); n++ {
					a.put("x")
					if test.poll == 0 {
						i.within(40*time.Second, "a change", i.current)
					}
					i.wait(30 * time.Second)
				}
				after, requests := a.counts(), 0
				for kind, n := range after {
					if kind != "question" {
						requests += n - before[kind]
					}
				}
				// Two lists, a fetch and a watch every 15 s; without polling less.
				if most := int(long / (4 * time.Second)); requests > most {
					t.Errorf("%s: %d requests in %s, want at most %d: %v, then %v", test.reason, requests, long, most, before, after)
				}
				a.with(func(a *fakeAPI) { a.endAfter, a.frozen, a.refuse = 0, false, nil })
				i.within(6*time.Minute, "all is well again", func() bool { return i.Snapshot().State == StateHearing && i.current() })
			})
		})
	}
}

// Something on the way resets idle streams: watched again from there, without a list.
// One that breaks at once is another matter: the Reflector is told, and lists.
func TestStreamsThatBreak(t *testing.T) {
	broken := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, string(brokenWatch)).
		AsObject(errors.New("http2: client connection lost")).(*metav1.Status)
	for name, test := range map[string]struct {
		after time.Duration
		lists bool
	}{
		"when idle": {20 * time.Second, false},
		"at once":   {20 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				i.wait(time.Minute)
				before := a.counts()
				a.with(func(a *fakeAPI) {
					a.endAfter, a.endWith = test.after, broken
					for _, s := range a.streams {
						s.cancel()
					}
				})
				for range 20 {
					i.wait(27 * time.Second)
					a.put("x")
					i.within(40*time.Second, "a change", i.current)
				}
				after := a.counts()
				if listed := after["list"]+after["watchlist"] > before["list"]+before["watchlist"]; listed != test.lists {
					t.Errorf("requests %v, then %v: listed %v, want %v", before, after, listed, test.lists)
				}
			})
		})
	}
}

// etcd is set back: what is newer than it is dropped, what it has again comes back.
func TestR34Rewind(t *testing.T) {
	for name, c := range map[string]HearingConfig{"by an audit": {ProbeAfter: -1}, "asked for": {ProbeAfter: -1, AuditInterval: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("old")
			a.put("lost")
			kept := a.revision
			hearInBubble(t, c, a, func(i *heardInformer) {
				told := 0
				i.rewindListeners.all = append(i.rewindListeners.all, func() { told++ })
				a.remove("lost")
				for n := range 50 {
					a.put(fmt.Sprintf("new%d", n%5))
				}
				i.within(time.Second, "all of it", i.current)
				before := a.counts()
				a.with(func(a *fakeAPI) {
					for name, cm := range a.objects {
						if a.number(cm.ResourceVersion) > kept {
							delete(a.objects, name)
						}
					}
					a.objects["lost"] = a.history[1].event.Object.(*corev1.ConfigMap)
					a.history, a.revision = a.history[:2], kept
				})
				i.mu.Lock()
				clear(i.last)
				i.mu.Unlock()
				if c.AuditInterval > 0 {
					i.parts[0].listWatch.ear.hearing.AuditNow("the canary")
				}
				i.within(6*time.Minute, "what etcd has now", i.current)
				if after := a.counts(); after["list"] != before["list"] || after["watchlist"] != before["watchlist"]+1 {
					t.Errorf("requests %v, then %v", before, after)
				}
				if told != 1 {
					t.Errorf("told of %d rewinds", told)
				}
				a.put("old")
				i.within(time.Second, "a change of the new history", i.current)
				i.expectRestarts(map[string]uint64{restartRewind: 1})
				i.expectState(StateHearing)
			})
		})
	}
}

// A proxy that holds frames back: late is not deaf. Once the lag is known nothing is
// opened again for it, and where polling is faster polling it is.
func TestR44SlowWatch(t *testing.T) {
	for name, test := range map[string]struct {
		delay    time.Duration
		state    State
		restarts uint64
	}{
		"slower than the grace": {12 * time.Second, StateDelayed, 4},
		"slower than polling":   {40 * time.Second, StatePolling, 4},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			a.delay = test.delay
			hearInBubble(t, HearingConfig{PollInterval: 30 * time.Second}, a, func(i *heardInformer) {
				i.within(2*time.Minute, "synced", i.HasSynced)
				const changes = 400
				known := 0
				for range changes {
					a.put("x")
					i.wait(3 * time.Second)
					if i.Snapshot().State == test.state {
						known++
					}
				}
				if known < changes/3 {
					t.Errorf("%s at %d of %d changes", test.state, known, changes)
				}
				s := i.Snapshot().Restarts
				if n := s[restartDeaf] + s[restartDelayed]; n > test.restarts {
					t.Errorf("%d restarts: %v", n, s)
				}
				a.with(func(a *fakeAPI) { a.delay = 0 })
				i.within(17*time.Minute, "well again", func() bool { // a watch and an audit later
					a.put("x")
					return i.Snapshot().State == StateHearing
				})
			})
		})
	}
}

// An event that never arrives although later ones do is found by two audits, and
// delivered.
func TestAuditFindsWhatAWatchHasLeftOut(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) {
			a.revision++
			cm := a.objects["x"].DeepCopy()
			cm.ResourceVersion = a.rv(a.revision)
			a.objects["x"] = cm // and no event
		})
		a.put("y")
		i.within(13*time.Minute, "the copy", i.current)
		i.within(time.Minute, "well again", func() bool { return i.Snapshot().State == StateHearing })
	})
}
