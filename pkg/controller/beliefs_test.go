package controller_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// What is commonly believed about client-go's queue and is not so. docs/queue.md
// tells it; here it is shown, on client-go's own parts.

// Believed: a key that waits in backoff is in the dirty set, so that a resync or an
// event is merged into it and cannot run it sooner. It is in the delaying queue's
// heap and nowhere else, and Add runs it at once.
func TestBelief_EventsWaitForBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](1000*time.Second, 1000*time.Second))
		defer q.ShutDown()
		q.AddRateLimited("key")
		synctest.Wait()
		if q.Len() != 0 {
			t.Fatal("the key does not wait")
		}
		began := time.Now()
		q.Add("key") // what an event handler does, for a resync too
		key, _ := q.Get()
		if waited := time.Since(began); key != "key" || waited != 0 {
			t.Errorf("the event waited %s", waited)
		}
		q.Done(key)
		// What is left over is the timer, which runs the key for nothing.
		time.Sleep(1001 * time.Second)
		synctest.Wait()
		if q.Len() != 1 {
			t.Error("the timer of the backoff is gone: client-go can take things out of its heap by now")
		}
	})
}

// Believed: WithMaxWait bounds the waits. It bounds what is answered; the bucket's
// reservations stay, and whoever fails next waits the cap, for as long as they last.
func TestBelief_WithMaxWaitIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second
		// As DefaultTypedControllerRateLimiter is made.
		l := workqueue.NewTypedWithMaxWaitRateLimiter(workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[int](5*time.Millisecond, 1000*time.Second),
			&workqueue.TypedBucketRateLimiter[int]{Limiter: rate.NewLimiter(10, 100)},
		), limit)
		const n = 10_000
		for i := range n {
			if d := l.When(i); d > limit {
				t.Fatalf("key %d waits %s", i, d)
			}
		}
		time.Sleep(15 * time.Minute)
		if d := l.When(n); d != limit {
			t.Errorf("15 minutes later a single first failure waits %s: the debt is gone by now", d)
		}
		time.Sleep(2 * time.Minute)
		if d := l.When(n + 1); d > time.Second {
			t.Errorf("after the debt of 1,000 s is paid a first failure waits %s", d)
		}
	})
}

// Believed: 5 ms doubled reaches the cap of 1000 s at the 18th failure. That one
// waits 655 s; it is the 19th.
func TestBelief_CapAtThe18thFailure(t *testing.T) {
	l := workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second)
	var got []time.Duration
	for range 20 {
		got = append(got, l.When("key"))
	}
	for failure, want := range map[int]time.Duration{1: 5 * time.Millisecond, 17: 327_680 * time.Millisecond, 18: 655_360 * time.Millisecond, 19: 1000 * time.Second, 20: 1000 * time.Second} {
		if d := got[failure-1]; d != want {
			t.Errorf("failure %d waits %s, want %s", failure, d, want)
		}
	}
}

// Believed: to ask for a requeue without an error is not counted. It goes the same
// way, through AddRateLimited (controller-runtime's Requeue: true does), and backs
// off like a failure. Here an After is a time and counts nothing.
func TestBelief_RequeueWithoutErrorIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		defer q.ShutDown()
		q.Add("key")
		began := time.Now()
		for range 12 { // passes without an error that ask to run again
			key, _ := q.Get()
			q.AddRateLimited(key)
			q.Done(key)
		}
		if n := q.NumRequeues("key"); n != 12 {
			t.Errorf("%d requeues are counted, want 12", n)
		}
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("12 requeues took %s: they do not back off by now", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(context.Context, cache.ObjectName, int) (controller.Result, error) {
			return controller.Result{After: time.Second}, nil
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		r.Enqueue(controller.Normal, key("a"))
		sleep(time.Minute)
		if n, k := s.count(key("a")), r.state(key("a")); n != 61 || k.Attempts != 0 {
			t.Errorf("%d passes in a minute with an After of 1 s, want 61; %+v", n, k)
		}
	})
}
