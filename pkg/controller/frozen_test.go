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

// What is called for a frozen key is bound by the rules of a pass, and shown as
// frozen unless it fails. The Reconciler, which would act on a spec, never runs.
func TestFrozenHook(t *testing.T) {
	type answer = func(context.Context) (controller.Result, error)
	for name, tc := range map[string]struct {
		reason   string
		answer   answer
		class    controller.Class
		shown    string
		failure  string
		min, max time.Duration
		attempts int
	}{
		"no error": {"looked at again as without a hook", func(context.Context) (controller.Result, error) { return controller.Result{}, nil },
			controller.ClassFrozen, "spec.timeout", "", time.Hour, 66 * time.Minute, 0},
		"after": {"exactly when asked, and still frozen", func(context.Context) (controller.Result, error) {
			return controller.Result{After: 30 * time.Second, Reason: "draining"}, nil
		}, controller.ClassFrozen, "spec.timeout; draining", "", 30 * time.Second, 30 * time.Second, 0},
		"error": {"retried like any other", func(context.Context) (controller.Result, error) { return controller.Result{}, io.EOF },
			controller.ClassRetry, "spec.timeout", "EOF", 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"error with an After": {"the error decides", func(context.Context) (controller.Result, error) {
			return controller.Result{After: time.Minute, Reason: "draining"}, io.EOF
		}, controller.ClassRetry, "spec.timeout", "EOF", 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"refused": {"with the floor of its class", func(context.Context) (controller.Result, error) { return controller.Result{}, invalid },
			controller.ClassInvalid, "spec.timeout", invalid.Error(), 270 * time.Second, 297 * time.Second, 1},
		"panic": {"contained", func(context.Context) (controller.Result, error) { panic("boom") },
			controller.ClassPanic, "spec.timeout", "panic: boom", 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"deadline": {"ended by the reconcile timeout", func(ctx context.Context) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		}, controller.ClassDeadline, "spec.timeout", context.DeadlineExceeded.Error(), 90 * time.Millisecond, 110 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var first atomic.Pointer[controller.KeyState] // as the second run found it
				spec, hook := &script{}, &script{}
				var r *running
				hook.do = func(ctx context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
					if n > 1 {
						state, _ := r.Key(key("a"))
						first.CompareAndSwap(nil, &state)
						return controller.Result{}, nil
					}
					return tc.answer(ctx)
				}
				const timeout = time.Second
				r = start(t, controller.Config{Reconciler: spec, Frozen: hook, Workers: 1, ReconcileTimeout: timeout,
					Gate: func(cache.ObjectName) controller.Verdict {
						return controller.Verdict{State: controller.Frozen, Reason: "spec.timeout"}
					}})
				defer r.finish()
				r.Enqueue(controller.Normal, key("a"))
				sleep(timeout)
				got := r.state(key("a"))
				if hook.count(key("a")) > 1 { // it has run again already
					got = *first.Load()
				}
				if got.Class != tc.class || got.Reason != tc.shown || got.Error != tc.failure || got.Attempts != tc.attempts {
					t.Errorf("%s: shown as %+v", tc.reason, got)
				}
				sleep(2 * time.Hour)
				ran := hook.times(key("a"))
				if len(ran) < 2 {
					t.Fatalf("%s: ran only %d times", tc.reason, len(ran))
				}
				delay := ran[1].Sub(ran[0])
				if tc.class == controller.ClassDeadline {
					delay -= timeout
				}
				if delay < tc.min || delay > tc.max {
					t.Errorf("%s: ran again after %s, want %s to %s", tc.reason, delay, tc.min, tc.max)
				}
				if n := spec.count(key("a")); n != 0 {
					t.Errorf("a frozen key was reconciled %d times", n)
				}
			})
		})
	}
}

// A key that thaws goes to the Reconciler again, one that freezes leaves it.
func TestFrozenHookAndReconcilerTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var verdict box[controller.Verdict]
		spec, hook := &script{}, &script{}
		r := start(t, controller.Config{Reconciler: spec, Frozen: hook, Workers: 1,
			Gate: func(cache.ObjectName) controller.Verdict { return verdict.get() }})
		defer r.finish()
		for n, v := range []controller.Verdict{{State: controller.Frozen}, {}, {State: controller.Frozen}, {State: controller.Stale}} {
			verdict.set(v)
			r.Enqueue(controller.Normal, key("a"))
			synctest.Wait()
			if got := [2]int{hook.count(key("a")), spec.count(key("a"))}; got != [][2]int{{1, 0}, {1, 1}, {2, 1}, {2, 1}}[n] {
				t.Errorf("after step %d: hook ran %d times, Reconciler %d times", n, got[0], got[1])
			}
		}
	})
}
