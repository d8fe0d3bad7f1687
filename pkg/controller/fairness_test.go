package controller_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// works is a pass that takes d.
func works(d time.Duration) func(context.Context, cache.ObjectName, int) (controller.Result, error) {
	return func(context.Context, cache.ObjectName, int) (controller.Result, error) {
		time.Sleep(d)
		return controller.Result{}, nil
	}
}

// R58: 10,000 keys of a resync and one edit.
func TestR58_EditDuringResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: works(100 * time.Millisecond)}
		r := start(t, controller.Config{Reconciler: s, Keys: func() []cache.ObjectName { return keys("ns", 10_000) }})
		sleep(10 * time.Second)
		edited := time.Now()
		r.Enqueue(controller.Urgent, key("edit"))
		sleep(2 * time.Second)
		times := s.times(key("edit"))
		if len(times) != 1 || times[0].Sub(edited) > 100*time.Millisecond {
			t.Errorf("the edit ran at %v, want in the next free worker after %s", times, edited)
		}
		r.finish()
	})
}

// An event on a queued resync key moves it up.
func TestEditOfAQueuedResyncKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: works(time.Second)}
		all := keys("ns", 1000)
		r := start(t, controller.Config{Reconciler: s, Workers: 1, Keys: func() []cache.ObjectName { return all }})
		r.Enqueue(controller.Urgent, all[900])
		sleep(2 * time.Second)
		if s.count(all[900]) != 1 {
			t.Errorf("ran %v, want the edited key second", s.sequence())
		}
		r.finish()
	})
}

// The lane wanted for a key that is being worked on holds for its next run.
func TestLaneOfADirtyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: works(time.Second)}
		all := keys("ns", 100)
		r := start(t, controller.Config{Reconciler: s, Workers: 1, Keys: func() []cache.ObjectName { return all }})
		r.Enqueue(controller.Urgent, all[0])
		r.Enqueue(controller.Background, all[0])
		sleep(1500 * time.Millisecond)
		if s.count(all[0]) != 2 {
			t.Errorf("ran %v, want the first key again next", s.sequence())
		}
		r.finish()
	})
}

// R49: 500 keys of the initial list under a steady stream of urgent ones at twice
// the capacity of the one worker.
func TestR49_BackgroundProgressesUnderOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: works(10 * time.Millisecond)}
		initial := keys("initial", 500)
		r := start(t, controller.Config{Reconciler: s, Workers: 1, Keys: func() []cache.ObjectName { return initial }})
		stream := keys("busy", 2000)
		for i := range 500 * 10 * 2 {
			time.Sleep(5 * time.Millisecond)
			r.Enqueue(controller.Urgent, stream[i%len(stream)])
		}
		synctest.Wait()
		runs := s.all()
		for _, k := range initial {
			if len(runs[k]) == 0 {
				t.Fatalf("%s has not run within 50 s, the time of 500 turns of one in ten", k)
			}
		}
		r.finish()
	})
}

// R59: 5,000 keys of one namespace, then one of another.
func TestR59_OneTenantDoesNotStarveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: works(100 * time.Millisecond)}
		r := start(t, controller.Config{Reconciler: s, Workers: 1})
		r.Enqueue(controller.Normal, keys("big", 5000)...)
		sleep(time.Second)
		small := cache.NewObjectName("small", "one")
		r.Enqueue(controller.Normal, small)
		sleep(300 * time.Millisecond)
		if s.count(small) != 1 {
			t.Error("the small tenant waits behind the big one")
		}
		r.finish()
	})
}

// R50: 3,000 objects that want a look every minute get it all the time, for an hour
// in the long form, and the snapshot shows that nobody is overdue.
func TestR50_TimersKeepRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Minute
		rounds := 10
		if long {
			rounds = 60
		}
		var mu sync.Mutex
		last := map[cache.ObjectName]time.Time{}
		worst, passes := time.Duration(0), 0
		all := keys("ns", 3000)
		r := start(t, controller.Config{
			Keys: func() []cache.ObjectName { return all },
			Reconciler: controller.ReconcilerFunc(func(_ context.Context, k cache.ObjectName) (controller.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				if at, ok := last[k]; ok {
					worst = max(worst, time.Since(at))
				}
				last[k] = time.Now()
				passes++
				return controller.Result{After: interval}, nil
			}),
		})
		for range rounds {
			sleep(interval)
			mu.Lock()
			for _, at := range last {
				worst = max(worst, time.Since(at))
			}
			mu.Unlock()
			if s := r.Snapshot(); s.OldestDueSeconds > interval.Seconds() || s.Waiting+s.Ready.Background+s.Processing != len(all) {
				t.Fatalf("overdue or lost: %+v", s)
			}
		}
		r.finish()
		if len(last) != len(all) || worst > 2*interval || passes < (rounds-1)*len(all) {
			t.Errorf("%d keys, %d passes, at most %s apart", len(last), passes, worst)
		}
	})
}

// In real time, with everything at once: no key in two workers, no change lost.
func TestNoKeyTwiceAtOnceNoneLost(t *testing.T) {
	const rounds, workers, objects = 200, 20, 40
	for range 10 {
		stress(t, rounds/10, workers, objects)
	}
}

func stress(t *testing.T, rounds, workers, objects int) {
	type object struct {
		version, seen atomic.Int64
		busy          atomic.Bool
	}
	state := map[cache.ObjectName]*object{}
	all := keys("ns", objects)
	for i := range all {
		all[i].Namespace = string(rune('a' + i%3))
		state[all[i]] = &object{}
	}
	c, err := controller.New(controller.Config{
		Name: "stress", Keys: noKeys, Workers: workers,
		RetryBaseDelay: time.Microsecond, RetryMaxDelay: time.Millisecond, RetryQPS: 1e6,
		Reconciler: controller.ReconcilerFunc(func(_ context.Context, k cache.ObjectName) (controller.Result, error) {
			o := state[k]
			if !o.busy.CompareAndSwap(false, true) {
				t.Errorf("%s is in two workers", k)
			}
			defer o.busy.Store(false)
			version := o.version.Load()
			switch rand.IntN(8) {
			case 0:
				return controller.Result{}, io.EOF
			case 1:
				return controller.Result{}, conflict
			case 2:
				panic("now and then")
			case 3:
				return controller.Result{After: time.Microsecond}, nil
			}
			o.seen.Store(version)
			return controller.Result{}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	deadline := time.Now().Add(20 * time.Second)
	for !c.Snapshot().Running {
		if time.Now().After(deadline) {
			t.Fatalf("does not run: %+v", c.Snapshot())
		}
		time.Sleep(time.Millisecond)
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range rounds {
				for range objects {
					k := all[rand.IntN(len(all))]
					state[k].version.Add(1)
					c.Enqueue(controller.Lane(rand.IntN(3)), k)
				}
			}
		})
	}
	writers.Wait()
	deadline = time.Now().Add(20 * time.Second)
	for _, k := range all {
		for state[k].seen.Load() != state[k].version.Load() {
			if time.Now().After(deadline) {
				got, _ := c.Key(k)
				t.Fatalf("%s: version %d seen, %d written: %+v", k, state[k].seen.Load(), state[k].version.Load(), got)
			}
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
