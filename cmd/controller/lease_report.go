package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

const (
	// leaseRemindAfter is how often trouble that lasts is logged again.
	leaseRemindAfter = 10 * time.Minute
	// leaseHealthyAfter is how long the lease has to be well before the same
	// trouble is news; flapping is none.
	leaseHealthyAfter = time.Minute
)

// leaseReport says when the Lease cannot be read or written: at once and with the
// way out, then every leaseRemindAfter, and once when that is over. The elector
// tries again every retry period and would say so each time (see quietly).
type leaseReport struct {
	namespace string

	mu       sync.Mutex
	trouble  string // "" while all is well
	since    time.Time
	named    map[string]time.Time // when each trouble was logged last
	healedAt time.Time
	reads    int  // successful ones since the last failure
	spoken   bool // something was logged since all was well
}

// note is told what each request came to.
func (r *leaseReport) note(ctx context.Context, write bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil, !write && apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// A read alone proves nothing: where only writing is refused, each attempt
		// has one. Two with no failure in between are a standby's, who is well.
		r.reads++
		if write || r.reads > 1 {
			r.wellLocked(ctx)
		}
	case ctx.Err() != nil: // ours to end it, says nothing about the Lease
	default:
		r.reads = 0
		r.failedLocked(ctx, err)
	}
}

func (r *leaseReport) wellLocked(ctx context.Context) {
	if r.trouble == "" {
		return
	}
	if r.spoken {
		klog.FromContext(ctx).Info("Can get and renew the lease again", "namespace", r.namespace, "after", time.Since(r.since).Round(time.Second))
	}
	r.trouble, r.healedAt, r.spoken = "", time.Now(), false
}

func (r *leaseReport) failedLocked(ctx context.Context, err error) {
	trouble, remedy := "unreachable", "check that the API server runs and can be reached from here"
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		trouble = "forbidden"
		remedy = fmt.Sprintf("grant create on leases, and get and update on the lease %s, in namespace %q (Role)", leaseName, r.namespace)
	case apierrors.IsUnauthorized(err):
		trouble, remedy = "unauthorized", "replace the credentials: the API server does not accept this token or client certificate"
	case apierrors.IsNotFound(err):
		trouble, remedy = "not found", fmt.Sprintf("create namespace %q, or name another by --leader-election-namespace", r.namespace)
	case errors.As(err, &status):
		trouble, remedy = "refused", "read the message"
	}
	now := time.Now()
	news := r.trouble == "" && now.Sub(r.healedAt) >= leaseHealthyAfter
	if r.trouble == "" {
		r.since = now
	}
	r.trouble = trouble
	if !news && now.Sub(r.named[trouble]) < leaseRemindAfter {
		return
	}
	if r.named == nil {
		r.named = map[string]time.Time{}
	}
	r.named[trouble], r.spoken = now, true
	klog.FromContext(ctx).Error(nil, "Cannot get or renew the lease", "namespace", r.namespace, "reason", trouble, "message", err.Error(), "remedy", remedy, "since", r.since)
}

// quietly returns a context for client-go's elector in which its errors, one for
// each attempt, are logged at V(4). What comes without an error, a panic's stack or
// leaseReport's, is logged as ever.
func quietly(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	return klog.NewContext(ctx, logger.WithSink(quietSink{logger.GetSink()}))
}

type quietSink struct{ logr.LogSink }

func (s quietSink) Error(err error, msg string, keysAndValues ...any) {
	sink := s.LogSink
	if deep, ok := sink.(logr.CallDepthLogSink); ok {
		sink = deep.WithCallDepth(1) // the caller's line, not this one's
	}
	if err == nil {
		sink.Error(err, msg, keysAndValues...)
	} else if sink.Enabled(4) {
		sink.Info(4, msg, append(keysAndValues, "err", err)...)
	}
}

func (s quietSink) WithValues(keysAndValues ...any) logr.LogSink {
	return quietSink{s.LogSink.WithValues(keysAndValues...)}
}

func (s quietSink) WithName(name string) logr.LogSink { return quietSink{s.LogSink.WithName(name)} }

func (s quietSink) WithCallDepth(depth int) logr.LogSink {
	if sink, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return quietSink{sink.WithCallDepth(depth)}
	}
	return s
}
