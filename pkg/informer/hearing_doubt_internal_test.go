package informer

import (
	"testing"
	"time"
)

// hold makes requests of a kind wait for their answer until release is called.
func hold(a *fakeAPI, kind string) (release func()) {
	held := make(chan struct{})
	a.with(func(a *fakeAPI) {
		a.refuse = func(k string) error {
			if k == kind {
				<-held
			}
			return nil
		}
	})
	return func() {
		a.with(func(a *fakeAPI) { a.refuse = nil })
		close(held)
	}
}

func cutOff(a *fakeAPI) {
	a.with(func(a *fakeAPI) {
		for _, s := range a.streams {
			s.cancel()
		}
	})
}

// leaveOut changes an object and makes no event of it.
func leaveOut(a *fakeAPI, name string) {
	a.with(func(a *fakeAPI) {
		a.revision++
		cm := a.objects[name].DeepCopy()
		cm.ResourceVersion = a.rv(a.revision)
		a.objects[name] = cm
	})
}

// That a watch was opened again for outliving its timeout is nothing to hold against
// the next one: if that goes silent too it is opened again, and not given up.
func TestDeafAfterATimeout(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: -1}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.noMarks = true })
		a.freezeOpen()
		i.within(611*time.Second, "another watch", func() bool { return i.Snapshot().Restarts[restartTimeout] == 1 })
		i.wait(time.Minute)
		a.freezeOpen()
		a.put("x")
		i.within(41*time.Second, "what was missed", i.current)
		i.wait(time.Minute)
		i.expectState(StateHearing)
		i.expectRestarts(map[string]uint64{restartTimeout: 1, restartDeaf: 1})
	})
}

// Watches are not so much as answered: as silent as one that delivers nothing.
func TestWatchesAreNotAnswered(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: -1}, a, func(i *heardInformer) {
		i.wait(15 * time.Second)
		release := hold(a, "watch")
		cutOff(a)
		a.put("x")
		i.within(50*time.Second, "a change", i.current)
		i.expectState(StatePolling)
		release()
		i.within(35*time.Second, "streaming again", func() bool {
			a.put("x")
			return i.Snapshot().State == StateHearing
		})
	})
}

// The same without polling: no polling, and in the end a watch.
func TestWatchesAreNotAnsweredAndNoPolling(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{PollInterval: -1}, a, func(i *heardInformer) {
		i.wait(15 * time.Second)
		release := hold(a, "watch")
		cutOff(a)
		a.put("x")
		i.within(time.Minute, "deaf", func() bool { return i.Snapshot().State == StateDeaf })
		before := a.counts()
		i.wait(10 * time.Minute)
		i.expectState(StateDeaf)
		after := a.counts()
		if n := after["watch"] - before["watch"]; n < 2 || n > 10 {
			t.Errorf("%d watches in 10 min", n)
		}
		if n := after["audit"] - before["audit"]; n > 3 {
			t.Errorf("%d audits in 10 min", n)
		}
		release()
		i.within(6*time.Minute, "hearing again", func() bool { return i.current() && i.Snapshot().State == StateHearing })
	})
}

// What a watch has left out and passed comes by a list if there is no polling.
func TestLeftOutAndNoPolling(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{PollInterval: -1}, a, func(i *heardInformer) {
		before := a.counts()
		leaveOut(a, "x")
		a.put("y")
		i.within(13*time.Minute, "the copy", i.current)
		i.wait(10 * time.Minute)
		i.expectState(StateHearing)
		i.expectRestarts(map[string]uint64{restartDeaf: 1})
		if after := a.counts(); after["watchlist"] != before["watchlist"]+1 {
			t.Errorf("requests %v, then %v", before, after)
		}
	})
}

