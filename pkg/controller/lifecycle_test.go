package controller_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// A standby takes nothing; whoever takes the lead works through the listers, in
// the Background lane, with a fresh queue each time.
func TestStandbyLeadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ context.Context, k cache.ObjectName, _ int) (controller.Result, error) {
			if k.Name == "waits" {
				return controller.Result{After: time.Minute}, nil
			}
			return controller.Result{}, io.EOF
		}}
		listed := []cache.ObjectName{key("fails"), key("waits")}
		c, err := controller.New(controller.Config{Name: "c", Reconciler: s, RetryBaseDelay: 30 * time.Second,
			Keys: func() []cache.ObjectName { return listed }})
		if err != nil {
			t.Fatal(err)
		}
		c.Enqueue(controller.Urgent, key("early"))
		if c.RetryNow(key("early")) {
			t.Error("RetryNow worked on a standby")
		}

		r := again(t, c)
		if s.count(key("fails")) != 1 || s.count(key("waits")) != 1 || s.count(key("early")) != 0 {
			t.Fatalf("first lead ran %v, want what Keys lists and nothing else", s.sequence())
		}
		sleep(time.Second)
		r.finish()
		if got, want := c.Snapshot(), (controller.Snapshot{Controller: "c", Workers: controller.Workers{Size: 4}}); !cmp.Equal(got, want) {
			t.Errorf("a standby shows (-want +got):\n%s", cmp.Diff(want, got))
		}
		c.Enqueue(controller.Urgent, key("early"))
		sleep(time.Hour)
		if got := len(s.sequence()); got != 2 {
			t.Fatalf("%d passes after the lead was lost, want none: %v", got-2, s.sequence())
		}

		r = again(t, c)
		defer r.finish()
		if s.count(key("fails")) != 2 || s.count(key("waits")) != 2 {
			t.Fatalf("second lead ran %v", s.sequence()[2:])
		}
		if got := r.state(key("fails")); got.Attempts != 1 {
			t.Errorf("failures of an earlier lead are counted: %+v", got)
		}
	})
}

func TestKeysAreBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &script{do: func(context.Context, cache.ObjectName, int) (controller.Result, error) {
			<-release
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s, Workers: 1, Keys: func() []cache.ObjectName { return keys("ns", 10) }})
		defer r.finish()
		if got, want := r.Snapshot().Ready, (controller.Ready{Background: 9}); got != want {
			t.Errorf("ready: %+v, want %+v", got, want)
		}
		close(release)
		synctest.Wait()
	})
}

func TestRunRefusesASecondRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, controller.Config{Reconciler: &script{}})
		defer r.finish()
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second Run returned %v", err)
		}
	})
}

// R80, R76: intake stops at once, queued keys are dropped, running passes go on
// with a live context, then are cut, then Run returns.
func TestR80_ShutdownOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Int32
		s := &script{do: func(ctx context.Context, k cache.ObjectName, _ int) (controller.Result, error) {
			limit := 10 * time.Second // within the shutdown timeout
			if k.Name == "long" {
				limit = time.Hour
			}
			select {
			case <-ctx.Done():
				cut.Add(1)
				return controller.Result{}, ctx.Err()
			case <-time.After(limit):
				return controller.Result{}, nil
			}
		}}
		var observed classes
		r := start(t, controller.Config{Reconciler: s, Workers: 2, Observe: observed.observe})
		r.Enqueue(controller.Urgent, key("long"), key("short"))
		synctest.Wait()
		r.Enqueue(controller.Urgent, keys("other", 100)...)
		r.Enqueue(controller.Urgent, key("short"))
		synctest.Wait()

		began := time.Now()
		r.cancel(nil)
		synctest.Wait()
		r.Enqueue(controller.Urgent, key("late"))
		sleep(9 * time.Second)
		if n := cut.Load(); n != 0 {
			t.Fatalf("%d passes were cut because intake stopped", n)
		}
		if got := r.Snapshot(); got.Running || got.Processing != 2 {
			t.Errorf("while draining: %+v", got)
		}
		if err := <-r.ended; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("Run returned %s after its context, want the 30 s of the shutdown timeout", d)
		}
		if got := len(s.sequence()); got != 2 {
			t.Errorf("queued keys ran during the shutdown: %v", s.sequence()[2:])
		}
		if diff := cmp.Diff([]controller.Class{controller.ClassDone}, observed.get()); diff != "" {
			t.Errorf("a pass cut by the shutdown was counted (-want +got):\n%s", diff)
		}
	})
}

// Nothing to wait for: Run returns at once.
func TestIdleShutdownIsImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, controller.Config{Reconciler: &script{}})
		r.Enqueue(controller.Normal, keys("ns", 100)...)
		synctest.Wait()
		began := time.Now()
		r.finish()
		if d := time.Since(began); d != 0 {
			t.Errorf("Run took %s to return", d)
		}
	})
}

func TestAbortEndsPassesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause box[error]
		s := &script{do: func(ctx context.Context, _ cache.ObjectName, _ int) (controller.Result, error) {
			<-ctx.Done()
			cause.set(context.Cause(ctx))
			return controller.Result{}, ctx.Err()
		}}
		r := start(t, controller.Config{Reconciler: s})
		r.Enqueue(controller.Normal, key("a"))
		synctest.Wait()
		began := time.Now()
		if err := r.stop(controller.ErrAbort); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("Run took %s to return", d)
		}
		if err := cause.get(); !errors.Is(err, controller.ErrAbort) {
			t.Errorf("the pass saw the cause %v", err)
		}
	})
}

// A pass that cannot be stopped makes Run say so, and keeps a new Run away until
// it is back; then it touches nothing of the new one.
func TestErrWorkersRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &script{do: func(_ context.Context, k cache.ObjectName, n int) (controller.Result, error) {
			if n == 1 {
				<-release
				return controller.Result{}, io.EOF
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s})
		r.Enqueue(controller.Normal, key("a"))
		synctest.Wait()
		r.Enqueue(controller.Normal, key("a")) // dirty while processing
		began := time.Now()
		if err := r.stop(controller.ErrAbort); !errors.Is(err, controller.ErrWorkersRunning) {
			t.Fatalf("Run returned %v, want ErrWorkersRunning", err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("Run returned after %s, want the grace of 3 s", d)
		}
		if got := r.Snapshot(); got.Running || got.Processing != 1 || got.Workers.Running != 1 {
			t.Errorf("the pass left behind is not shown: %+v", got)
		}
		if err := r.Run(t.Context()); !errors.Is(err, controller.ErrWorkersRunning) {
			t.Fatalf("Run beside an old pass returned %v, want ErrWorkersRunning", err)
		}
		close(release)
		synctest.Wait()
		next := again(t, r.Controller)
		defer next.finish()
		sleep(time.Hour)
		if got := s.count(key("a")); got != 1 {
			t.Errorf("the old pass's retry ran in the new Run: %d passes", got)
		}
		if _, known := next.Key(key("a")); known {
			t.Error("the old pass left a trace in the new ledger")
		}
	})
}

// R89: handlers may enqueue as fast as they like while every worker is blocked.
func TestR89_EnqueueNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &script{do: func(context.Context, cache.ObjectName, int) (controller.Result, error) {
			<-release
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		for range 500 {
			r.Enqueue(controller.Normal, keys("ns", 100)...)
		}
		if got := r.Snapshot(); got.Ready.Normal+got.Processing > 100 {
			t.Errorf("50,000 events of 100 keys made %d entries", got.Ready.Normal+got.Processing)
		}
		close(release)
		synctest.Wait()
	})
}
