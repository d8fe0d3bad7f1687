package controller

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// The tests of client-go's queue, delaying queue and rate limiting queue
// (util/workqueue/*_test.go of v0.37.2), by their names there, for the queue as it
// is put together here.

// keyQueue is our queue with client-go's methods, for keys that are plain names.
type keyQueue struct {
	workqueue.TypedDelayingInterface[*record]
	ledger  *ledger
	limiter *limiter
	taken   sync.Map // name: *record, between Get and Done
}

func newKeyQueue() *keyQueue {
	l := newLedger()
	return &keyQueue{ledger: l, limiter: limiterOf(nil),
		TypedDelayingInterface: newQueue(klog.Logger{}, &Controller{}, newLanes(l))}
}

// AddIn wants name, whose first letter is its namespace, in lane.
func (q *keyQueue) AddIn(lane Lane, name string) {
	q.TypedDelayingInterface.Add(q.ledger.wish(cache.ObjectName{Namespace: name[:1], Name: name}, lane))
}

func (q *keyQueue) Add(name string) { q.AddIn(Normal, name) }

// Get does what a worker does: it returns a key that is to run.
func (q *keyQueue) Get() (string, bool) {
	for {
		r, down := q.TypedDelayingInterface.Get()
		if down {
			return "", true
		}
		next := q.ledger.popped(r)
		if next.run {
			q.taken.Store(r.key.Name, r)
			return r.key.Name, false
		}
		if next.putBack > 0 {
			q.TypedDelayingInterface.AddAfter(r, next.putBack)
		}
		q.TypedDelayingInterface.Done(r)
	}
}

func (q *keyQueue) Done(name string) { q.doneAfter(name, 0) }

// doneAfter ends a pass that asks for another one after d, if d is not 0.
func (q *keyQueue) doneAfter(name string, d time.Duration) {
	v, _ := q.taken.LoadAndDelete(name)
	r := v.(*record)
	q.ledger.finished(r, q.ledger.now(), outcome{class: ClassDone, after: d})
	if d > 0 {
		q.TypedDelayingInterface.AddAfter(r, d)
	}
	q.TypedDelayingInterface.Done(r)
}

// AddAfter has a pass of name ask for another one after d.
func (q *keyQueue) AddAfter(name string, d time.Duration) {
	q.AddIn(Urgent, name)
	for {
		got, _ := q.Get()
		if got == name {
			q.doneAfter(name, d)
			return
		}
		q.Done(got)
	}
}

// shutDowns are both ways of shutting down.
var shutDowns = map[string]func(*keyQueue){
	"ShutDown":          func(q *keyQueue) { q.ShutDown() },
	"ShutDownWithDrain": func(q *keyQueue) { q.ShutDownWithDrain() },
}

func eachShutDown(t *testing.T, test func(*testing.T, *keyQueue, func(*keyQueue))) {
	for name, shutDown := range shutDowns {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newKeyQueue()
				defer q.ShutDown() // ShutDownWithDrain leaves the delaying queue's goroutine
				test(t, q, shutDown)
			})
		})
	}
}

func wantLen(t *testing.T, q *keyQueue, want int) {
	t.Helper()
	synctest.Wait()
	if got := q.Len(); got != want {
		t.Errorf("%d keys are ready, want %d", got, want)
	}
}

func wantNext(t *testing.T, q *keyQueue, want string) {
	t.Helper()
	if got, down := q.Get(); got != want || down {
		t.Fatalf("got %q (shut down: %v), want %q", got, down, want)
	}
}

