package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// fakeClock moves both clocks together or each alone.
type fakeClock struct{ reading }

func (c *fakeClock) read() reading { return c.reading }

func (c *fakeClock) step(mono, wall time.Duration) {
	c.mono += mono
	c.wall = c.wall.Add(wall)
}

func TestFenceAge(t *testing.T) {
	type step struct{ mono, wall time.Duration }
	tests := map[string]struct {
		reason string
		closed bool
		steps  []step // after the renewal
		admits bool
	}{
		"JustRenewed":          {reason: "a leader writes", admits: true},
		"NoTerm":               {reason: "a standby's lease may well be fresh: it has just acquired it", closed: true},
		"AtTheDeadline":        {reason: "the deadline itself is still in time", steps: []step{{10 * time.Second, 10 * time.Second}}, admits: true},
		"PastTheDeadline":      {reason: "no renewal for longer than the renew deadline", steps: []step{{10*time.Second + 1, 10*time.Second + 1}}},
		"MachineSuspended":     {reason: "the monotonic clock stops while a machine is suspended", steps: []step{{0, time.Hour}}},
		"WallClockSetBack":     {reason: "a wall clock set back must not prolong the lease", steps: []step{{11 * time.Second, -time.Hour}}},
		"SuspendedAndSetBack":  {reason: "what one clock hides the other shows", steps: []step{{0, 11 * time.Second}, {time.Second, time.Second}}},
		"WallClockSetBackFirm": {reason: "within the deadline a clock set back changes nothing", steps: []step{{9 * time.Second, -time.Hour}}, admits: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clock := &fakeClock{reading{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}
			f := newFence(10*time.Second, 15*time.Second, clock.read)
			f.renew(clock.read())
			if !tc.closed {
				f.open()
				defer f.close()
			}
			for _, s := range tc.steps {
				clock.step(s.mono, s.wall)
			}
			err := f.check()
			if admits := err == nil; admits != tc.admits {
				t.Errorf("%s: check() = %v, want admitted %t", tc.reason, err, tc.admits)
			}
			if err != nil && !errors.Is(err, ErrNotLeading) {
				t.Errorf("%s: check() = %v, want an ErrNotLeading", tc.reason, err)
			}
		})
	}
}

func TestFenceMethods(t *testing.T) {
	tests := map[string]bool{ // method: passes without a term
		http.MethodGet:     true,
		http.MethodHead:    true,
		http.MethodOptions: true,
		http.MethodPost:    false,
		http.MethodPut:     false,
		http.MethodPatch:   false,
		http.MethodDelete:  false,
		"PROPFIND":         false, // unknown means mutating
	}
	for method, passes := range tests {
		t.Run(method, func(t *testing.T) {
			sent := false
			transport := newFence(time.Second, 2*time.Second, systemClock()).wrap(roundTripper(func(*http.Request) (*http.Response, error) {
				sent = true
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}))
			body := &closeRecorder{Reader: strings.NewReader("{}")}
			req := httptest.NewRequest(method, "https://apiserver/api", body)
			req.Body = body
			resp, err := transport.RoundTrip(req)
			if resp != nil {
				_ = resp.Body.Close()
			}
			if sent != passes {
				t.Errorf("sent to the server: %t, want %t", sent, passes)
			}
			if !passes && !errors.Is(err, ErrNotLeading) {
				t.Errorf("err = %v, want ErrNotLeading", err)
			}
			if !passes && !body.closed {
				t.Error("a RoundTripper has to close the body of a request that it refuses")
			}
		})
	}
}

