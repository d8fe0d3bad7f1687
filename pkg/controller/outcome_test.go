package controller_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// Each class by what happens next: when the key runs again by itself, and what is
// counted.
func TestOutcomes(t *testing.T) {
	type answer = func(context.Context) (controller.Result, error)
	fails := func(err error) answer {
		return func(context.Context) (controller.Result, error) { return controller.Result{}, err }
	}
	const never = time.Duration(0)
	for name, tc := range map[string]struct {
		reason   string
		answer   answer
		class    controller.Class
		min, max time.Duration
		attempts int
	}{
		"done": {"nothing is owed", fails(nil), controller.ClassDone, never, never, 0},
		"wait": {"exactly when asked", func(context.Context) (controller.Result, error) {
			return controller.Result{After: 7 * time.Minute, Reason: "certificate"}, nil
		}, controller.ClassWait, 7 * time.Minute, 7 * time.Minute, 0},
		"negative after": {"means nothing", func(context.Context) (controller.Result, error) { return controller.Result{After: -1}, nil }, controller.ClassDone, never, never, 0},
		"retry":          {"the base delay, jittered", fails(io.EOF), controller.ClassRetry, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"R55 error with an After": {"an error with an After is an error", func(context.Context) (controller.Result, error) {
			return controller.Result{After: time.Minute, Reason: "x"}, io.EOF
		}, controller.ClassRetry, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"conflict":              {"quicker than a failure and none", fails(conflict), controller.ClassConflict, 9 * time.Millisecond, 11 * time.Millisecond, 0},
		"field conflict":        {"slowly", fails(fieldConflict), controller.ClassFieldConflict, time.Minute, 66 * time.Second, 1},
		"invalid":               {"a floor, but within 5 minutes", fails(invalid), controller.ClassInvalid, 270 * time.Second, 5 * time.Minute, 1},
		"terminal":              {"the recheck", fails(controller.Terminal(io.EOF)), controller.ClassTerminal, time.Hour, 66 * time.Minute, 1},
		"stale":                 {"fixed and short", fails(controller.ErrStale), controller.ClassStale, 200 * time.Millisecond, 200 * time.Millisecond, 0},
		"panic":                 {"as Retry", func(context.Context) (controller.Result, error) { panic("boom") }, controller.ClassPanic, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"nil error in an error": {"a classic of Go: its methods panic", fails((*apierrors.StatusError)(nil)), controller.ClassPanic, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"terminal nil error":    {"also where its mark would do", fails(controller.Terminal((*apierrors.StatusError)(nil))), controller.ClassPanic, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"goexit":                {"as a panic; the worker is made up for", func(context.Context) (controller.Result, error) { runtime.Goexit(); return controller.Result{}, nil }, controller.ClassPanic, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"deadline": {"as Retry", func(ctx context.Context) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		}, controller.ClassDeadline, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"own deadline": {"not ours", func(ctx context.Context) (controller.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		}, controller.ClassRetry, 90 * time.Millisecond, 110 * time.Millisecond, 1},
		"late success": {"past the deadline, but done is done", func(ctx context.Context) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, nil
		}, controller.ClassDone, never, never, 0},
		"retry after":        {"a lower bound", fails(apierrors.NewTooManyRequests("slow down", 60)), controller.ClassRetry, 60 * time.Second, 66 * time.Second, 1},
		"absurd retry after": {"bounded", fails(apierrors.NewTooManyRequests("go away", 1<<30)), controller.ClassRetry, time.Hour, 66 * time.Minute, 1},
		"joined retry after": {"found in every part", fails(errors.Join(io.EOF, apierrors.NewTooManyRequests("slow down", 60))), controller.ClassRetry, 60 * time.Second, 66 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended box[time.Time]
				var observed classes
				s := &script{do: func(ctx context.Context, k cache.ObjectName, n int) (controller.Result, error) {
					if n > 1 {
						return controller.Result{}, nil
					}
					defer func() { ended.set(time.Now()) }()
					return tc.answer(ctx)
				}}
				r := start(t, controller.Config{Reconciler: s, Workers: 1, ReconcileTimeout: time.Minute,
					Observe: observed.observe})
				defer r.finish()
				r.Enqueue(controller.Normal, key("a"))
				synctest.Wait()
				for ended.get().IsZero() {
					sleep(time.Second)
				}
				got, seen := r.state(key("a")), observed.get()
				if got.Class != tc.class || got.Attempts != tc.attempts || len(seen) != 1 || seen[0] != tc.class {
					t.Errorf("%s: class %s (observed %v) with %d attempts, want %s with %d", tc.reason, got.Class, seen, got.Attempts, tc.class, tc.attempts)
				}
				if got.DurationSeconds > 60 {
					t.Errorf("%s: the pass took %v s, longer than the reconcile timeout", tc.reason, got.DurationSeconds)
				}
				sleep(3 * time.Hour)
				times := s.times(key("a"))
				if tc.max == never {
					if len(times) != 1 {
						t.Errorf("%s: ran %d times, want once", tc.reason, len(times))
					}
					return
				}
				if len(times) != 2 {
					t.Fatalf("%s: ran %d times, want twice", tc.reason, len(times))
				}
				if d := times[1].Sub(ended.get()); d < tc.min || d > tc.max {
					t.Errorf("%s: ran again after %s, want %s to %s", tc.reason, d, tc.min, tc.max)
				}
				if got := r.state(key("a")); got.Attempts != 0 || got.State != "Idle" {
					t.Errorf("a success left %+v", got)
				}
			})
		})
	}
}

func TestR55_AfterBesideAnErrorIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
			if n == 1 {
				return controller.Result{After: time.Minute}, io.EOF
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		r.Enqueue(controller.Normal, key("a"))
		synctest.Wait()
		if got := r.Snapshot().IgnoredAfter; got != 1 {
			t.Errorf("IgnoredAfter = %d, want 1", got)
		}
	})
}

