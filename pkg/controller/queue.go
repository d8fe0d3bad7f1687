package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// term is all that belongs to one Run, so that a pass that outlives its Run can
// only touch what nobody uses any more.
type term struct {
	c       *Controller
	ledger  *ledger
	limiter *limiter
	queue   workqueue.TypedDelayingInterface[*record]
	pool    *pool

	ctx      context.Context // of all passes; does not end with Run's
	cancel   context.CancelCauseFunc
	stopping atomic.Bool // queued keys are dropped
}

// errShutdown is the cause of the end of passes that outlast the shutdown timeout.
var errShutdown = errors.New("shutdown timeout is over")

func newTerm(ctx context.Context, c *Controller) *term {
	t := &term{c: c, ledger: newLedger(), limiter: newLimiter(&c.cfg)}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.queue = newQueue(klog.FromContext(ctx), c, newLanes(t.ledger))
	t.pool = newPool(c.cfg.Workers, t.work)
	return t
}

// newQueue puts client-go's queues together: lanes inside Typed inside Delaying.
// The rate limiting layer is left out, because it only adds what When answers, and
// the ledger has to know that too.
//
// The outer configuration does not reach the inner queue, so name and provider go
// on both: on the delaying queue for retries, on the inner one for all else.
// Without a name there are no metrics: a nil provider would mean the global one.
func newQueue(logger klog.Logger, c *Controller, order workqueue.Queue[*record]) workqueue.TypedDelayingInterface[*record] {
	inner := workqueue.TypedQueueConfig[*record]{Queue: order}
	outer := workqueue.TypedDelayingQueueConfig[*record]{Logger: &logger}
	if c.metrics != nil {
		inner.Name, inner.MetricsProvider = c.cfg.Name, c.metrics
		outer.Name, outer.MetricsProvider = c.cfg.Name, c.metrics
	}
	outer.Queue = workqueue.NewTypedWithConfig(inner)
	return workqueue.NewTypedDelayingQueueWithConfig(outer)
}

// end shuts the term down and returns ErrWorkersRunning if workers are left.
func (t *term) end(cause error) error {
	t.stopping.Store(true)
	t.pool.close()
	t.queue.ShutDown()
	if !errors.Is(cause, ErrAbort) {
		t.pool.await(t.c.cfg.ShutdownTimeout)
		cause = errShutdown
	}
	t.cancel(cause)
	joined := t.pool.await(joinGrace)
	if t.c.metrics != nil {
		t.c.metrics.reset()
	}
	if !joined {
		running, _ := t.pool.counts()
		return fmt.Errorf("%w: %d", ErrWorkersRunning, running)
	}
	return nil
}

// queueMetrics passes client-go's workqueue metrics on and remembers those that
// client-go leaves at their last value when a queue is shut down: a standby that
// has led before would show a pass that never ends.
type queueMetrics struct {
	workqueue.MetricsProvider
	unfinished, longest workqueue.SettableGaugeMetric
}

func newQueueMetrics(p workqueue.MetricsProvider) *queueMetrics {
	return &queueMetrics{MetricsProvider: p}
}

func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	m.unfinished = m.MetricsProvider.NewUnfinishedWorkSecondsMetric(name)
	return m.unfinished
}

func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	m.longest = m.MetricsProvider.NewLongestRunningProcessorSecondsMetric(name)
	return m.longest
}

func (m *queueMetrics) reset() {
	m.unfinished.Set(0)
	m.longest.Set(0)
}