// A watch that was opened when the brake allowed, and that delivers, is not deaf.
func TestHearingAfterTheBrake(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{ProbeAfter: -1, AuditInterval: -1, PollInterval: -1}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.endAfter, a.frozen = 1200*time.Millisecond, true })
		cutOff(a)
		i.within(20*time.Second, "deaf", func() bool { return i.Snapshot().State == StateDeaf })
		a.with(func(a *fakeAPI) { a.endAfter, a.frozen = 0, false })
		i.within(40*time.Second, "a watch that delivers", func() bool {
			a.put("x")
			i.wait(100 * time.Millisecond)
			return i.current()
		})
		i.expectState(StateHearing)
		if s := i.Snapshot().Restarts; s[restartEarly] != 1 || s[restartDeaf] != 0 {
			t.Errorf("restarts %v", s)
		}
	})
}

// What is found while a watch is being opened is judged when it has had its time.
func TestFoundWhileOpening(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{ProbeAfter: -1, AuditInterval: time.Hour}, a, func(i *heardInformer) {
		i.wait(15 * time.Second)
		release := hold(a, "watch")
		cutOff(a)
		a.put("x")
		hearing := i.parts[0].listWatch.ear.hearing
		hearing.AuditNow("the first")
		i.wait(8 * time.Second) // opening for 8 s, x has been missing for as long
		a.with(func(a *fakeAPI) {
			a.objects["y"] = a.objects["x"].DeepCopy()
			a.objects["y"].Name = "y"
			delete(a.objects, "x")
		})
		hearing.AuditNow("the second") // y is missing, x gone
		i.within(20*time.Second, "polling", func() bool { return i.Snapshot().State == StatePolling })
		release()
	})
}

// API servers of two histories behind one address: found once in a while, and listed
// anew, not asked again and again.
func TestRewindWhilePolling(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.frozen, a.mute = true, true })
		a.freezeOpen()
		a.put("x")
		i.within(70*time.Second, "polling", i.current)
		i.wait(time.Second)
		i.parts[0].listWatch.ear.rewoundAt = time.Now()
		a.with(func(a *fakeAPI) { a.revision = 100 })
		before := a.count("audit")
		i.wait(20 * time.Second)
		if n := a.count("audit") - before; n > 2 {
			t.Errorf("%d audits in 20 s", n)
		}
		i.within(40*time.Second, "listed anew", func() bool { return i.Snapshot().Restarts[restartRewind] == 1 })
	})
}

// A watch that is opened from before polling tells how things have come to be as they
// are. Who was told that an object is gone is not told that it is there.
func TestDeletedWhilePollingStaysDeleted(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	a.put("y")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.frozen, a.mute = true, true })
		a.freezeOpen()
		a.put("x")
		i.within(70*time.Second, "polling", i.current)
		a.put("y")
		a.remove("y")
		i.within(16*time.Second, "it is gone", i.current)
		a.with(func(a *fakeAPI) { a.frozen, a.mute = false, false })
		i.within(35*time.Second, "streaming again", func() bool { return i.Snapshot().State == StateHearing })
		i.wait(time.Second)
		i.mu.Lock()
		defer i.mu.Unlock()
		if n := i.deleted["y"]; n != 1 || !i.current() {
			t.Errorf("deleted once, %d times for handlers", n)
		}
		if n := i.Snapshot().Restarts[restartPolling]; n < 2 || n > 5 {
			t.Errorf("%d watches tried while polling", n)
		}
	})
}

// Changes of a quiet kind that are left out are fetched even if a watch shows that it
// works at that very moment.
func TestWatchIsFasterThanTheFetch(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: time.Minute}, a, func(i *heardInformer) {
		i.wait(15 * time.Second)
		a.with(func(a *fakeAPI) { a.noMarks = true })
		cutOff(a)
		leaveOut(a, "x")
		release := hold(a, "get")
		i.within(5*time.Minute, "a fetch", func() bool { return a.count("get") > 0 })
		a.put("y")
		i.wait(time.Second)
		i.expectState(StateHearing)
		release()
		i.within(12*time.Second, "what was left out", i.current)
	})
}