// It is widely believed that a key in backoff waits it out.
func TestEventRunsKeyInBackoffAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		err    error
	}{
		"retry":    {"plain backoff", io.EOF},
		"invalid":  {"a floor is ours to lift", invalid},
		"terminal": {"an event is what it waits for", controller.Terminal(io.EOF)},
		"conflict": {"an event may carry what was missing", conflict},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{do: func(_ context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
					if n == 1 {
						return controller.Result{}, tc.err
					}
					return controller.Result{}, nil
				}}
				r := start(t, controller.Config{Reconciler: s, RetryBaseDelay: 20 * time.Second})
				defer r.finish()
				r.Enqueue(controller.Normal, key("a"))
				sleep(time.Second)
				before := time.Now()
				r.Enqueue(controller.Background, key("a"))
				synctest.Wait()
				times := s.times(key("a"))
				if len(times) != 2 || !times[1].Equal(before) {
					t.Fatalf("%s: ran at %v, want a second time at %s", tc.reason, times, before)
				}
				// The timer of the failure is still in client-go's heap.
				sleep(2 * time.Hour)
				if got := s.count(key("a")); got != 2 {
					t.Errorf("a timer left over after a success ran the key: %d passes", got)
				}
				if got := r.Snapshot().Wakeups.LeftOver; got != 1 {
					t.Errorf("LeftOver = %d, want 1", got)
				}
			})
		})
	}
}

// A Retry-After of 60 s holds against a timer of 5 s that is still in the heap and
// against events, and RetryNow overrides it.
func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
			switch n {
			case 1:
				return controller.Result{After: 5 * time.Second}, nil
			case 2, 3:
				return controller.Result{}, apierrors.NewTooManyRequests("slow down", 60)
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		k := key("a")
		r.Enqueue(controller.Normal, k)
		sleep(time.Second)
		r.Enqueue(controller.Normal, k)
		synctest.Wait()
		refused := time.Now()
		for range 58 {
			sleep(time.Second)
			r.Enqueue(controller.Urgent, k)
			synctest.Wait()
		}
		if got := s.count(k); got != 2 {
			t.Fatalf("ran %d times within the Retry-After, want 2", got)
		}
		if got := r.state(k); !got.HeldUntil.Equal(refused.Add(time.Minute)) || got.State != "Waiting" {
			t.Errorf("not shown as held: %+v", got)
		}
		sleep(3 * time.Second)
		times := s.times(k)
		if len(times) != 3 || times[2].Sub(refused) != time.Minute {
			t.Fatalf("ran at %v, want the third pass 60 s after %s: an event was waiting", times, refused)
		}
		if !r.RetryNow(k) {
			t.Error("RetryNow says that the key was not waiting")
		}
		synctest.Wait()
		if got := s.count(k); got != 4 {
			t.Errorf("RetryNow did not override the Retry-After: %d passes", got)
		}
		if r.RetryNow(k) || r.RetryNow(key("unknown")) {
			t.Error("RetryNow says that a key without a timer was waiting")
		}
	})
}

