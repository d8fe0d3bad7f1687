package informer

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// A watch that is opened again for being late is given the time that this takes, and
// not that of any other.
func TestDelayedWatchIsGivenTime(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	a.delay = 7 * time.Second
	hearInBubble(t, HearingConfig{AuditInterval: 30 * time.Second}, a, func(i *heardInformer) {
		i.within(2*time.Minute, "synced", i.HasSynced)
		delayed := false
		for range 200 {
			a.put("x")
			i.wait(3 * time.Second)
			s := i.Snapshot().State
			if delayed = delayed || s == StateDelayed; s == StatePolling {
				t.Fatal("polling, although news arrive in half the time that it takes")
			}
		}
		if !delayed {
			t.Error("never delayed")
		}
	})
}

// What has a longer grace than others when it is asked for has it when it is answered.
func TestAnswerDoesNotShortenTheGrace(t *testing.T) {
	a := newFakeAPI()
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		now, l := time.Now(), i.parts[0].listWatch
		until := now.Add(15 * time.Second)
		s := &session{l: l, e: l.ear, opening: &request{cancel: func() {}, began: now}, reopened: now, graceUntil: until}
		s.took(watch.NewFake())
		if s.graceUntil.Before(until) {
			t.Errorf("%s of 15 s are left", s.graceUntil.Sub(now))
		}
	})
}

// However often audits are asked for, there is one at a time and one more.
func TestAuditNowIsBounded(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	slow := func(kind string) error {
		if kind == "audit" {
			time.Sleep(20 * time.Second)
		}
		return nil
	}
	a.refuse = slow
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		h := i.parts[0].listWatch.ear.hearing
		for range 600 {
			h.AuditNow("often")
			i.wait(100 * time.Millisecond)
		}
		if n := a.count("audit"); n != 3 {
			t.Errorf("%d audits of 20 s in a minute", n)
		}
		i.wait(time.Minute)
		before := a.count("audit")
		a.with(func(a *fakeAPI) { a.refuse = nil })
		for range 600 {
			h.AuditNow("often, and answered at once")
			i.wait(100 * time.Millisecond)
		}
		if n := a.count("audit") - before; n < 10 || n > 13 {
			t.Errorf("%d audits in a minute", n)
		}
		a.with(func(a *fakeAPI) { a.refuse = slow })
		i.wait(time.Minute)
		before = a.count("audit")
		h.AuditNow("once")
		i.wait(10 * time.Second)
		h.AuditNow("while that is under way, which has begun too early")
		i.wait(2 * time.Minute)
		if n := a.count("audit") - before; n != 2 {
			t.Errorf("%d audits, want 2", n)
		}
	})
}

// A ListerWatcher with a selector leaves out what audits hold. It is told for that,
// and not taken for deaf again and again.
func TestListerWatcherWithASelector(t *testing.T) {
	for name, others := range map[string]int{"one other": 1, "more than are fetched singly": 30} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.narrow = func(name string) bool { return !strings.HasPrefix(name, "other") }
			a.put("x")
			for n := range others {
				a.put(fmt.Sprint("other", n))
			}
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				const want = "Config.ListerWatcher does not list all that there is, for example not ns/other"
				told := func() bool {
					s := i.Snapshot()
					return s.State == StateDeaf && strings.HasPrefix(s.Message, want) && strings.HasSuffix(s.Message, "until the process is started anew")
				}
				i.within(20*time.Minute, want, told)
				before, restarts := a.counts(), i.Snapshot().Restarts
				for range 60 {
					a.put("x")
					a.put("other0")
					i.wait(time.Minute)
					if got, _, _ := i.Indexer().GetByKey("ns/x"); got.(interface{ GetResourceVersion() string }).GetResourceVersion() != a.objects["x"].ResourceVersion {
						t.Fatal("what is selected does not arrive")
					}
				}
				if !told() {
					t.Errorf("%+v", i.Snapshot())
				}
				i.expectRestarts(restarts)
				if after := a.counts(); after["audit"] != before["audit"] || after["question"] != before["question"] {
					t.Errorf("requests %v, then %v", before, after)
				}
				if n := strings.Count(i.log(), "Watch does not deliver"); n > 5 {
					t.Errorf("%d alarms", n)
				}
			})
		})
	}
}

