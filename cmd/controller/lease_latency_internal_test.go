package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A request of the lease may take a third of the renew deadline, so that a connection
// which has gone silent is left and the lease renewed on another one in time. With the
// whole deadline for each it would lead up to 4 s of latency in place of 3.3 s, and
// lose the lease with each such connection.
func TestBoundOfALeaseRequest(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		latency time.Duration
		scale   time.Duration // of the flags' defaults
		frozen  int           // connections that go silent, one a minute
		terms   int
	}{
		"quick":                   {"all is well", 0, 1, 0, 1},
		"3 s late":                {"below the bound", 3 * time.Second, 1, 0, 1},
		"3.5 s late":              {"above it", 3500 * time.Millisecond, 1, 0, 0},
		"12 s late":               {"no bound would do: the deadline is 10 s", 12 * time.Second, 1, 0, 0},
		"12 s late, longer flags": {"three times the latency and more", 12 * time.Second, 4, 0, 1},
		"frozen connections":      {"a fresh one is in time", 0, 1, 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				frozen, terms := false, 0
				s := &leaseServer{}
				s.fault = func(ctx context.Context, _, _ string) (bool, error) {
					mu.Lock()
					silent := frozen
					mu.Unlock()
					if silent {
						<-ctx.Done()
						return false, ctx.Err()
					}
					select {
					case <-time.After(test.latency):
						return true, nil
					case <-ctx.Done():
						return true, ctx.Err()
					}
				}
				e := newTestElection(s, "a")
				e.leaseDuration, e.renewDeadline, e.retryPeriod = test.scale*testLeaseDuration, test.scale*testRenewDeadline, test.scale*testRetryPeriod
				e.fence = newFence(e.renewDeadline, e.leaseDuration, e.lease.now)
				e.lease.fence, e.lease.timeout = e.fence, leaseRequestTimeout(e.renewDeadline)
				e.lease.reconnect = func() {
					mu.Lock()
					defer mu.Unlock()
					frozen = false
				}
				p := startProcess(t, e, func(ctx context.Context) error {
					mu.Lock()
					terms++
					mu.Unlock()
					<-ctx.Done()
					return nil
				})
				for n := range 12 {
					time.Sleep(time.Minute)
					mu.Lock()
					frozen = n < test.frozen
					mu.Unlock()
				}
				p.stop(t)
				if terms != test.terms {
					t.Errorf("%s: %d terms, want %d", test.reason, terms, test.terms)
				}
			})
		})
	}
}
