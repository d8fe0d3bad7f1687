package informer

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// A watch that is refused with 429, or because nothing listens, the Reflector would ask
// for again as it is, after a wait of its own: up to 60 s, for a WatchList without
// looking at its context, which would hold up a shutdown for as long. It cannot be given
// another one (client-go 0.37, kubernetes/kubernetes#136943). So that wait is done
// before the Reflector gets to know, and is shorter.
//
// The cost for a kind that stays refused: some 160 requests an hour and replica, one
// every 15 to 30 s; with 429 and Retry-After up to 11 times as many, since client-go's
// REST client asks again ten times by itself, as often as it is told.

const (
	// retryMin is how long the first wait is at least, each further one twice as long,
	// up to retryMax. Each is stretched by a random factor of 1 to 2, so that those whom
	// the same outage has hit do not come back together.
	retryMin = 800 * time.Millisecond
	retryMax = 15 * time.Second
	// retryAfterMax is up to where Retry-After is obeyed. What says more is taken for a
	// mistake: nothing is heard meanwhile.
	retryAfterMax = 5 * time.Minute
	// retryForget is how long after the last wait the next one is a first one.
	retryForget = 2 * time.Minute
)

// retries are the waits of one Reflector. Not for concurrent use.
type retries struct {
	backoff wait.Backoff
	last    time.Time
}

// next is how long to wait after err: never less than the API server has asked for, up
// to retryAfterMax.
func (r *retries) next(err error) time.Duration {
	now := time.Now()
	if now.Sub(r.last) > retryForget {
		r.backoff = wait.Backoff{Duration: retryMin, Cap: retryMax, Steps: 10, Factor: 2, Jitter: 1}
	}
	d := r.backoff.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, wait.Jitter(min(time.Duration(seconds)*time.Second, retryAfterMax), 0.1))
	}
	r.last = now.Add(d)
	return d
}

// isRetried reports whether err is one after which the Reflector asks for the same
// watch again.
func isRetried(err error) bool {
	return utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
}

// hold holds the Reflector's next watch back, after one that has failed with err.
func (l *listWatch) hold(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heldUntil = time.Now().Add(l.retries.next(err))
}

// held waits for as long as the next watch is held back.
func (l *listWatch) held(ctx context.Context) error {
	l.mu.Lock()
	d := time.Until(l.heldUntil)
	l.mu.Unlock()
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