func TestBasic(t *testing.T) {
	eachShutDown(t, func(t *testing.T, q *keyQueue, shutDown func(*keyQueue)) {
		var producers, consumers sync.WaitGroup
		for i := range 50 {
			producers.Go(func() {
				for range 50 {
					q.AddIn(Lane(i%laneCount), fmt.Sprint("k", i))
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range 10 {
			consumers.Go(func() {
				for {
					key, down := q.Get()
					if key == "added after shutdown" {
						t.Error("got a key that was added after the shutdown")
					}
					if down {
						return
					}
					time.Sleep(3 * time.Millisecond)
					q.Done(key)
				}
			})
		}
		producers.Wait()
		shutDown(q)
		q.Add("added after shutdown")
		consumers.Wait()
		wantLen(t, q, 0)
	})
}

func TestAddWhileProcessing(t *testing.T) {
	eachShutDown(t, func(t *testing.T, q *keyQueue, shutDown func(*keyQueue)) {
		var producers, consumers sync.WaitGroup
		var passes atomic.Int32
		for i := range 50 {
			producers.Go(func() { q.Add(fmt.Sprint("k", i)) })
		}
		for range 10 {
			consumers.Go(func() {
				seen := map[string]bool{}
				for {
					key, down := q.Get()
					if down {
						return
					}
					passes.Add(1)
					if !seen[key] {
						q.Add(key)
					}
					seen[key] = true
					q.Done(key)
				}
			})
		}
		producers.Wait()
		synctest.Wait()
		if n := passes.Load(); n < 100 {
			t.Errorf("%d passes: a key that was added while it was processed did not run again", n)
		}
		shutDown(q)
		consumers.Wait()
		wantLen(t, q, 0)
	})
}

func TestLen(t *testing.T) {
	eachShutDown(t, func(t *testing.T, q *keyQueue, shutDown func(*keyQueue)) {
		for i, key := range []string{"foo", "bar", "foo"} {
			q.Add(key)
			wantLen(t, q, min(i+1, 2))
		}
		shutDown(q)
	})
}

func TestReinsert(t *testing.T) {
	eachShutDown(t, func(t *testing.T, q *keyQueue, shutDown func(*keyQueue)) {
		q.Add("foo")
		wantNext(t, q, "foo")
		q.Add("foo")
		wantLen(t, q, 0)
		q.Done("foo")
		wantNext(t, q, "foo")
		q.Done("foo")
		wantLen(t, q, 0)
		shutDown(q)
	})
}

func TestCollapse(t *testing.T) {
	eachShutDown(t, func(t *testing.T, q *keyQueue, shutDown func(*keyQueue)) {
		q.AddIn(Background, "bar")
		q.Add("ahead")
		q.AddIn(Urgent, "bar") // Touch, which is how it gets ahead
		wantNext(t, q, "bar")
		q.Done("bar")
		wantNext(t, q, "ahead")
		q.Done("ahead")
		wantLen(t, q, 0)
		shutDown(q)
	})
}

func TestCollapseWhileProcessing(t *testing.T) {
	eachShutDown(t, func(t *testing.T, q *keyQueue, shutDown func(*keyQueue)) {
		q.Add("foo")
		wantNext(t, q, "foo")
		q.Add("foo")
		q.Add("foo")
		var got atomic.Pointer[string]
		go func() {
			key, _ := q.Get()
			got.Store(&key)
			q.Done(key)
		}()
		synctest.Wait()
		if got.Load() != nil {
			t.Error("a second worker has the key before the first is done with it")
		}
		q.Done("foo")
		synctest.Wait()
		if key := got.Load(); key == nil || *key != "foo" {
			t.Error("the second worker did not get the key")
		}
		wantLen(t, q, 0)
		shutDown(q)
	})
}

// drain starts ShutDownWithDrain and reports when it has returned.
func drain(q *keyQueue) *atomic.Bool {
	var over atomic.Bool
	go func() {
		q.ShutDownWithDrain()
		over.Store(true)
	}()
	synctest.Wait()
	return &over
}

// busy returns a queue with two keys being processed.
func busy(t *testing.T) *keyQueue {
	q := newKeyQueue()
	q.Add("foo")
	q.Add("bar")
	wantNext(t, q, "foo")
	wantNext(t, q, "bar")
	return q
}

func wantOver(t *testing.T, over *atomic.Bool, want bool) {
	t.Helper()
	synctest.Wait()
	if got := over.Load(); got != want {
		t.Errorf("ShutDownWithDrain has returned: %v, want %v", got, want)
	}
}

func TestQueueDrainageUsingShutDownWithDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := busy(t)
		defer q.ShutDown()
		over := drain(q)
		if _, down := q.Get(); !down {
			t.Error("Get does not say that the queue is shutting down")
		}
		q.Done("foo")
		wantOver(t, over, false)
		q.Done("bar")
		wantOver(t, over, true)
	})
}

func TestNoQueueDrainageUsingShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy(t).ShutDown() // returns although nobody calls Done
	})
}

func TestForceQueueShutdownUsingShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := busy(t)
		defer q.ShutDown()
		over := drain(q)
		wantOver(t, over, false)
		q.ShutDown()
		wantOver(t, over, true)
	})
}

func TestQueueDrainageUsingShutDownWithDrainWithDirtyItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newKeyQueue()
		q.Add("foo")
		defer q.ShutDown()
		wantNext(t, q, "foo")
		q.Add("foo")
		over := drain(q)
		q.Done("foo")
		wantNext(t, q, "foo")
		wantOver(t, over, false)
		q.Done("foo")
		if _, down := q.Get(); !down {
			t.Error("Get does not say that the queue is shut down")
		}
		wantOver(t, over, true)
	})
}

func TestGarbageCollection(t *testing.T) {
	q := newKeyQueue()
	defer q.ShutDown()
	q.Add("foo")
	key, _ := q.Get()
	v, _ := q.taken.Load(key)
	kept, forgotten := weak.Make(v.(*record)), false
	v = nil
	q.Done(key)
	for range 3 * maxSettled { // the ledger's memory is finite
		q.Add("bar")
		key, _ = q.Get()
		q.Done(key)
	}
	q.ledger.mu.Lock()
	q.ledger.sweep()
	q.ledger.mu.Unlock()
	for i := 0; i < 100 && !forgotten; i++ {
		runtime.GC()
		forgotten = kept.Value() == nil
	}
	if !forgotten {
		t.Error("a key that is done with is kept in memory")
	}
	runtime.KeepAlive(q)
}

// What a wave of keys needs goes with it, the room in the map too.
func TestMapsShrink(t *testing.T) {
	const n = 50_000
	q := newKeyQueue()
	defer q.ShutDown()
	for i := range n {
		q.Add(fmt.Sprint("f", i))
	}
	for range n {
		key, _ := q.Get()
		q.Done(key)
	}
	if f := q.ledger.tenants["f"]; f.peak > n/2 || len(f.records) > 2*maxSettled || len(f.records) != q.ledger.records {
		t.Errorf("%d records, %d counted, in a map for %d", len(f.records), q.ledger.records, f.peak)
	}
}

// Between Enqueue's wish and its Add a sweep must not give the record up: there
// would be two for the key, and two workers could have it.
func TestWantedRecordIsKept(t *testing.T) {
	q := newKeyQueue()
	defer q.ShutDown()
	q.Add("foo")
	key, _ := q.Get()
	q.Done(key)
	foo := cache.ObjectName{Namespace: "f", Name: "foo"}
	r := q.ledger.wish(foo, Normal)
	for i := range 4 * maxSettled {
		q.Add(fmt.Sprint("f", i))
		key, _ = q.Get()
		q.Done(key)
	}
	if q.ledger.find(foo) != r || r.gone {
		t.Error("a wanted key's record was given up")
	}
	if q.ledger.records > 3*maxSettled {
		t.Errorf("%d records: nothing was swept", q.ledger.records)
	}
}
