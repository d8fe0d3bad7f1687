package controller_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// A Stale key is looked at steadily, without growth, and its failures are kept.
func TestStaleNeitherGrowsNorForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var behind box[bool]
		behind.set(true)
		s := &script{do: func(_ context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
			return controller.Result{}, io.EOF
		}}
		var asked atomic.Int32
		r := start(t, controller.Config{Reconciler: s, Workers: 1, RetryBaseDelay: time.Second, Gate: func(cache.ObjectName) controller.Verdict {
			if asked.Add(1) > 1 && behind.get() {
				return controller.Verdict{State: controller.Stale, Reason: "Deployment ns/a at 12"}
			}
			return controller.Verdict{}
		}})
		defer r.finish()
		r.Enqueue(controller.Normal, key("a"))
		sleep(11 * time.Second)
		got := r.state(key("a"))
		if got.Class != controller.ClassStale || got.Attempts != 1 || got.Reason != "Deployment ns/a at 12" {
			t.Errorf("while stale: %+v", got)
		}
		if n := asked.Load(); n < 45 || n > 53 {
			t.Errorf("gate was asked %d times in 10 s, want about 50", n)
		}
		behind.set(false)
		sleep(200 * time.Millisecond)
		if got := r.state(key("a")); got.Attempts != 2 {
			t.Errorf("stale looks changed the number of failures: %+v", got)
		}
	})
}

func TestFrozenIsNotReconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var verdict box[controller.Verdict]
		verdict.set(controller.Verdict{State: controller.Frozen, Reason: "spec.timeout"})
		s := &script{}
		var observed classes
		r := start(t, controller.Config{Reconciler: s, Workers: 1, Gate: func(cache.ObjectName) controller.Verdict { return verdict.get() },
			Observe: observed.observe})
		defer r.finish()
		r.Enqueue(controller.Urgent, key("a"))
		sleep(time.Minute)
		if got := s.count(key("a")); got != 0 {
			t.Fatalf("a frozen key was reconciled %d times", got)
		}
		seen := observed.get()
		if got := r.state(key("a")); got.Class != controller.ClassFrozen || got.Reason != "spec.timeout" || len(seen) != 1 {
			t.Errorf("shown as %+v, observed %v", got, seen)
		}
		if got := r.Snapshot(); got.Frozen != 1 || got.Failing != 0 {
			t.Errorf("counted as %+v", got)
		}
		verdict.set(controller.Verdict{})
		r.Enqueue(controller.Normal, key("a"))
		synctest.Wait()
		if got := s.count(key("a")); got != 1 {
			t.Errorf("a thawed key ran %d times, want once", got)
		}
	})
}
