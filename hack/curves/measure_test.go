package curves

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

func keys(n int) []cache.ObjectName {
	all := make([]cache.ObjectName, n)
	for i := range all {
		all[i] = cache.NewObjectName(fmt.Sprint("ns-", i%10), fmt.Sprint("object-", i))
	}
	return all
}

// queue is a running controller, ours or one of client-go's plain parts.
type queue struct {
	enqueue func(controller.Lane, ...cache.ObjectName)
	stop    func()
}

type reconcile = func(cache.ObjectName) error

// ours runs a controller; to be called in a bubble.
func ours(t *testing.T, cfg controller.Config, f reconcile) queue {
	t.Helper()
	cfg.Name = "measured"
	cfg.Keys = func() []cache.ObjectName { return nil }
	cfg.Reconciler = controller.ReconcilerFunc(func(_ context.Context, k cache.ObjectName) (controller.Result, error) {
		return controller.Result{}, f(k)
	})
	c, err := controller.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	return queue{enqueue: c.Enqueue, stop: func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}}
}

// plain runs the loop of sample-controller on client-go's default queue.
func plain(workers int, f reconcile) queue {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for {
				k, down := q.Get()
				if down {
					return
				}
				if f(k) != nil {
					q.AddRateLimited(k)
				} else {
					q.Forget(k)
				}
				q.Done(k)
			}
		})
	}
	return queue{
		enqueue: func(_ controller.Lane, keys ...cache.ObjectName) {
			for _, k := range keys {
				q.Add(k)
			}
		},
		stop: func() {
			q.ShutDown()
			working.Wait()
		},
	}
}

// dependency is what passes need and sometimes do without.
type dependency struct {
	work time.Duration // how long a pass takes
	down atomic.Bool

	mu       sync.Mutex
	passes   int
	recovery time.Time // when it came up
	first    map[cache.ObjectName]time.Duration
}

func (d *dependency) use(k cache.ObjectName) error {
	time.Sleep(d.work)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passes++
	if d.down.Load() {
		return io.EOF
	}
	if _, ok := d.first[k]; !ok {
		d.first[k] = time.Since(d.recovery)
	}
	return nil
}

func (d *dependency) fail() { d.down.Store(true) }

// recover brings the dependency up and waits for n keys. It returns how long each
// of them took, the quickest first.
func (d *dependency) recover(t *testing.T, n int) (times []time.Duration) {
	t.Helper()
	d.mu.Lock()
	d.recovery, d.first = time.Now(), map[cache.ObjectName]time.Duration{}
	d.mu.Unlock()
	d.down.Store(false)
	for limit := time.Now().Add(6 * time.Hour); ; time.Sleep(time.Second) {
		d.mu.Lock()
		done := len(d.first) >= n
		d.mu.Unlock()
		if done {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%d of %d keys have succeeded in 6 hours", len(d.first), n)
		}
	}
	for _, took := range d.first {
		times = append(times, took)
	}
	slices.Sort(times)
	return times
}

func (d *dependency) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passes
}

// afterOutage is how long n keys take to succeed after an outage in which each of
// them meets an event a minute.
func afterOutage(t *testing.T, n int, outage time.Duration, run func(*testing.T, reconcile) queue) (times []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{work: 10 * time.Millisecond}
		d.fail()
		q := run(t, d.use)
		defer q.stop()
		all := keys(n)
		for range outage / time.Minute {
			q.enqueue(controller.Normal, all...)
			time.Sleep(time.Minute)
		}
		times = d.recover(t, n)
	})
	return times
}

// afterHiccup is the mean wait of n keys for their success after a failure of their
// dependency, with nothing but their own retries to run them.
func afterHiccup(t *testing.T, n int, hiccup time.Duration, run func(*testing.T, reconcile) queue) (mean time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{work: time.Millisecond}
		d.fail()
		q := run(t, d.use)
		defer q.stop()
		q.enqueue(controller.Normal, keys(n)...)
		time.Sleep(hiccup)
		for _, took := range d.recover(t, n) {
			mean += took / time.Duration(n)
		}
	})
	return mean
}

// retryRate is how many passes a second n failing keys make after ten minutes.
func retryRate(t *testing.T, n int, cfg controller.Config) (rate float64) {
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{work: 10 * time.Millisecond}
		d.fail()
		cfg.Workers = 64
		q := ours(t, cfg, d.use)
		defer q.stop()
		q.enqueue(controller.Normal, keys(n)...)
		time.Sleep(10 * time.Minute)
		before := d.count()
		time.Sleep(10 * time.Minute)
		rate = float64(d.count()-before) / 600
	})
	return rate
}

// editWait is the longest wait of ten edits, from the event to the beginning of the
// pass, while n keys of an initial list are worked off at 100 ms a pass.
func editWait(t *testing.T, n int, run func(*testing.T, reconcile) queue) (longest time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		edited := map[cache.ObjectName]time.Time{}
		q := run(t, func(k cache.ObjectName) error {
			mu.Lock()
			if at, ok := edited[k]; ok {
				longest = max(longest, time.Since(at))
				delete(edited, k)
			}
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		defer q.stop()
		q.enqueue(controller.Background, keys(n)...)
		for i := range 10 {
			time.Sleep(1050 * time.Millisecond) // out of step with the passes
			edit := cache.NewObjectName("ns-0", fmt.Sprint("edit-", i))
			mu.Lock()
			edited[edit] = time.Now()
			mu.Unlock()
			q.enqueue(controller.Urgent, edit)
		}
		for left := 1; left > 0; {
			time.Sleep(time.Second)
			mu.Lock()
			left = len(edited)
			mu.Unlock()
		}
	})
	return longest
}
