package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/connrotation"
)

// leaseName names the Lease that the replicas of one installation share.
const leaseName = "steadwatch"

// newLeaseLock returns a lock on the Lease namespace/steadwatch and a func that
// closes its connections.
//
// Nothing of its client is shared. It has its own limiter, or renewals would
// queue behind a burst of reconciles until leadership is lost under load, and
// its own connection, or the reconnect would cut off others and a connection
// that others have poisoned would be handed back to it.
func newLeaseLock(config *rest.Config, namespace, identity string) (resourcelock.Interface, func(), error) {
	config = rest.CopyConfig(config)
	rest.AddUserAgent(config, "leader-election")
	// The elector asks twice each retry period; this is never reached.
	config.RateLimiter, config.QPS, config.Burst = nil, 20, 20
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	config.Dial = dialer.DialContext
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("build the client of the lease: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, dialer.CloseAll, nil
}

// lease is the lock as the elector sees it. It adds what the elector lacks: a
// deadline for each request, a fresh connection after one that failed, the time
// of renewal for the fence, and a sign of life for /healthz.
type lease struct {
	resourcelock.Interface
	fence     *fence
	now       func() reading
	timeout   time.Duration // of one request
	reconnect func()        // may be nil
	report    leaseReport

	mu       sync.Mutex
	lastCall reading // the beginning or end of the last request
}

// leaseRequestTimeout bounds one request: a third, so that a connection which has gone
// silent is left and there is time for two more tries. With the whole deadline each such
// connection would cost the lease, and little would be gained: an API server that
// answers later than (deadline - retry period) / 2 keeps nobody the lease, 4 s with the
// defaults in place of 3.3 s. One that is slower needs longer flags.
func leaseRequestTimeout(renewDeadline time.Duration) time.Duration { return renewDeadline / 3 }

func (l *lease) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = l.call(ctx, false, func(ctx context.Context) error {
		record, raw, err = l.Interface.Get(ctx)
		return err
	})
	return record, raw, err
}

func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

// write takes the time before the request is sent: the server may have stamped
// the renewal at any moment between then and the answer, and another process
// counts from there at the earliest.
func (l *lease) write(ctx context.Context, record resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	sent := l.now()
	err := l.call(ctx, true, func(ctx context.Context) error { return do(ctx, record) })
	if err == nil && record.HolderIdentity == l.Identity() {
		l.fence.renew(sent)
	}
	return err
}

// call bounds one request, by context: rest.Config.Timeout would do it by
// http.Client.Timeout. After a failure that was not an answer of a healthy
// server the next request goes out on a new connection, since the pool would
// hand back the one that has just failed.
func (l *lease) call(ctx context.Context, write bool, do func(context.Context) error) error {
	l.alive()
	defer l.alive()
	bounded, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := do(bounded)
	l.report.note(ctx, write, err)
	if err != nil && ctx.Err() == nil && !answered(err) && l.reconnect != nil {
		l.reconnect()
	}
	return err
}

// answered reports whether err is a healthy API server's answer.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500
}

// release gives the lease back, if it is still ours, so that another process
// need not wait until it lapses. The caller has made sure that nothing writes
// any more; the elector must have returned, since a lock is not safe for
// concurrent use.
// It reports whether it was ours.
func (l *lease) release(ctx context.Context) (bool, error) {
	for {
		record, _, err := l.Get(ctx)
		if err != nil {
			return false, fmt.Errorf("read the lease to release it: %w", err)
		}
		if record.HolderIdentity != l.Identity() {
			return false, nil
		}
		now := metav1.NewTime(l.now().wall)
		err = l.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions:    record.LeaderTransitions,
			LeaseDurationSeconds: 1,
			RenewTime:            now,
			AcquireTime:          now,
		})
		// A renewal whose answer was lost can still get in between.
		if apierrors.IsConflict(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return true, fmt.Errorf("write the lease to release it: %w", err)
		}
		return true, nil
	}
}

func (l *lease) alive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastCall = l.now()
}

// silence is how long ago the elector last began or ended a request, by the
// monotonic clock: a machine that was suspended has not been silent.
func (l *lease) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().mono - l.lastCall.mono
}
