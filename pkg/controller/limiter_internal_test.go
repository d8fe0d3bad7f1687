package controller

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

func limiterOf(change func(*Config)) *limiter {
	cfg := Config{
		Name:       "test",
		Reconciler: ReconcilerFunc(nil),
		Keys:       func() []cache.ObjectName { return nil },
	}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.complete(); err != nil {
		panic(err)
	}
	return newLimiter(&cfg)
}

func named(i int) *record { return &record{key: cache.NewObjectName("ns", fmt.Sprint(i))} }

func manyNamed(n int) []*record {
	all := make([]*record, n)
	for i := range all {
		all[i] = named(i)
	}
	return all
}

func about(d, want time.Duration) bool {
	return math.Abs(float64(d-want)) <= jitterFraction*float64(want)+float64(time.Microsecond)
}

func TestBackoff(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		base, limit time.Duration
		failures    int
		want        time.Duration
	}{
		"first":    {"the base delay", 100, 3000, 1, 100},
		"third":    {"doubled twice", 100, 3000, 3, 400},
		"fifth":    {"last below the cap", 100, 3000, 5, 1600},
		"sixth":    {"capped", 100, 3000, 6, 3000},
		"many":     {"no overflow", 100, math.MaxInt64, 1 << 20, math.MaxInt64},
		"cap only": {"a base above the cap", 100, 50, 1, 50},
	} {
		t.Run(name, func(t *testing.T) {
			if got := backoff(tc.base, tc.limit, tc.failures); got != tc.want {
				t.Errorf("%s: backoff = %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestLimiterFollowsExponential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := limiterOf(nil), named(1)
		for n, want := 1, 100*time.Millisecond; n < 40; n, want = n+1, min(2*want, 30*time.Second) {
			d := l.When(r)
			if !about(d, want) {
				t.Errorf("failure %d waits %s, want about %s", n, d, want)
			}
			time.Sleep(d)
		}
		if got := l.NumRequeues(r); got != 39 {
			t.Errorf("NumRequeues = %d, want 39", got)
		}
		l.Forget(r)
		if d := l.When(r); !about(d, 100*time.Millisecond) {
			t.Errorf("after Forget the next failure waits %s", d)
		}
	})
}

func TestJitterSpreads(t *testing.T) {
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := jitter(time.Second)
		low, high = min(low, d), max(high, d)
		if up := jitterUp(time.Second); up < time.Second || up > 1100*time.Millisecond {
			t.Fatalf("jitterUp(1s) = %s", up)
		}
	}
	if low < 900*time.Millisecond || high > 1100*time.Millisecond || high-low < 150*time.Millisecond {
		t.Errorf("a second becomes %s to %s", low, high)
	}
}

// R46: ten thousand keys fail at once, again and again. client-go's default
// limiter would park the last for 1,000 s and leave that to whoever fails next.
func TestR46_NoDelayAboveCapAndNoDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		l, all, other := limiterOf(nil), manyNamed(n), named(n)
		limit := l.maxDelay + time.Duration(jitterFraction*float64(l.maxDelay))
		var longest time.Duration
		distinct := map[time.Duration]bool{}
		for round := range 5 {
			for i := range n {
				d := l.When(all[i])
				longest = max(longest, d)
				if d > limit {
					t.Fatalf("round %d: key %d waits %s, above the cap of %s and its jitter", round, i, d, l.maxDelay)
				}
				distinct[d] = true
				if round == 0 && !about(d, 100*time.Millisecond) {
					t.Fatalf("a first failure waits %s: it took a token", d)
				}
			}
			if l.tokens < -l.maxDelay.Seconds()*l.qps {
				t.Fatalf("the bucket owes %v tokens, more than the cap is worth", -l.tokens)
			}
			time.Sleep(limit)
		}
		if len(distinct) < n {
			t.Errorf("only %d different delays: keys that failed together come back together", len(distinct))
		}
		if longest < 25*time.Second {
			t.Errorf("longest delay %s: the bucket did not slow anything", longest)
		}
		if d := l.When(other); !about(d, l.baseDelay) {
			t.Errorf("a single failure in the middle of it waits %s, want the base delay", d)
		}

		time.Sleep(l.maxDelay + time.Second)
		if d := l.When(other); d > 2*time.Second {
			t.Errorf("its second failure waits %s after a quiet minute: the bucket kept a debt", d)
		}
	})
}

// A key that events run again and again while it waits does not empty the bucket
// for everyone else.
func TestWaitingKeyReservesNothingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(func(c *Config) { c.RetryQPS, c.RetryBurst, c.RetryBaseDelay = 1, 5, 10*time.Second })
		all := manyNamed(30)
		l.When(all[1])
		for range 1000 {
			l.When(all[1]) // never having waited
		}
		if l.tokens != 5 {
			t.Fatalf("%v of 5 tokens left: a waiting key reserved again", l.tokens)
		}
		// Its reservation stands: failing early does not get it an earlier turn.
		for i := 2; i < 30; i++ {
			l.When(all[i])
		}
		time.Sleep(12 * time.Second)
		var last time.Duration
		for i := 2; i < 30; i++ {
			last = l.When(all[i])
		}
		if again := l.When(all[29]); !about(again, max(last, 20*time.Second)) && again < last*8/10 {
			t.Errorf("waits %s after failing early, %s before", again, last)
		}
	})
}

// Under the cap the rate holds: 300 keys, 10 a second.
func TestBucketSpacesRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, all := limiterOf(nil), manyNamed(300)
		for _, r := range all {
			l.When(r)
		}
		time.Sleep(time.Second)
		for i, r := range all {
			d := l.When(r)
			want := max(200*time.Millisecond, time.Duration(i+1-100)*100*time.Millisecond)
			if !about(d, want) {
				t.Errorf("retry %d waits %s, want about %s", i, d, want)
			}
		}
	})
}

// R52: keys that fail and are then deleted leave nothing.
func TestR52_ForgottenKeysLeaveNothing(t *testing.T) {
	l, led := limiterOf(nil), newLedger()
	q := newLanes(led)
	pass := func(key cache.ObjectName, o outcome) *record {
		q.add(Normal, key)
		r := q.Pop()
		if !led.popped(r).run {
			t.Fatal("not run")
		}
		led.finished(r, led.now(), o)
		return r
	}
	for i := range 200_000 {
		key := cache.ObjectName{Namespace: strconv.Itoa(i / 2), Name: strconv.Itoa(i)}
		r := pass(key, outcome{class: ClassRetry, failure: "EOF", after: time.Minute})
		l.When(r)
		if pass(key, outcome{class: ClassDone}) != r {
			t.Fatal("a key has two records")
		}
		l.Forget(r)
		if r.streak != nil {
			t.Fatal("the limiter keeps something for a key that it has forgotten")
		}
	}
	kept := 0
	led.all(func(*record) { kept++ })
	if kept < maxSettled || kept > 2*maxSettled || led.records != kept || led.idle != kept {
		t.Errorf("%d records left in the ledger, %d counted, %d idle; want %d to twice that", kept, led.records, led.idle, maxSettled)
	}
	if n := len(led.tenants); n > kept {
		t.Errorf("%d namespaces left", n)
	}
}
