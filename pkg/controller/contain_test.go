package controller_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// R53: peers that accept and never answer cost their keys, not the controller.
func TestR53_WedgedWorkersAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := &script{do: func(_ context.Context, k cache.ObjectName, _ int) (controller.Result, error) {
			if k.Namespace == "hung" {
				<-hang // ignores its context
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s, Workers: 2, ReconcileTimeout: time.Minute})
		defer r.finish()
		hung := keys("hung", 5)
		r.Enqueue(controller.Urgent, hung[0], hung[1])
		synctest.Wait()
		r.Enqueue(controller.Normal, key("a"))
		sleep(89 * time.Second)
		if got := s.count(key("a")); got != 0 {
			t.Fatal("a third worker before the grace was over")
		}
		sleep(2 * time.Second)
		if got := s.count(key("a")); got != 1 {
			t.Fatal("the pool starves on two passes that never return")
		}
		got := r.Snapshot()
		if diff := cmp.Diff([]string{hung[0].String(), hung[1].String()}, got.Wedged); diff != "" {
			t.Errorf("wedged keys (-want +got):\n%s", diff)
		}
		if want := (controller.Workers{Size: 2, Running: 4, Wedged: 2}); got.Workers != want {
			t.Errorf("workers %+v, want %+v", got.Workers, want)
		}
		if err := r.Check(); err != nil {
			t.Errorf("Check fails while workers are free: %v", err)
		}

		// As many replacements as workers, and no more.
		r.Enqueue(controller.Urgent, hung[2:]...)
		r.Enqueue(controller.Normal, key("b"))
		sleep(10 * time.Minute)
		got = r.Snapshot()
		if want := (controller.Workers{Size: 2, Running: 4, Wedged: 4}); got.Workers != want {
			t.Errorf("workers %+v, want %+v", got.Workers, want)
		}
		if s.count(key("b")) != 0 || got.Ready.Normal != 1 {
			t.Errorf("nobody is left, but: %+v", got)
		}
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "test") {
			t.Errorf("Check says %v with every worker wedged", err)
		}

		// They come back: the surplus leaves.
		close(hang)
		sleep(time.Second)
		got = r.Snapshot()
		if want := (controller.Workers{Size: 2, Running: 2}); got.Workers != want {
			t.Errorf("workers %+v after all came back, want %+v", got.Workers, want)
		}
		if err := r.Check(); err != nil || len(got.Wedged) != 0 {
			t.Errorf("still reported wedged: %v, %v", err, got.Wedged)
		}
		if s.count(key("b")) != 1 || s.count(hung[4]) != 1 {
			t.Error("keys were lost")
		}
	})
}

func TestPanicsAreContainedAndShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ context.Context, k cache.ObjectName, n int) (controller.Result, error) {
			if n == 1 && k.Name == "pass" {
				var m map[string]int
				m["x"] = 1 //lint:ignore SA5000 the runtime's own panic is what this is about
			}
			return controller.Result{}, nil
		}}
		var gated atomic.Int32
		r := start(t, controller.Config{Reconciler: s, Gate: func(k cache.ObjectName) controller.Verdict {
			if k.Name == "gate" && gated.Add(1) == 1 {
				panic("no such resource")
			}
			return controller.Verdict{}
		}})
		defer r.finish()
		r.Enqueue(controller.Normal, key("pass"))
		synctest.Wait()
		r.Enqueue(controller.Normal, key("gate"))
		synctest.Wait()
		if ok := r.Protect("index by config", key("index"), func() { panic("nil map") }); ok {
			t.Error("Protect says that f returned")
		}
		if ok := r.Protect("index by config", key("index"), func() {}); !ok {
			t.Error("Protect says that f did not return")
		}
		sleep(time.Second)
		for _, k := range []string{"pass", "gate", "index"} {
			if want := map[string]int{"pass": 2, "gate": 1, "index": 1}[k]; s.count(key(k)) != want {
				t.Errorf("%s ran %d times, want %d", k, s.count(key(k)), want)
			}
		}
		panics := r.Snapshot().Panics
		for i := range panics {
			panics[i].LastTime = time.Time{}
		}
		want := []controller.Panics{
			{Origin: "Reconcile", Count: 2, Last: "panic: no such resource", LastKey: "ns/gate"},
			{Origin: "index by config", Count: 1, Last: "nil map", LastKey: "ns/index"},
		}
		if diff := cmp.Diff(want, panics); diff != "" {
			t.Errorf("panics (-want +got):\n%s", diff)
		}
	})
}
