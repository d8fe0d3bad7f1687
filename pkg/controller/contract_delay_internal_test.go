package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

// after lets d pass and then checks which keys have become ready, in their order.
func (q *keyQueue) after(t *testing.T, d time.Duration, want ...string) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	var got []string
	for q.Len() > 0 {
		r, _ := q.TypedDelayingInterface.Get()
		if q.ledger.popped(r).run {
			got = append(got, r.key.Name)
			q.ledger.finished(r, q.ledger.now(), outcome{class: ClassDone})
		}
		q.TypedDelayingInterface.Done(r)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s later %v ran, want %v", d, got, want)
	}
}

func TestSimpleQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newKeyQueue()
		defer q.ShutDown()
		q.AddAfter("foo", 50*time.Millisecond)
		q.after(t, 49*time.Millisecond)
		q.after(t, time.Millisecond, "foo")
		q.after(t, 10*time.Second) // past the heartbeat
	})
}

// Where client-go keeps the sooner of two delays, whoever asked last is right here:
// a delay is what a pass has asked for, and passes come one after the other.
func TestDeduping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newKeyQueue()
		defer q.ShutDown()
		q.AddAfter("foo", 50*time.Millisecond)
		q.AddAfter("foo", 70*time.Millisecond)
		if r := q.ledger.find(cache.ObjectName{Namespace: "f", Name: "foo"}); r.notBefore.sub(q.ledger.now()) != 70*time.Millisecond {
			t.Errorf("due in %s, want 70 ms", r.notBefore.sub(q.ledger.now()))
		}
		// The timer of 50 ms is in client-go's heap and cannot be taken out. A worker
		// that gets the key then puts it back.
		var at time.Duration
		began := time.Now()
		go func() {
			key, down := q.Get()
			if at = time.Since(began); !down {
				q.Done(key)
			}
		}()
		q.after(t, time.Second)
		if at != 70*time.Millisecond {
			t.Errorf("ran after %s, want 70 ms", at)
		}

		q.AddAfter("foo", 50*time.Millisecond)
		q.AddAfter("foo", 30*time.Millisecond)
		q.after(t, 29*time.Millisecond)
		q.after(t, time.Millisecond, "foo")
		q.after(t, time.Second)
	})
}

func TestAddTwoFireEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newKeyQueue()
		defer q.ShutDown()
		q.AddAfter("foo", time.Second)
		q.AddAfter("bar", 50*time.Millisecond)
		q.after(t, 60*time.Millisecond, "bar")
		q.AddAfter("baz", 2*time.Second)
		q.after(t, time.Second, "foo")
		q.after(t, 2*time.Second, "baz")
	})
}

func TestCopyShifting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newKeyQueue()
		defer q.ShutDown()
		q.AddAfter("first", time.Second)
		q.AddAfter("f-second", 500*time.Millisecond)
		q.AddAfter("f-third", 250*time.Millisecond)
		q.after(t, 2*time.Second, "f-third", "f-second", "first")
	})
}

func TestRateLimitingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, one, two := limiterOf(nil), named(1), named(2)
		for _, r := range []*record{one, two} {
			for n, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond} {
				if d := l.When(r); !about(d, want) {
					t.Errorf("failure %d waits %s, want about %s", n+1, d, want)
				}
			}
		}
		if n := l.NumRequeues(one); n != 2 {
			t.Errorf("NumRequeues = %d, want 2", n)
		}
		l.Forget(one)
		if n, m := l.NumRequeues(one), l.NumRequeues(two); n != 0 || m != 2 {
			t.Errorf("NumRequeues = %d and %d after Forget of the first, want 0 and 2", n, m)
		}
		if d := l.When(one); !about(d, 100*time.Millisecond) {
			t.Errorf("after Forget a failure waits %s, want the base delay", d)
		}
	})
}

// In real time, 200 rounds of 20 workers for each way to shut down: no key in two
// workers, every Add followed by a pass that starts after it, and the end comes.
func TestQueueContract(t *testing.T) {
	const rounds, workers, producers, names, adds = 200, 20, 4, 12, 30
	type object struct {
		wanted, seen atomic.Int64
		busy         atomic.Bool
	}
	round := func(t *testing.T, shutDown func(*keyQueue)) {
		q := newKeyQueue()
		defer q.ShutDown() // ShutDownWithDrain leaves the delaying queue's goroutine
		objects := map[string]*object{}
		var all []string
		for i := range names {
			all = append(all, fmt.Sprintf("%c%d", 'a'+i%3, i))
			objects[all[i]] = &object{}
		}
		var working, producing sync.WaitGroup
		for range workers {
			working.Go(func() {
				for {
					name, down := q.Get()
					if down {
						return
					}
					o := objects[name]
					if !o.busy.CompareAndSwap(false, true) {
						t.Errorf("%s is in two workers", name)
					}
					wanted := o.wanted.Load()
					if n := rand.IntN(4); n == 0 {
						q.AddIn(Lane(rand.IntN(laneCount)), name) // while it is processed
					}
					o.seen.Store(wanted)
					o.busy.Store(false)
					if rand.IntN(4) == 0 {
						q.doneAfter(name, time.Duration(rand.IntN(int(time.Millisecond))))
					} else {
						q.Done(name)
					}
				}
			})
		}
		for range producers {
			producing.Go(func() {
				for range adds {
					name := all[rand.IntN(names)]
					objects[name].wanted.Add(1)
					q.AddIn(Lane(rand.IntN(laneCount)), name)
				}
			})
		}
		producing.Wait()
		shutDown(q)
		working.Wait()
		for name, o := range objects {
			if o.seen.Load() != o.wanted.Load() {
				t.Errorf("%s: %d of %d adds seen", name, o.seen.Load(), o.wanted.Load())
			}
		}
		if q.Len() != 0 {
			t.Errorf("%d keys left", q.Len())
		}
	}
	for name, shutDown := range shutDowns {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				if round(t, shutDown); t.Failed() {
					return
				}
			}
		})
	}
}
