package controller

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// What lanes and ledger cost on top of client-go's plain queue: a key is added to
// a queue that holds backlog others, and one is taken and done.
//
//	go test -run '^$' -bench Queue -benchmem ./pkg/controller/
func BenchmarkQueue(b *testing.B) {
	for _, backlog := range []int{0, 10_000} {
		all := make([]cache.ObjectName, backlog+1)
		for i := range all {
			all[i] = cache.NewObjectName(fmt.Sprint("ns-", i%50), fmt.Sprint("object-", i))
		}
		b.Run(fmt.Sprintf("client-go/backlog=%d", backlog), func(b *testing.B) {
			q := workqueue.NewTyped[cache.ObjectName]()
			defer q.ShutDown()
			for _, key := range all[1:] {
				q.Add(key)
			}
			key := all[0]
			for b.Loop() {
				q.Add(key)
				key, _ = q.Get()
				q.Done(key)
			}
		})
		b.Run(fmt.Sprintf("lanes+ledger/backlog=%d", backlog), func(b *testing.B) {
			l := newLedger()
			q := newQueue(klog.Logger{}, &Controller{}, newLanes(l))
			defer q.ShutDown()
			add := func(key cache.ObjectName) {
				l.wish(key, Normal)
				q.Add(key)
			}
			for _, key := range all[1:] {
				add(key)
			}
			key := all[0]
			for b.Loop() {
				add(key)
				key, _ = q.Get()
				if !l.popped(key).run {
					b.Fatal("not run")
				}
				l.finished(key, outcome{class: ClassDone})
				q.Done(key)
			}
		})
	}
}
