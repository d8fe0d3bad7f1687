package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// joinGrace is what workers get at least to come back after the lease is lost,
// even if it has lapsed already, as after the process was stopped or the
// machine suspended for a while. Nothing passes the fence meanwhile; without it
// an idle process would be restarted for having slept.
const joinGrace = time.Second

// election leads, loses and leads again within one process.
//
//	standby ──acquired──▶ leading ──lost──▶ joining ──joined in time──▶ standby
//	   │                     │                 └─────────too late─────▶ error
//	   └──ctx ends──▶ nil    └──ctx ends──▶ draining ──all joined──▶ release ──▶ nil
//	                                             └──workers run on──▶ error, the lease lapses
//
// client-go's elector does the electing; three things it leaves to its users
// are done here. It runs on a context of its own, so that a lease is renewed as
// long as a worker runs. The lease is released by us, since ReleaseOnCancel
// releases it as well when the renew deadline was missed and workers may still
// run. And the term ends by our own watch on the lease's age, which does not
// depend on the elector: that one notices a lost lease up to a retry period
// later, and not at all when its request hangs.
type election struct {
	lease         *lease
	fence         *fence
	leaseDuration time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration
}

// newIdentity names this process among all others: a restarted one is another
// holder, even under the same host name.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name for the lease's holder: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// run calls lead for each term, with a context that ends with ctx or, cause
// controller.ErrAbort, when the lease is lost. lead returns
// controller.ErrWorkersRunning if it left anything running that may write.
//
// It returns nil once ctx has ended and nothing writes any more, and an error
// when this process cannot go on safely: its caller then ends the process at
// once.
func (e *election) run(ctx context.Context, lead func(context.Context) error) error {
	for {
		err := e.campaign(ctx, lead)
		if err != nil || ctx.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("Lease lost and every worker back, standing by again", "lock", e.lease.Describe())
	}
}

// campaign stands by until the lease is ours, leads until it is lost or ctx
// ends, and returns nil when the elector and lead have returned.
func (e *election) campaign(ctx context.Context, lead func(context.Context) error) error {
	electing, stopElecting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElecting()
	acquired, ended, err := e.startElector(electing)
	if err != nil {
		return err
	}
	select {
	case <-acquired:
	case <-ctx.Done():
		stopElecting()
		if err := e.awaitElector(ended); err != nil {
			return err
		}
		if e.fence.wasHeld() { // acquired in the same moment
			e.release(ctx)
		}
		return nil
	case err := <-ended:
		if err != nil || !e.fence.wasHeld() {
			return unexpectedEnd(err)
		}
		// Acquired and lost before this goroutine ran, as when the process was
		// stopped in between: no term has begun.
		e.fence.close()
		return nil
	}

	e.fence.open()
	defer e.fence.close()
	term, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	led := make(chan error, 1)
	go func() { led <- lead(term) }()

	// Both clocks are looked at on each tick: a timer set to the renew deadline
	// would sleep through a suspended machine's night.
	tick := time.NewTicker(max(e.renewDeadline/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case err := <-led:
			e.fence.close()
			stopElecting()
			if endErr := e.awaitElector(ended); err == nil {
				err = endErr
			}
			if errors.Is(err, controller.ErrWorkersRunning) {
				return fmt.Errorf("the lease is left to lapse: %w", err)
			}
			e.release(ctx)
			if err == nil && ctx.Err() == nil {
				return errors.New("the controllers ended by themselves")
			}
			return err
		case err := <-ended:
			if err != nil {
				return unexpectedEnd(err)
			}
			return e.join(ctx, abort, led, nil)
		case <-tick.C:
			if e.fence.check() != nil {
				stopElecting()
				return e.join(ctx, abort, led, ended)
			}
		}
	}
}

// join ends the term after the lease was lost: the fence closes, the passes are
// cancelled, and all has to be back before another process may lead. ended is
// nil where the elector has returned already.
func (e *election) join(ctx context.Context, abort context.CancelCauseFunc, led, ended <-chan error) error {
	left := max(e.fence.untilLapse(), joinGrace)
	klog.FromContext(ctx).Info("Lease lost, cancelling every pass", "lock", e.lease.Describe(), "within", left)
	e.fence.close()
	abort(controller.ErrAbort)
	late := time.NewTimer(left)
	defer late.Stop()
	for led != nil || ended != nil {
		select {
		case err := <-led:
			if err != nil {
				return fmt.Errorf("the lease was lost: %w", err)
			}
			led = nil
		case err := <-ended:
			if err != nil {
				return unexpectedEnd(err)
			}
			ended = nil
		case <-late.C:
			if led == nil {
				return errors.New("the lease was lost and the leader election does not return")
			}
			return fmt.Errorf("the lease was lost and another process may lead, but %w", controller.ErrWorkersRunning)
		}
	}
	return nil
}

// startElector runs client-go's elector. acquired is closed when it has the
// lease, ended delivers nil when it has returned and an error when it panicked.
func (e *election) startElector(ctx context.Context) (acquired <-chan struct{}, ended <-chan error, err error) {
	got := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          e.lease,
		Name:          leaseName,
		LeaseDuration: e.leaseDuration,
		RenewDeadline: e.renewDeadline,
		RetryPeriod:   e.retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(got) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				klog.FromContext(ctx).Info("New leader observed", "lock", e.lease.Describe(), "holder", holder)
			},
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("start the leader election: %w", err)
	}
	e.lease.alive()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v", p)
				return
			}
			done <- nil
		}()
		elector.Run(quietly(ctx))
	}()
	return got, done, nil
}

// awaitElector waits for an elector whose context has ended; its request under
// way ends with it.
func (e *election) awaitElector(ended <-chan error) error {
	late := time.NewTimer(e.lease.timeout + joinGrace)
	defer late.Stop()
	select {
	case err := <-ended:
		if err != nil {
			return unexpectedEnd(err)
		}
		return nil
	case <-late.C:
		return errors.New("the leader election does not return, the lease is left to lapse")
	}
}

// release gives the lease back if it is ours. That it could not be is no
// reason to fail: it lapses.
func (e *election) release(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.renewDeadline)
	defer cancel()
	switch ours, err := e.lease.release(ctx); {
	case err != nil:
		logger.Info("Lease not released, it will lapse", "lock", e.lease.Describe(), "err", err)
	case ours:
		logger.Info("Lease released", "lock", e.lease.Describe())
	}
}

// unexpectedEnd is for an elector that nobody told to stop: without one this
// process would stand by for ever and look healthy.
func unexpectedEnd(err error) error {
	if err == nil {
		return errors.New("the leader election ended by itself")
	}
	return fmt.Errorf("the leader election ended by itself: %w", err)
}

// Check is for /healthz: non-nil when the election makes no attempt any more.
// An API server that is away does not make it fail, attempts end by their
// deadline then.
func (e *election) Check() error {
	limit := e.leaseDuration + e.renewDeadline
	if silence := e.lease.silence(); silence > limit {
		return fmt.Errorf("no attempt to get or renew the lease for %s", silence.Round(time.Second))
	}
	return nil
}
