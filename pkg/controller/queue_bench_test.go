//go:build unix

package controller

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// benched is a queue as a controller uses it.
type benched struct {
	add func(cache.ObjectName)
	// work takes one key and is done with it, without a failure.
	work     func()
	shutDown func()
}

// queues are client-go's plain queue, the one that its controllers use by default
// (which also forgets every key in the limiter), and ours with all that it keeps.
var queues = []struct {
	name string
	make func(workqueue.MetricsProvider) benched
}{
	{"plain", func(p workqueue.MetricsProvider) benched {
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Name: "bench", MetricsProvider: p})
		return benched{add: q.Add, shutDown: q.ShutDown, work: func() {
			key, _ := q.Get()
			q.Done(key)
		}}
	}},
	{"default", func(p workqueue.MetricsProvider) benched {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "bench", MetricsProvider: p})
		return benched{add: q.Add, shutDown: q.ShutDown, work: func() {
			key, _ := q.Get()
			q.Forget(key)
			q.Done(key)
		}}
	}},
	{"ours", func(p workqueue.MetricsProvider) benched {
		c := &Controller{cfg: Config{Name: "bench"}}
		if p != nil {
			c.metrics = newQueueMetrics(p)
		}
		l, lim := newLedger(), &limiter{}
		q := newQueue(klog.Logger{}, c, newLanes(l))
		return benched{
			add:      func(key cache.ObjectName) { q.Add(l.wish(key, Normal)) },
			shutDown: q.ShutDown,
			work: func() {
				r, _ := q.Get()
				if !l.popped(r).run {
					panic("not run")
				}
				lim.Forget(r)
				l.finished(r, l.now(), outcome{class: ClassDone})
				q.Done(r)
			},
		}
	}},
}

func benchKeys(n int) []cache.ObjectName {
	all := make([]cache.ObjectName, n)
	for i := range all {
		all[i] = cache.NewObjectName(fmt.Sprint("namespace-", i%50), fmt.Sprint("object-", i))
	}
	return all
}

// cpuTime is what the process has had so far, the garbage collector included: the
// measure that other processes on the machine disturb least.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A key is added to a queue that holds backlog others, and one is taken and done.
func BenchmarkQueue(b *testing.B) {
	for _, backlog := range []int{0, 10_000} {
		all := benchKeys(backlog + 1)
		for _, queue := range queues {
			b.Run(fmt.Sprintf("backlog=%d/queue=%s", backlog, queue.name), func(b *testing.B) {
				q := queue.make(nil)
				defer q.shutDown()
				for _, key := range all[:backlog] {
					q.add(key)
				}
				for i := 0; b.Loop(); i++ {
					q.add(all[(backlog+i)%len(all)])
					q.work()
				}
			})
		}
	}
}

// A million keys are added and then worked off.
func BenchmarkQueueMillion(b *testing.B) {
	const n = 1_000_000
	all := benchKeys(n)
	for _, workers := range []int{1, 8, 64} {
		for _, queue := range queues {
			b.Run(fmt.Sprintf("workers=%d/queue=%s", workers, queue.name), func(b *testing.B) {
				q := queue.make(nil)
				defer q.shutDown()
				b.ReportAllocs()
				before := cpuTime()
				for b.Loop() {
					for _, key := range all {
						q.add(key)
					}
					var done sync.WaitGroup
					for w := range workers {
						done.Go(func() {
							for range (n + workers - 1 - w) / workers {
								q.work()
							}
						})
					}
					done.Wait()
				}
				b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/float64(b.N)/n, "cpu-ns/key")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
			})
		}
	}
}