// client-go can only bring a timer forward: a later one must win all the same.
func TestEarlyTimerIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
			return controller.Result{After: []time.Duration{0, 5 * time.Second, time.Minute, 0}[n]}, nil
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		r.Enqueue(controller.Normal, key("a"))
		sleep(time.Second)
		r.Enqueue(controller.Normal, key("a"))
		sleep(time.Hour)
		times := s.times(key("a"))
		if len(times) != 3 || times[2].Sub(times[1]) != time.Minute {
			t.Errorf("ran at %v, want the third pass a minute after the second", times)
		}
		if got := r.Snapshot().Wakeups.Early; got != 1 {
			t.Errorf("Early = %d, want 1", got)
		}
	})
}

func TestConflictsBackOffAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
			if n <= 20 {
				return controller.Result{}, conflict
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		r.Enqueue(controller.Normal, key("a"))
		sleep(100 * time.Millisecond)
		if got := r.Snapshot(); got.Conflicting != 1 || got.Failing != 0 {
			t.Errorf("conflicts are not counted apart: %+v", got)
		}
		sleep(time.Hour)
		times := s.times(key("a"))
		if len(times) != 21 {
			t.Fatalf("ran %d times, want 21", len(times))
		}
		for i, want := 1, 10*time.Millisecond; i < len(times); i, want = i+1, min(2*want, 30*time.Second) {
			if got := times[i].Sub(times[i-1]); !within(got, want) {
				t.Errorf("conflict %d waited %s, want about %s", i, got, want)
			}
		}
	})
}

// R56: an object that always fails is tried along the capped exponential.
func TestR56_FailuresFollowCappedExponential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(context.Context, cache.ObjectName, int) (controller.Result, error) {
			return controller.Result{}, io.EOF
		}}
		r := start(t, controller.Config{Reconciler: s})
		defer r.finish()
		r.Enqueue(controller.Normal, key("a"))
		sleep(10 * time.Minute)
		times := s.times(key("a"))
		if len(times) < 25 || len(times) > 35 {
			t.Errorf("%d passes in 10 min, want about 28", len(times))
		}
		for i, want := 1, 100*time.Millisecond; i < len(times); i, want = i+1, min(2*want, 30*time.Second) {
			if got := times[i].Sub(times[i-1]); !within(got, want) {
				t.Errorf("failure %d waited %s, want about %s", i, got, want)
			}
		}
		if got := r.state(key("a")); got.Attempts != len(times) || got.Error != "EOF" {
			t.Errorf("the ledger says %+v after %d failures", got, len(times))
		}
	})
}

// What ends a streak of failures also ends its backoff, wherever it is kept.
func TestStreaksEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		result controller.Result
		err    error
	}{
		"done":     {"success", controller.Result{}, nil},
		"wait":     {"waiting is not failing", controller.Result{After: time.Hour}, nil},
		"terminal": {"a change that is waited for starts anew", controller.Result{}, controller.Terminal(io.EOF)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{do: func(_ context.Context, _ cache.ObjectName, n int) (controller.Result, error) {
					if n == 8 {
						return tc.result, tc.err
					}
					return controller.Result{}, io.EOF
				}}
				r := start(t, controller.Config{Reconciler: s})
				defer r.finish()
				r.Enqueue(controller.Normal, key("a"))
				sleep(20 * time.Second)
				r.Enqueue(controller.Normal, key("a"))
				sleep(time.Second)
				times := s.times(key("a"))
				if len(times) < 10 {
					t.Fatalf("%s: ran %d times: %v", tc.reason, len(times), times)
				}
				if d := times[9].Sub(times[8]); !within(d, 100*time.Millisecond) {
					t.Errorf("%s: the next failure waits %s, want the base delay", tc.reason, d)
				}
			})
		})
	}
}

// R62: a success in one controller leaves the other's backoff alone.
func TestR62_LimitersAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := &script{do: func(context.Context, cache.ObjectName, int) (controller.Result, error) {
			return controller.Result{}, io.EOF
		}}
		a := start(t, controller.Config{Name: "a", Reconciler: failing})
		defer a.finish()
		b := start(t, controller.Config{Name: "b", Reconciler: &script{}})
		defer b.finish()
		a.Enqueue(controller.Normal, key("k"))
		for range 60 {
			sleep(time.Second)
			b.Enqueue(controller.Normal, key("k"))
			synctest.Wait()
		}
		if got := failing.count(key("k")); got > 11 {
			t.Errorf("%d passes in a minute: the backoff was cleared", got)
		}
	})
}
