package informer

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Where connections are refused, or all is throttled, each copy comes back within 31 s
// of the end, whether it had a watch before or was still to be filled, and asks 250 times
// an hour at most. client-go's own waits are twice as long.
func TestBackSoonAfterARefusal(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	for name, test := range map[string]struct {
		err   error
		fresh bool          // refused from the start
		after time.Duration // by an API server, or a proxy, that takes its time
		most  time.Duration // until it is back
	}{
		"connections are refused":           {refused, false, 0, 31 * time.Second},
		"connections are refused, at start": {refused, true, 0, 31 * time.Second},
		"connections are refused late":      {refused, true, 7 * time.Second, 38 * time.Second},
		"throttled":                         {apierrors.NewTooManyRequests("later", 0), false, 0, 31 * time.Second},
		"throttled, at start":               {apierrors.NewTooManyRequests("later", 0), true, 0, 31 * time.Second},
		"throttled late":                    {apierrors.NewTooManyRequests("later", 0), false, 7 * time.Second, 38 * time.Second},
		"throttled late, at start":          {apierrors.NewTooManyRequests("later", 0), true, 7 * time.Second, 38 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			refuse := func(string) error {
				time.Sleep(test.after)
				return test.err
			}
			if test.fresh {
				a.refuse = refuse
			}
			hearInBubble(t, HearingConfig{ProbeAfter: -1, AuditInterval: -1}, a, func(i *heardInformer) {
				for n := range 20 {
					if !test.fresh {
						i.wait(time.Minute) // else it is listed anew
						a.with(func(a *fakeAPI) { a.refuse = refuse })
						cutOff(a)
					}
					a.put("x")
					i.wait(5*time.Minute + time.Duration(n)*time.Second)
					before := a.counts()
					i.wait(time.Hour)
					i.expectState(StateUnlistable)
					after := a.counts()
					if asked := after["watch"] + after["watchlist"] - before["watch"] - before["watchlist"]; asked > 250 {
						t.Errorf("asked %d times in an hour", asked)
					}
					if after["list"] != before["list"] {
						t.Errorf("listed %d times", after["list"]-before["list"])
					}
					a.with(func(a *fakeAPI) { a.refuse = nil })
					i.within(test.most, "back", func() bool { return i.current() && i.Snapshot().State == StateHearing })
					if test.fresh {
						return // the rest has been tried above
					}
				}
			})
		})
	}
}

// A day's Retry-After is a mistake, and a copy is not to be left alone for as long.
func TestRetryAfterIsCapped(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
		i.wait(time.Minute)
		a.with(func(a *fakeAPI) {
			a.refuse = func(string) error { return apierrors.NewTooManyRequests("later", 24*60*60) }
		})
		cutOff(a)
		i.wait(time.Second)
		a.with(func(a *fakeAPI) { a.refuse = nil })
		a.put("x")
		i.within(6*time.Minute, "a change", i.current)
	})
}

// The API server says when to come back, and nobody comes before.
func TestRetryAfterIsObeyed(t *testing.T) {
	for name, late := range map[string]time.Duration{"at once": 0, "late": 7 * time.Second} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{ProbeAfter: -1, AuditInterval: -1}, a, func(i *heardInformer) {
				i.wait(time.Minute)
				var mu sync.Mutex
				var asked []time.Time
				a.with(func(a *fakeAPI) {
					a.refuse = func(kind string) error {
						mu.Lock()
						asked = append(asked, time.Now())
						mu.Unlock()
						time.Sleep(late)
						return apierrors.NewTooManyRequests("later", 45)
					}
				})
				cutOff(a)
				i.wait(time.Hour)
				a.with(func(a *fakeAPI) { a.refuse = nil })
				i.wait(late) // the fake does not heed a context meanwhile
				mu.Lock()
				defer mu.Unlock()
				if len(asked) < 50 {
					t.Errorf("asked %d times in an hour", len(asked))
				}
				for n, at := range slices.All(asked[1:]) {
					if after := at.Sub(asked[n]); after < 45*time.Second {
						t.Errorf("asked again after %s", after)
					}
				}
			})
		})
	}
}
