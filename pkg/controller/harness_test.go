package controller_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// long runs the long form of the tests that have one.
var long = os.Getenv("STEADWATCH_LONG") == "1"

func key(name string) cache.ObjectName { return cache.NewObjectName("ns", name) }

func keys(namespace string, n int) []cache.ObjectName {
	all := make([]cache.ObjectName, n)
	for i := range all {
		all[i] = cache.NewObjectName(namespace, fmt.Sprintf("key-%05d", i))
	}
	return all
}

func noKeys() []cache.ObjectName { return nil }

// running is a Controller in a Run of its own.
type running struct {
	*controller.Controller
	t      *testing.T
	cancel context.CancelCauseFunc
	ended  chan error
}

// start runs a Controller made of cfg and waits until it is idle. It is for
// synctest bubbles; the test stops it at its end.
func start(t *testing.T, cfg controller.Config) *running {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	if cfg.Keys == nil {
		cfg.Keys = noKeys
	}
	c, err := controller.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return again(t, c)
}

// again is start for a Controller that may have run before.
func again(t *testing.T, c *controller.Controller) *running {
	t.Helper()
	ctx, cancel := context.WithCancelCause(klog.NewContext(t.Context(), klog.Logger{}))
	r := &running{Controller: c, t: t, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- c.Run(ctx) }()
	synctest.Wait()
	return r
}

// stop ends the Run and returns what it returned.
func (r *running) stop(cause error) error {
	r.cancel(cause)
	return <-r.ended
}

// finish is stop where no error is expected.
func (r *running) finish() {
	r.t.Helper()
	if err := r.stop(nil); err != nil {
		r.t.Errorf("Run returned %v, want nil", err)
	}
}

// state returns what the ledger knows of k.
func (r *running) state(k cache.ObjectName) controller.KeyState {
	r.t.Helper()
	s, ok := r.Key(k)
	if !ok {
		r.t.Fatalf("the ledger does not know %s", k)
	}
	return s
}

// script is a Reconciler that notes when it ran and answers what its function
// says for the n-th pass (from 1) of a key. A nil function answers Done.
type script struct {
	do func(ctx context.Context, k cache.ObjectName, n int) (controller.Result, error)

	mu    sync.Mutex
	runs  map[cache.ObjectName][]time.Time
	order []cache.ObjectName
}

func (s *script) Reconcile(ctx context.Context, k cache.ObjectName) (controller.Result, error) {
	s.mu.Lock()
	if s.runs == nil {
		s.runs = map[cache.ObjectName][]time.Time{}
	}
	s.runs[k] = append(s.runs[k], time.Now())
	s.order = append(s.order, k)
	n := len(s.runs[k])
	s.mu.Unlock()
	if s.do == nil {
		return controller.Result{}, nil
	}
	return s.do(ctx, k, n)
}

// count returns how often k ran.
func (s *script) count(k cache.ObjectName) int { return len(s.times(k)) }

// times returns when k ran.
func (s *script) times(k cache.ObjectName) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs[k])
}

func (s *script) sequence() []cache.ObjectName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

func (s *script) all() map[cache.ObjectName][]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.runs)
}

// sleep lets time pass in a bubble until everything that is due by then is done.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// within reports whether got is want give or take the jitter of 10 %.
func within(got, want time.Duration) bool {
	return got >= want*9/10 && got <= want*11/10+time.Millisecond
}

// box is a variable that the test and the workers share. synctest.Wait orders what
// a worker did before what the test does next, but not the other way round.
type box[T any] struct {
	mu sync.Mutex
	v  T
}

func (b *box[T]) set(v T) { b.with(func(p *T) { *p = v }) }

func (b *box[T]) get() (v T) {
	b.with(func(p *T) { v = *p })
	return v
}

func (b *box[T]) with(f func(*T)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.v)
}

// classes notes what was observed.
type classes struct{ box[[]controller.Class] }

func (c *classes) observe(class controller.Class, _, _ time.Duration) {
	c.with(func(p *[]controller.Class) { *p = append(*p, class) })
}
