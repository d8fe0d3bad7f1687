package controller

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// jitterFraction spreads delays by up to this part of them, up and down, so that
// keys that failed together do not come back together.
const jitterFraction = 0.1

// limiter says how long a failed key waits: the longer of an exponential delay of
// its own and of its turn at a token bucket that all keys share, at most maxDelay,
// jittered.
//
// client-go's default limiter (an exponential and a bucket, kubernetes/kubernetes
// issue 104554) has no bound on the bucket: ten thousand failures put the last one
// a thousand seconds away and leave that debt to every later one. Here a
// reservation past the cap is given back before the lock is let go, so that the
// bucket never owes more than maxDelay.
type limiter struct {
	baseDelay, maxDelay time.Duration
	qps                 float64
	burst               float64

	mu     sync.Mutex
	tokens float64   // may be negative: reservations not yet due
	filled time.Time // when tokens was last brought up to date
}

// streak is what the limiter knows of a key between its first failure and the
// Forget that ends the streak.
type streak struct {
	failures int
	slot     time.Time // when the key's reservation in the bucket is due
	until    time.Time // when the delay last answered is over
}

// The methods that take a record are for the worker that has it.
var _ workqueue.TypedRateLimiter[*record] = &limiter{}

func newLimiter(cfg *Config) *limiter {
	return &limiter{
		baseDelay: cfg.RetryBaseDelay,
		maxDelay:  cfg.RetryMaxDelay,
		qps:       cfg.RetryQPS,
		burst:     float64(cfg.RetryBurst),
		tokens:    float64(cfg.RetryBurst),
		filled:    time.Now(),
	}
}

// When counts one more failure of a key and returns how long it is to wait.
//
// The first failure of a streak takes no token: a lone hiccup waits the base
// delay even in the middle of an outage of others. A key that fails again while
// it still waits (an event ran it early) keeps the reservation it has.
func (l *limiter) When(r *record) time.Duration {
	now := time.Now()
	if r.streak == nil {
		r.streak = &streak{}
	}
	s := r.streak
	s.failures++
	if s.failures > 1 && !now.Before(s.until) {
		s.slot = now.Add(l.reserve(now))
	}
	delay := jitter(max(backoff(l.baseDelay, l.maxDelay, s.failures), s.slot.Sub(now)))
	s.until = now.Add(delay)
	return delay
}

// reserve takes a token and returns how long it is until that is there, which is
// maxDelay at most.
func (l *limiter) reserve(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = min(l.burst, l.tokens+now.Sub(l.filled).Seconds()*l.qps)
	l.filled = now
	l.tokens--
	if l.tokens >= 0 {
		return 0
	}
	if wait := -l.tokens / l.qps; wait <= l.maxDelay.Seconds() {
		return time.Duration(wait * float64(time.Second))
	}
	l.tokens++ // given back: the cap wins over the rate and leaves no debt
	return l.maxDelay
}

// Forget ends a key's streak of failures and frees what was kept for it.
func (l *limiter) Forget(r *record) { r.streak = nil }

// NumRequeues returns how often a key has failed in a row.
func (l *limiter) NumRequeues(r *record) int {
	if r.streak == nil {
		return 0
	}
	return r.streak.failures
}

// backoff is base doubled for every failure after the first, at most limit.
func backoff(base, limit time.Duration, failures int) time.Duration {
	delay := min(base, limit)
	for i := 1; i < failures; i++ {
		if delay > limit/2 { // doubling would pass the limit, or overflow
			return limit
		}
		delay *= 2
	}
	return delay
}

// jitter moves d by up to jitterFraction of it in either direction.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*jitterFraction*float64(d))
}

// jitterUp lengthens d by up to jitterFraction of it: for delays that are a
// promised minimum.
func jitterUp(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*jitterFraction*float64(d))
}