// Requests under way end when the lease lapses, and not before as long as it is
// renewed: a write held up by a slow webhook for longer than a lease lasts has
// to be able to succeed.
func TestFenceRequestUnderWay(t *testing.T) {
	tests := map[string]struct {
		reason string
		renew  time.Duration // renewals every, 0: none
		close  time.Duration // the term is given up after, 0: not
		takes  time.Duration // the server's answer
		ends   time.Duration
		lost   bool
	}{
		"Quick":          {reason: "the usual case", takes: time.Second, ends: time.Second},
		"LeaseLapses":    {reason: "another process may lead from here on", takes: time.Minute, ends: 15 * time.Second, lost: true},
		"RenewedInTime":  {reason: "the deadline moves with each renewal", renew: 2 * time.Second, takes: 40 * time.Second, ends: 40 * time.Second},
		"TermGivenUp":    {reason: "nothing is awaited for a term that is over", renew: 2 * time.Second, close: 3 * time.Second, takes: time.Minute, ends: 3 * time.Second, lost: true},
		"RenewedTooLate": {reason: "a renewal after the term opens nothing", renew: 20 * time.Second, takes: time.Minute, ends: 15 * time.Second, lost: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := systemClock()
				f := newFence(10*time.Second, 15*time.Second, now)
				f.renew(now())
				f.open()
				defer f.close()
				done, stop := context.WithCancel(t.Context())
				defer stop()
				if tc.renew > 0 {
					go func() {
						for tick := time.NewTicker(tc.renew); ; {
							select {
							case <-tick.C:
								f.renew(now())
							case <-done.Done():
								tick.Stop()
								return
							}
						}
					}()
				}
				if tc.close > 0 {
					time.AfterFunc(tc.close, f.close)
				}
				transport := f.wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
					select {
					case <-time.After(tc.takes):
						return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
				}))
				start := time.Now()
				resp, err := transport.RoundTrip(httptest.NewRequest(http.MethodPatch, "https://apiserver/api", nil))
				if err == nil {
					_ = resp.Body.Close()
				}
				if took := time.Since(start); took != tc.ends {
					t.Errorf("%s: ended after %s, want %s", tc.reason, took, tc.ends)
				}
				if lost := errors.Is(err, ErrNotLeading); lost != tc.lost {
					t.Errorf("%s: err = %v, want ErrNotLeading: %t", tc.reason, err, tc.lost)
				}
			})
		})
	}
}

// The caller's own cancellation stays what it is.
func TestFenceCallerCancels(t *testing.T) {
	now := systemClock()
	f := newFence(10*time.Second, 15*time.Second, now)
	f.renew(now())
	f.open()
	defer f.close()
	transport := f.wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := transport.RoundTrip(httptest.NewRequest(http.MethodPost, "https://apiserver/api", nil).WithContext(ctx))
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotLeading) {
		t.Errorf("err = %v, want the caller's own cancellation", err)
	}
}

// Through a real client: the error can be told by errors.Is, and the fence sits
// under the limiter, so that a request is judged when it is sent.
func TestFenceUnderClient(t *testing.T) {
	hits := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1"}`)
	}))
	defer server.Close()
	now := systemClock()
	f := newFence(10*time.Second, 15*time.Second, now)
	f.renew(now())
	f.open()
	config := &rest.Config{Host: server.URL, RateLimiter: closingLimiter{f}}
	config.Wrap(f.wrap)
	client := newConfigMapClient(t, config)
	err := client.Post().Namespace("a").Resource("configmaps").Body([]byte("{}")).Do(t.Context()).Error()
	if !errors.Is(err, ErrNotLeading) {
		t.Errorf("err = %v, want ErrNotLeading: the term ended while the request waited for the limiter", err)
	}
	if hits != 0 {
		t.Errorf("the server saw %d requests, want none", hits)
	}
	if err := client.Get().Namespace("a").Resource("configmaps").Name("b").Do(t.Context()).Error(); err != nil {
		t.Errorf("reading without a term: %v", err)
	}
}

// closingLimiter ends the term while a request waits.
type closingLimiter struct{ fence *fence }

func (closingLimiter) TryAccept() bool              { return true }
func (closingLimiter) Accept()                      {}
func (closingLimiter) Stop()                        {}
func (closingLimiter) QPS() float32                 { return 1 }
func (l closingLimiter) Wait(context.Context) error { l.fence.close(); return nil }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closeRecorder struct {
	io.Reader
	closed bool
}

func (c *closeRecorder) Close() error { c.closed = true; return nil }
