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

func TestConfigIsChecked(t *testing.T) {
	good := controller.Config{Name: "c", Reconciler: &script{}, Keys: noKeys}
	for name, tc := range map[string]struct {
		reason string
		change func(*controller.Config)
		field  string // "" if accepted
	}{
		"zero":       {"all optional fields have defaults", func(*controller.Config) {}, ""},
		"name":       {"required", func(c *controller.Config) { c.Name = "" }, "Config.Name"},
		"reconciler": {"required", func(c *controller.Config) { c.Reconciler = nil }, "Config.Reconciler"},
		"keys":       {"required", func(c *controller.Config) { c.Keys = nil }, "Config.Keys"},
		"workers":    {"negative", func(c *controller.Config) { c.Workers = -1 }, "Config.Workers"},
		"timeout":    {"negative", func(c *controller.Config) { c.ReconcileTimeout = -1 }, "Config.ReconcileTimeout"},
		"shutdown":   {"negative", func(c *controller.Config) { c.ShutdownTimeout = -1 }, "Config.ShutdownTimeout"},
		"base":       {"negative", func(c *controller.Config) { c.RetryBaseDelay = -1 }, "Config.RetryBaseDelay"},
		"max":        {"negative", func(c *controller.Config) { c.RetryMaxDelay = -1 }, "Config.RetryMaxDelay"},
		"recheck":    {"negative", func(c *controller.Config) { c.TerminalRecheck = -1 }, "Config.TerminalRecheck"},
		"qps":        {"negative", func(c *controller.Config) { c.RetryQPS = -1 }, "Config.RetryQPS"},
		"burst":      {"negative", func(c *controller.Config) { c.RetryBurst = -1 }, "Config.RetryBurst"},
		"cap below":  {"makes no sense", func(c *controller.Config) { c.RetryBaseDelay, c.RetryMaxDelay = 2, 1 }, "Config.RetryMaxDelay"},
		"short cap":  {"the default base follows it down", func(c *controller.Config) { c.RetryMaxDelay = time.Millisecond }, ""},
		"long base":  {"the default cap follows it up", func(c *controller.Config) { c.RetryBaseDelay = time.Hour }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			_, err := controller.New(cfg)
			if tc.field == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.field) {
				t.Errorf("%s: error %v does not name %s", tc.reason, err, tc.field)
			}
		})
	}
}

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
				m["x"] = 1
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

func TestLedgerIsShownInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &script{do: func(_ context.Context, k cache.ObjectName, _ int) (controller.Result, error) {
			time.Sleep(time.Second)
			switch k.Name {
			case "fails":
				return controller.Result{}, errors.New(strings.Repeat("é", 2000))
			case "waits":
				return controller.Result{After: time.Minute, Reason: "certificate is not ready"}, nil
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s, RetryBaseDelay: 10 * time.Second, Workers: 3})
		defer r.finish()
		r.Enqueue(controller.Normal, key("fails"), key("waits"), cache.NewObjectName("", "done"))
		sleep(2 * time.Second)
		r.Enqueue(controller.Urgent, key("runs"))
		synctest.Wait()

		all, more := r.Keys(10, cache.ObjectName{})
		if more || len(all) != 4 {
			t.Fatalf("got %d entries, more %v", len(all), more)
		}
		if e := all[1].Error; len(e) > 1100 || !strings.HasSuffix(e, "é…") {
			t.Errorf("error text of %d bytes is not cut cleanly", len(e))
		}
		if d := all[1].NotBefore.Sub(began.Add(time.Second)); !within(d, 10*time.Second) {
			t.Errorf("fails waits for %s", d)
		}
		all[1].Error, all[1].NotBefore = "", time.Time{}
		ran := began.Add(time.Second)
		want := []controller.KeyState{
			{Key: "done", State: "Idle", Since: ran, Class: controller.ClassDone, LastRun: ran, DurationSeconds: 1},
			{Key: "ns/fails", State: "Waiting", Since: ran, Attempts: 1, Class: controller.ClassRetry, LastRun: ran, DurationSeconds: 1},
			{Key: "ns/runs", State: "Processing", Since: began.Add(2 * time.Second)},
			{Key: "ns/waits", State: "Waiting", Since: ran, NotBefore: ran.Add(time.Minute), Class: controller.ClassWait,
				Reason: "certificate is not ready", LastRun: ran, DurationSeconds: 1},
		}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		page, more := r.Keys(2, cache.NewObjectName("ns", "fails"))
		if more || len(page) != 2 || page[0].Key != "ns/runs" {
			t.Errorf("second page: %v, more %v", page, more)
		}
		if page, more = r.Keys(1, cache.NewObjectName("ns", "fails")); !more || len(page) != 1 {
			t.Errorf("limited page: %v, more %v", page, more)
		}
		wantTotals := controller.Snapshot{Controller: "test", Running: true,
			Workers: controller.Workers{Size: 3, Running: 3}, Processing: 1, Waiting: 2, Failing: 1}
		if diff := cmp.Diff(wantTotals, r.Snapshot()); diff != "" {
			t.Errorf("totals (-want +got):\n%s", diff)
		}
	})
}