// What is missed is fetched over the resource's own connection. If that is dead too
// polling waits for it no longer than for an audit.
func TestPollingDoesNotWaitForADeadConnection(t *testing.T) {
	for name, kind := range map[string]string{"singly": "get", "by a list": "list"} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				c := NewConnection(&rest.Config{Host: "http://api", Dial: dead})
				i.parts[0].listWatch.ear.connection = c
				a.with(func(a *fakeAPI) { a.frozen, a.mute, a.hangs = true, true, kind })
				a.freezeOpen()
				a.put("x")
				if kind == "list" {
					for n := range 2 * fetchSingly {
						a.put(fmt.Sprint("many", n))
					}
				}
				i.within(2*time.Minute, "the message", func() bool {
					s := i.Snapshot()
					return s.State == StateUnlistable || strings.Contains(s.Message, "polls fail")
				})
				conn := dial(t, c)
				i.wait(pageTimeout + 20*time.Second)
				if isOpen(conn) {
					t.Error("the connection is still in use")
				}
				conn.Close()
				a.with(func(a *fakeAPI) { a.hangs = "" })
				i.within(pageTimeout+20*time.Second, "the change", i.current)
				i.expectState(StatePolling)
			})
		})
	}
}

// A proxy that resets a WatchList in the middle, and a server that refuses in its
// stream: client-go lists.
func TestInitialEventsThatBreak(t *testing.T) {
	for name, status := range map[string]error{
		"reset":               apierrors.NewInternalError(fmt.Errorf("stream error: stream ID 5; INTERNAL_ERROR")),
		"410":                 apierrors.NewResourceExpired("too old"),
		"unavailable":         apierrors.NewServiceUnavailable("later"),
		"too many requests":   apierrors.NewTooManyRequests("later", 1),
		"too large a version": apierrors.NewTimeoutError("Too large resource version", 1),
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			a.noEnd, a.endAfter = true, 50*time.Millisecond
			s := status.(apierrors.APIStatus).Status()
			a.endWith = &s
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				i.wait(3 * time.Minute)
				if n := a.count("watchlist") + a.count("list"); n > 40 {
					t.Errorf("%d lists in 3 min", n)
				}
				a.with(func(a *fakeAPI) { a.noEnd, a.endAfter, a.endWith = false, 0, nil })
				i.within(2*time.Minute, "the copy", i.current)
				i.within(time.Minute, "well", func() bool { return i.Snapshot().State == StateHearing })
			})
		})
	}
}

// The namespaces of an Informer share connections. What one of them leaves behind is
// nothing that the others' watches are to blame for.
func TestAnotherNamespaceCutsTheConnection(t *testing.T) {
	for name, every := range map[string]time.Duration{"now and then": 4 * time.Second, "at once": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{PollInterval: 5 * time.Second}, a, func(i *heardInformer) {
				c := NewConnection(&rest.Config{Host: "http://api", Dial: dead})
				i.parts[0].listWatch.ear.connection = c
				i.wait(20 * time.Second)
				a.with(func(a *fakeAPI) {
					a.dial = func() net.Conn {
						conn, _ := c.dialer.DialContext(context.Background(), "tcp", "api:443")
						return conn
					}
					a.over = a.dial()
					for _, s := range a.streams {
						s.over = a.over
					}
				})
				defer c.Close()
				defer a.with(func(a *fakeAPI) { a.over = nil })
				before := a.counts()
				for n := range 100 {
					c.Close()
					i.wait(every)
					if s := i.Snapshot(); s.State != StateHearing {
						t.Fatalf("after %d: %q %q", n, s.State, s.Message)
					}
					if n%20 == 19 {
						a.put("x")
						i.within(time.Second, "a change", i.current)
					}
				}
				i.expectRestarts(nil)
				if after := a.counts(); after["list"]+after["watchlist"] != before["list"]+before["watchlist"] || after["watch"]-before["watch"] > 110 {
					t.Errorf("requests %v, then %v", before, after)
				}
			})
		})
	}
}

