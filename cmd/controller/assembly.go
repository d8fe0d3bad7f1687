package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// shared is what the controllers of this process have in common.
type shared struct {
	o        *options
	config   *rest.Config // as loaded
	reads    *rest.Config // of all local copies
	fence    *fence
	hearing  *informer.Hearing
	registry prometheus.Registerer
	counters *metrics.Metrics
	// events ends when no Event will be written any more.
	events context.Context
}

// localCopy is an informer of any type.
type localCopy interface {
	metrics.Informer
	informer.Runner
}

// newCopy makes the local copy of one resource: with Resource, Indexers and Transform
// as in c, and the rest as this process does it.
func newCopy[T cache.Object](s *shared, client informer.Client, c informer.Config[T]) (*informer.Informer[T], error) {
	c.Hearing, c.Namespaces = s.hearing, s.o.namespaces
	return informer.NewForConfig(s.reads, client, c)
}

// assembly is one controller with all that belongs to it alone.
type assembly struct {
	*controller.Controller
	name string
	// copies are its local copies, without those that it shares. Of needs it waits for
	// before it runs, until everything in caches is done.
	copies      []localCopy
	quarantines []quarantineSource
	needs       []metrics.Informer
	caches      []cache.DoneChecker
	recorder    *eventRecorder
}

// writer returns the config of clients that write for a controller. suffix tells those
// apart that have a limiter of their own.
func (s *shared) writer(name, suffix string, qps float64, burst int) *rest.Config {
	return fencedConfig(s.config, s.fence, name+suffix, qps, burst)
}

// newRecorder returns the recorder of a controller's Events, with a limiter of its own.
func (s *shared) newRecorder(name string) (*eventRecorder, error) {
	client, err := kubernetes.NewForConfig(s.writer(name, "-events", 5, 25))
	if err != nil {
		return nil, fmt.Errorf("build the client for Events: %w", err)
	}
	return newEventRecorder(s.events, client.CoreV1(), name), nil
}

// newController runs reconciler with the queue that the flags ask for, and frozen for the
// keys that undecodable knows.
func (s *shared) newController(name string, reconciler, frozen controller.Reconciler, writes *informer.Writes,
	keys func() []cache.ObjectName, undecodable func(cache.ObjectName) (reason string, bad bool)) (*controller.Controller, error) {
	return controller.New(controller.Config{
		Name:             name,
		Reconciler:       reconciler,
		Frozen:           frozen,
		Keys:             keys,
		Gate:             controller.HoldBack(undecodable, writes.Pending),
		Workers:          s.o.workers,
		ReconcileTimeout: s.o.reconcileTimeout,
		ShutdownTimeout:  s.o.shutdownTimeout,
		RetryBaseDelay:   s.o.retryBaseDelay,
		RetryMaxDelay:    s.o.retryMaxDelay,
		RetryQPS:         s.o.retryQPS,
		RetryBurst:       s.o.retryBurst,
		TerminalRecheck:  s.o.terminalRecheck,
		MetricsProvider:  s.counters,
		Observe:          s.counters.Observe(name),
	})
}

// follow has an object that cannot be decoded looked at when that begins, changes and
// ends, whatever lister it is in.
func (a *assembly) follow(objects interface {
	OnQuarantine(func(record informer.Quarantined, entered bool))
}, reporter *undecodable.Reporter) {
	objects.OnQuarantine(func(bad informer.Quarantined, entered bool) {
		if !entered {
			reporter.Forget(bad.Key)
		}
		a.Enqueue(controller.Urgent, bad.Key)
	})
}

// lead reconciles until ctx ends. Before that it waits for the local copies, and
// afterwards for the last Events.
func (a *assembly) lead(ctx context.Context) error {
	if !awaitCaches(ctx, a.name, a.needs, a.caches) {
		return nil
	}
	err := a.Run(ctx)
	if !errors.Is(context.Cause(ctx), controller.ErrAbort) {
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		a.recorder.flush(flushing)
	}
	return err
}

// together runs every lead at once, each for itself: one that waits holds up no other.
// It returns when all of them have, which is when ctx has ended, or when one of them
// fails: then the others end too.
func together(leads ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		errs := make([]error, len(leads))
		var done sync.WaitGroup
		for n, lead := range leads {
			done.Go(func() {
				if errs[n] = lead(ctx); errs[n] != nil {
					cancel(errs[n])
				}
			})
		}
		done.Wait()
		return errors.Join(errs...)
	}
}

// gathered is what the views of this process are drawn from, in the same order in all
// of them.
type gathered struct {
	copies      []informer.Runner
	informers   []metrics.Informer
	quarantines []quarantineSource
	controllers map[string]*controller.Controller
	measured    []metrics.Controller
	// wedged fail when all workers of a controller are.
	wedged []canary.Check
}

// gather takes apart the controllers and the local copy that they share.
func gather(services localCopy, all ...*assembly) *gathered {
	copies := []localCopy{services}
	g := &gathered{controllers: map[string]*controller.Controller{}}
	for _, a := range all {
		copies = append(copies, a.copies...)
		g.quarantines = append(g.quarantines, a.quarantines...)
		g.controllers[a.name] = a.Controller
		g.measured = append(g.measured, a.Controller)
		g.wedged = append(g.wedged, canary.Check{Name: a.name, Check: a.Check, Note: wedgedNote(a.Controller)})
	}
	for _, c := range copies {
		g.copies, g.informers = append(g.copies, c), append(g.informers, c)
	}
	return g
}
