package controller_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// dependency is what all passes need.
type dependency struct {
	down atomic.Bool

	mu        sync.Mutex
	succeeded map[cache.ObjectName]bool // since it is up again
}

// use takes 10 ms.
func (d *dependency) use(k cache.ObjectName) error {
	time.Sleep(10 * time.Millisecond)
	if d.down.Load() {
		return io.EOF
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.succeeded == nil {
		d.succeeded = map[cache.ObjectName]bool{}
	}
	d.succeeded[k] = true
	return nil
}

func (d *dependency) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.succeeded)
}

// R47: 2,000 keys fail for 20 minutes, and each meets an event a minute meanwhile (a
// status, a heartbeat, a resync) but none after it. When the cause ends ours have
// all succeeded within the cap and the time the work takes. With client-go's default
// limiter it takes over 15 minutes: every failure reserves a token, those of a key
// that is waiting already too, and the debt is paid at 10 a second.
func TestR47_RecoveryAfterAnOutage(t *testing.T) {
	const n, workers, outage = 2000, 4, 20 * time.Minute
	all := keys("ns", n)
	fail := func(enqueue func(cache.ObjectName)) {
		for range outage / time.Minute {
			for _, k := range all {
				enqueue(k)
			}
			time.Sleep(time.Minute)
		}
	}
	recovery := func(t *testing.T, d *dependency) time.Duration {
		d.down.Store(false)
		began := time.Now()
		for d.count() < n {
			if time.Since(began) > 2*time.Hour {
				t.Fatalf("%d of %d keys have succeeded in 2 hours", d.count(), n)
			}
			time.Sleep(time.Second)
		}
		return time.Since(began)
	}
	var ours, theirs time.Duration
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{}
		d.down.Store(true)
		r := start(t, controller.Config{
			Workers: workers,
			Reconciler: controller.ReconcilerFunc(func(_ context.Context, k cache.ObjectName) (controller.Result, error) {
				return controller.Result{}, d.use(k)
			}),
		})
		defer r.finish()
		fail(func(k cache.ObjectName) { r.Enqueue(controller.Normal, k) })
		states, _ := r.Keys(n, cache.ObjectName{})
		if len(states) != n {
			t.Fatalf("the ledger has %d keys, want %d", len(states), n)
		}
		for _, k := range states {
			if wait := time.Until(k.NotBefore); wait > 33*time.Second {
				t.Fatalf("%s waits %s more, above the cap", k.Key, wait)
			}
			if k.Attempts < 20 {
				t.Fatalf("%s was tried %d times in 20 min", k.Key, k.Attempts)
			}
		}
		if s := r.Snapshot().OldestFailingSeconds; s < 1190 {
			t.Errorf("a key has been failing for %v s, want 20 min", s)
		}
		ours = recovery(t, d)
		synctest.Wait()
		if s := r.Snapshot(); s.Failing != 0 || s.OldestFailingSeconds != 0 {
			t.Errorf("after all have succeeded: %+v", s)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{}
		d.down.Store(true)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
		var working sync.WaitGroup
		for range workers {
			working.Go(func() {
				for {
					k, down := q.Get()
					if down {
						return
					}
					if d.use(k) != nil {
						q.AddRateLimited(k)
					} else {
						q.Forget(k)
					}
					q.Done(k)
				}
			})
		}
		fail(q.Add)
		theirs = recovery(t, d)
		q.ShutDown()
		working.Wait()
	})
	t.Logf("recovered after %s; with client-go's default limiter after %s", ours, theirs)
	if limit := 33*time.Second + n*10*time.Millisecond/workers + time.Second; ours > limit {
		t.Errorf("recovered after %s, want at most %s: cap, jitter and work", ours, limit)
	}
	if theirs < 15*time.Minute {
		t.Errorf("client-go's default limiter recovers after %s: the comparison shows nothing", theirs)
	}
}

// R46: 10,000 keys fail at once, again and again: none waits longer than the cap and
// its jitter, and a key that fails for the first time meanwhile waits the base delay.
func TestR46_ManyFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		s := &script{do: func(context.Context, cache.ObjectName, int) (controller.Result, error) {
			return controller.Result{}, io.EOF
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		all := keys("ns", n)
		for round := range 2 {
			r.Enqueue(controller.Normal, all...)
			synctest.Wait()
			states, _ := r.Keys(n, cache.ObjectName{})
			for _, k := range states {
				if wait := time.Until(k.NotBefore); wait > 33*time.Second {
					t.Fatalf("round %d: %s waits %s", round, k.Key, wait)
				}
			}
			fresh := cache.NewObjectName("other", fmt.Sprint("fresh-", round))
			r.Enqueue(controller.Normal, fresh)
			synctest.Wait()
			if wait := time.Until(r.state(fresh).NotBefore); !within(wait, 100*time.Millisecond) {
				t.Errorf("round %d: a single new failure waits %s, want the base delay", round, wait)
			}
			time.Sleep(35 * time.Second)
		}
	})
}

// R52: keys that fail and are then deleted leave nothing behind: not in the limiter,
// the ledger, client-go's heap nor anywhere else. A million in the long form.
func TestR52_MemoryIsFlat(t *testing.T) {
	waves := 4
	if long {
		waves = 100
	}
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		deleted := false // written while nothing runs
		r := start(t, controller.Config{Reconciler: controller.ReconcilerFunc(func(context.Context, cache.ObjectName) (controller.Result, error) {
			if deleted {
				return controller.Result{}, nil
			}
			return controller.Result{}, io.EOF
		})})
		defer r.finish()
		var first uint64
		for wave := range waves {
			all := keys(fmt.Sprint("ns-", wave), n)
			deleted = false
			r.Enqueue(controller.Normal, all...)
			synctest.Wait()
			if s := r.Snapshot(); s.Failing != n {
				t.Fatalf("%d keys fail, want %d", s.Failing, n)
			}
			deleted = true
			r.Enqueue(controller.Urgent, all...)
			all = nil
			sleep(time.Minute)
			if s := r.Snapshot(); s.Failing+s.Waiting+s.Processing+s.Ready.Normal+s.Ready.Urgent != 0 {
				t.Fatalf("wave %d left %+v", wave, s)
			}
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if wave == 1 { // the first one makes the maps
				first = m.HeapAlloc
			}
			if wave > 1 && m.HeapAlloc > first+4<<20 {
				t.Fatalf("wave %d: %d KiB in the heap, %d KiB after the second", wave, m.HeapAlloc>>10, first>>10)
			}
		}
		states, _ := r.Keys(1<<20, cache.ObjectName{})
		if len(states) > 8192 {
			t.Errorf("%d keys are remembered, want at most 8192", len(states))
		}
	})
}