// Of thousands of objects that were deleted while the watch was deaf each is reported,
// soon, and no other.
func TestThousandsDeletedUnheard(t *testing.T) {
	a := newFakeAPI()
	const objects = 4000
	for n := range objects {
		a.put(fmt.Sprint("o", n))
	}
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		i.within(10*time.Second, "synced", i.current)
		a.with(func(a *fakeAPI) { a.frozen, a.mute = true, true })
		a.freezeOpen()
		for n := range objects - 1 {
			a.remove(fmt.Sprint("o", n))
		}
		a.put(fmt.Sprint("o", objects-1))
		i.within(100*time.Second, "the deletes", i.current)
		i.wait(time.Second)
		i.mu.Lock()
		defer i.mu.Unlock()
		if len(i.deleted) != objects-1 {
			t.Errorf("%d of %d deletes were told", len(i.deleted), objects-1)
		}
	})
}

// An object that is set back by itself, as no Kubernetes API server does: it is listed
// anew, and not for ever.
func TestObjectSetBackAlone(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	old := a.objects["x"]
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: time.Minute}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.objects["x"] = old })
		i.mu.Lock()
		clear(i.last)
		i.mu.Unlock()
		before := a.counts()
		i.within(2*time.Minute, "the object", i.current)
		i.wait(20 * time.Minute)
		i.expectState(StateHearing)
		i.expectRestarts(map[string]uint64{restartRewind: 1})
		if after := a.counts(); after["watchlist"]+after["list"]-before["watchlist"]-before["list"] > 1 {
			t.Errorf("requests %v, then %v", before, after)
		}
	})
}

// While polling the API server forgets the past faster than it is polled: watches are
// refused with 410, and so are the second pages of lists.
func TestPollingWhileThePastIsForgotten(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.refuse, a.mute = gone("watch"), true })
		a.freezeOpen()
		a.put("x")
		i.within(70*time.Second, "the change", i.current)
		for n := range 20 {
			for m := range 30 {
				a.put(fmt.Sprint("y", n, "-", m))
			}
			i.within(16*time.Second, "a change", i.current)
		}
		i.expectState(StatePolling)
		a.with(func(a *fakeAPI) { a.refuse, a.mute = nil, false })
		i.within(35*time.Second, "well", func() bool { return i.Snapshot().State == StateHearing })
		a.put("x")
		i.within(time.Second, "the watch", i.current)
	})
}

// A list without a revision that means anything, as of an aggregated API server: the
// watch begins anywhere, and what it brings is believed.
func TestListWithoutARevision(t *testing.T) {
	for name, revision := range map[string]string{"none": "", "zero": "0"} {
		for how, fault := range map[string]func(*fakeAPI){
			"quiet":  func(*fakeAPI) {},
			"frozen": func(a *fakeAPI) { a.freezeOpen() },
			"dead":   func(a *fakeAPI) { a.freezeOpen(); a.with(func(a *fakeAPI) { a.frozen, a.mute = true, true }) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				a := newFakeAPI()
				a.put("x")
				a.put("y")
				a.listRV = &revision
				a.refuse = only("watchlist", apierrors.NewBadRequest("sendInitialEvents is forbidden for watch"))
				hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
					i.wait(10 * time.Minute)
					i.expectState(StateHearing)
					i.expectRestarts(nil)
					fault(a)
					a.put("x")
					a.remove("y")
					i.within(80*time.Second, "a change and a delete", i.current)
					for range 10 {
						a.put("x")
						a.put("z")
						i.within(80*time.Second, "a change", i.current)
						a.remove("z")
						i.wait(time.Minute)
					}
				})
			})
		}
	}
}

// One that never had a revision, of a kind to which nothing happens: only audits can
// tell what a watch misses then.
func TestDeafWithoutARevision(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	none := ""
	a.listRV, a.frozen = &none, true
	a.refuse = only("watchlist", apierrors.NewBadRequest("sendInitialEvents is forbidden for watch"))
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		a.put("x")
		i.within(7*time.Minute, "the change", i.current)
	})
}