// Whatever ends idle streams after a while is no reason to list, nor for the brake.
func TestWatchesThatLiveAWhile(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		i.wait(15 * time.Second)
		before := a.counts()
		a.with(func(a *fakeAPI) { a.endAfter = 20 * time.Second })
		cutOff(a)
		for range 30 {
			i.wait(20 * time.Second)
			i.expectState(StateHearing)
		}
		i.expectRestarts(nil)
		if after := a.counts(); after["list"] != before["list"] || after["watchlist"] != before["watchlist"] {
			t.Errorf("listed: %v, then %v", before, after)
		}
	})
}

// The first remedy for a watch that delivers late is another one, on a new connection.
func TestDelayedIsReopened(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: time.Minute, PollInterval: 30 * time.Second}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.delay = 12 * time.Second })
		i.wait(15 * time.Second)
		cutOff(a)
		for range 100 {
			a.put("x")
			i.wait(3 * time.Second)
		}
		i.expectState(StateDelayed)
		if s := i.Snapshot().Restarts; s[restartDelayed] < 1 || s[restartDelayed] > 2 || s[restartDeaf] > 1 || s[restartPolling] != 0 {
			t.Errorf("restarts %v", s)
		}
	})
}

// The good versions in the cache are of a history that is no more.
func TestRewindLetsNothingStandIn(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: time.Minute}, a, func(i *heardInformer) {
		q := i.parts[0].listWatch.ear.quarantine
		a.with(func(a *fakeAPI) { a.revision = 50 })
		i.within(70*time.Second, "listed anew", func() bool { return i.Snapshot().Restarts[restartRewind] == 1 })
		i.wait(time.Second)
		if !q.rewound {
			t.Error("good versions would stand in")
		}
	})
}

// What polling has fetched may be newer than its list. The watch that follows tells
// of the versions before, and handlers are not taken back.
func TestNeverBackAfterPolling(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.frozen, a.mute = true, true })
		a.freezeOpen()
		a.put("x")
		i.within(70*time.Second, "polling", i.current)
		before := a.count("get")
		release := hold(a, "get")
		a.put("x")
		i.within(16*time.Second, "a fetch", func() bool { return a.count("get") > before })
		a.put("x")
		a.put("x")
		a.with(func(a *fakeAPI) { a.frozen, a.mute = false, false })
		release()
		i.within(time.Second, "the newest", i.current)
		i.within(35*time.Second, "streaming again", func() bool { return i.Snapshot().State == StateHearing })
		i.wait(time.Second)
	})
}

// Nothing changes any more, in the whole cluster, and there are no bookmarks: a watch
// shows that it works by what polling has brought before.
func TestWatchShowsThatItWorksAtOnce(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.frozen, a.mute, a.noMarks = true, true, true })
		a.freezeOpen()
		a.put("x")
		i.within(70*time.Second, "polling", i.current)
		a.with(func(a *fakeAPI) { a.frozen, a.mute = false, false })
		i.within(35*time.Second, "streaming again", func() bool { return i.Snapshot().State == StateHearing })
	})
}

// While nothing of this kind changes the Reflector's revision follows all the same, or
// the next watch would begin at one that the API server has forgotten.
func TestQuietMovesOn(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: -1}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.noMarks, a.revision = true, a.revision+50 })
		i.wait(40 * time.Second)
		if got, want := i.parts[0].listWatch.ear.quarantine.store.LastStoreSyncResourceVersion(), a.rv(a.revision); got != want {
			t.Errorf("the copy is at %s, want %s", got, want)
		}
	})
}

// What was missing is gone again while there is no watch, nor may be one yet.
func TestWatchAfterNothingIsMissing(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: time.Hour, PollInterval: -1}, a, func(i *heardInformer) {
		i.wait(15 * time.Second)
		release := hold(a, "watch")
		cutOff(a)
		a.put("y")
		i.within(time.Minute, "deaf", func() bool { return i.Snapshot().State == StateDeaf })
		i.wait(22 * time.Second) // another two watches, and then the brake
		a.remove("y")
		i.parts[0].listWatch.ear.hearing.AuditNow("the test")
		i.wait(time.Second)
		release()
		i.within(time.Minute, "a watch that delivers", func() bool {
			a.put("x")
			i.wait(100 * time.Millisecond)
			return i.current()
		})
		i.expectState(StateHearing)
	})
}
