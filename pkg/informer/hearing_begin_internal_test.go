package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A process that starts while no watch works: filled within seconds, and polling a few
// more later, whether its WatchLists are not answered or say nothing.
func TestStartWhileNoWatchWorks(t *testing.T) {
	for name, set := range map[string]func(*fakeAPI){
		"accepted":     func(*fakeAPI) {},
		"not answered": func(a *fakeAPI) { a.hangs = "watchlist" },
		"no objects":   func(a *fakeAPI) { a.objects = nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			a.frozen, a.mute = true, true
			set(a)
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				i.within(1500*time.Millisecond, "synced", i.HasSynced) // a second has passed
				i.within(9*time.Second, "polling", func() bool { return i.Snapshot().State == StatePolling })
				if n := a.count("list"); n != 1 {
					t.Errorf("%d lists", n)
				}
				i.expectRestarts(map[string]uint64{restartWatchList: 1})
			})
		})
	}
}

// An API server that is slow, or of which nothing is known, is not listed for that.
func TestSlowStartIsNotListed(t *testing.T) {
	slowly := func(d time.Duration, err error) func(*fakeAPI) {
		return func(a *fakeAPI) {
			a.refuse = func(kind string) error {
				if kind == "watchlist" {
					time.Sleep(d)
					return err
				}
				return nil
			}
		}
	}
	for name, test := range map[string]struct {
		reason string
		set    func(*fakeAPI)
		asked  int
	}{
		"healthy":           {"nothing to ask", func(*fakeAPI) {}, 0},
		"slow":              {"all is", func(a *fakeAPI) { a.delay = 12 * time.Second }, 1},
		"much to list":      {"it takes its time to begin, and others begin at once", slowly(25*time.Second, nil), 1},
		"questions refused": {"nothing is known", func(a *fakeAPI) { a.delay, a.refuseQuestions = 12*time.Second, errors.New("no") }, 1},
		"throttled late":    {"it is asked for again, not listed", slowly(3*time.Second, apierrors.NewTooManyRequests("later", 1)), 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			test.set(a)
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				i.wait(7 * time.Second)
				if n := a.count("begins"); n != test.asked {
					t.Errorf("asked %d times, want %d", n, test.asked)
				}
				i.within(26*time.Second, test.reason, func() bool {
					if name == "throttled late" {
						a.with(func(a *fakeAPI) { a.refuse = nil })
					}
					return i.HasSynced()
				})
				if n := a.count("list"); n > 0 {
					t.Errorf("%s: %d lists", test.reason, n)
				}
				i.expectRestarts(nil)
				i.expectState(StateHearing)
			})
		})
	}
}

// A copy that was filled long ago has to be filled anew while no watch works: it follows
// within seconds, and is streamed to again when watches do.
func TestListedAnewWhileNoWatchWorks(t *testing.T) {
	for name, test := range map[string]struct {
		first  func(string) error
		within time.Duration
	}{
		"too old":              {gone("watch"), 20 * time.Second},
		"too old, both":        {gone("watch", "watchlist"), 20 * time.Second},
		"refused for a minute": {func(string) error { return fmt.Errorf("dial: %w", syscall.ECONNREFUSED) }, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				i.wait(3 * time.Minute)
				a.with(func(a *fakeAPI) { a.frozen, a.mute, a.refuse = true, true, test.first })
				cutOff(a)
				i.wait(time.Minute)
				a.put("x")
				a.with(func(a *fakeAPI) { a.refuse = nil })
				i.within(test.within, "the first change", i.current)
				for range 20 {
					a.put("x")
					a.put("y")
					i.within(20*time.Second, "a change", i.current)
					i.wait(7 * time.Second)
				}
				i.expectState(StatePolling)
				a.with(func(a *fakeAPI) { a.frozen, a.mute = false, false })
				i.within(35*time.Second, "streaming again", func() bool { return i.Snapshot().State == StateHearing })
				a.put("x")
				i.within(time.Second, "a change by the watch", i.current)
			})
		})
	}
}

// What an asker makes of how a list and a WatchList of nothing are answered.
func TestBegins(t *testing.T) {
	const end = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"120","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	never := time.Hour
	for name, test := range map[string]struct {
		list, watch time.Duration // until it is answered
		refused     string        // the verb that is
		want        answerKind
		within      time.Duration
	}{
		"healthy":                    {0, 0, "", quiet, 100 * time.Millisecond},
		"WatchLists say nothing":     {0, never, "", mute, 1100 * time.Millisecond},
		"slow":                       {5 * time.Second, 9 * time.Second, "", quiet, 10 * time.Second},
		"slow, and say nothing":      {5 * time.Second, never, "", mute, 11 * time.Second},
		"the list takes longer":      {5 * time.Second, 0, "", quiet, 100 * time.Millisecond},
		"away":                       {never, never, "", unreachable, goneAfter + 100*time.Millisecond},
		"lists refused":              {0, never, "list", refused, 100 * time.Millisecond},
		"WatchLists refused":         {0, 0, "watch", refused, 100 * time.Millisecond},
		"WatchLists are not known":   {0, 0, "end", refused, 100 * time.Millisecond},
		"lists refused, WatchList's": {never, 0, "watch", refused, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			askInBubble(t, func(w http.ResponseWriter, r *http.Request) {
				verb, wait := "list", test.list
				if r.URL.Query().Get("watch") != "" {
					verb, wait = "watch", test.watch
					if r.URL.Query().Get("sendInitialEvents") != "true" {
						t.Errorf("asked for %s", r.URL)
					}
				}
				if r.URL.Query().Get("fieldSelector") != "metadata.name="+nobody {
					t.Errorf("asked for %s", r.URL)
				}
				select {
				case <-r.Context().Done():
					return
				case <-time.After(wait):
				}
				switch {
				case test.refused == verb:
					w.WriteHeader(http.StatusForbidden)
					fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
				case verb == "list":
					fmt.Fprint(w, emptyList)
				case test.refused == "end": // the stream ends
				default:
					fmt.Fprint(w, end)
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				}
			}, false, func(_ *Hearing, a *asker) {
				began := time.Now()
				got := a.begins(context.Background())
				defer synctest.Wait() // a connection may be on its way
				if got.kind != test.want {
					t.Errorf("%s: %v, want %s", got.kind, got.err, test.want)
				}
				if took := time.Since(began); took > test.within {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// Both connections at once: where watches alone are silent that is known sooner.
func TestAskBoth(t *testing.T) {
	for name, test := range map[string]struct {
		firstIsDead, silent bool
		want                answerKind
		within              time.Duration
	}{
		"watches are silent":        {false, true, mute, 6 * time.Second},
		"the connection is dead":    {true, false, quiet, 6 * time.Second},
		"nothing is wrong with any": {false, false, quiet, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			askInBubble(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") == "" {
					fmt.Fprint(w, emptyList)
					return
				}
				if !test.silent {
					fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"120"}}}`)
					return
				}
				<-r.Context().Done()
			}, test.firstIsDead, func(h *Hearing, a *asker) {
				defer synctest.Wait()
				first, began := h.current(), time.Now()
				if got := a.askBoth(context.Background(), "110"); got.kind != test.want {
					t.Errorf("%s: %v, want %s", got.kind, got.err, test.want)
				}
				if took := time.Since(began); took > test.within {
					t.Errorf("took %s", took)
				}
				if h.current() != first && !test.firstIsDead {
					t.Error("a connection was left that is well")
				}
			})
		})
	}
}
