package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// R77: the Lease has a client and a limiter of its own, so that a burst of writes
// which the client's limiter holds back does not delay its renewal.
func TestSystemLeaseUnderLoad(t *testing.T) {
	t.Parallel()
	const objects = 200
	w := newWorld(t, "steadwatch")
	for n := range objects {
		w.create(w.namespace, fmt.Sprintf("app-%d", n))
	}
	const deadline = 4 * time.Second
	r := w.start("steadwatch", replicaOptions{args: []string{
		// As many requests wait for the limiter as there are workers: ten seconds' worth.
		"--workers=50", "--kube-api-qps=5", "--kube-api-burst=5",
		"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=" + deadline.String(), "--leader-elect-retry-period=1s",
		"--watch-canary-interval=1s", "--watch-canary-fail-after=5s",
	}})
	r.awaitLead()
	span := 20 * time.Second
	if long {
		span = 2 * time.Minute
	}
	began := time.Now()
	w.during(span, r.alive)

	renewals := w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool {
		return onLease(e) && e.RequestReceived.After(began)
	})
	if want := int(span/time.Second) / 3; len(renewals) < want {
		t.Errorf("%d renewals in %s, want at least %d", len(renewals), span, want)
	}
	var longest time.Duration
	for i := 1; i < len(renewals); i++ {
		longest = max(longest, renewals[i].RequestReceived.Sub(renewals[i-1].RequestReceived))
	}
	if longest >= deadline {
		t.Errorf("%s between two renewals, want less than the renew deadline, %s", longest, deadline)
	}
	t.Logf("%d renewals, at most %s apart", len(renewals), longest)
	// Nor does the canary wait behind the passes.
	r.canaryIs("hearing")
	if n, _ := r.metric(`steadwatch_canary_writes_total{result="acknowledged"}`); int(n) < int(span/time.Second)/2 {
		t.Errorf("%v writes of the canary in %s, want one a second", n, span)
	}

	// It was busy all the time, and held back: reads of passes and writes together.
	requests := w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool {
		return strings.HasPrefix(e.UserAgent, "steadwatch-webapp/") && e.RequestReceived.After(began)
	})
	if most := 5*int(span.Seconds()+slack.Seconds()) + 10; len(requests) > most || len(requests) < 3*int(span.Seconds()) {
		t.Errorf("%d requests in %s at 5 a second", len(requests), span)
	}
	if depth, _ := r.metric(`workqueue_depth{name="webapp"}`); depth == 0 && !long {
		t.Error("nothing is queued any more: this shows nothing")
	}
	w.fenced()
}

// R85: the API server asks to be left alone for a while. Each request waits for as
// long as it was asked to, nothing restarts, and work goes on afterwards.
func TestSystemRetryAfter(t *testing.T) {
	t.Parallel()
	const asked = 3 * time.Second
	w := newWorld(t, "steadwatch")
	proxy := w.proxy()
	r := w.start("steadwatch", replicaOptions{proxy: proxy})
	r.awaitReady()
	r.awaitLead()
	w.create(w.namespace, "before")
	w.converges(patience, w.namespace, "before")

	busy := &faultproxy.Answer{Code: 429, RetryAfter: asked}
	began := time.Now()
	patches := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"patch"}}, Answer: busy})
	for n := range 5 {
		w.create(w.namespace, fmt.Sprintf("app-%d", n))
	}
	w.eventually(patience, "patches to be refused", func() (bool, string) { return patches.Hits() >= 4, fmt.Sprint(patches.Hits()) })
	reads := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"list", "watch"}}, Scope: faultproxy.OnlyNew, Answer: busy})
	ended := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"watch"}}, Scope: faultproxy.OnlyOpen, Close: faultproxy.EOF})
	w.during(watchFor, r.alive)
	over := time.Now()
	patches.Remove()
	reads.Remove()
	ended.Remove()
	r.healthy("/healthz")
	r.healthy("/readyz")

	// By what was asked for: the same request comes again, until it is let through.
	last, compared := map[string]time.Time{}, 0
	for _, q := range proxy.Requests(faultproxy.Match{Verbs: []string{"list", "watch", "patch"}}) {
		if q.Time.Before(began) || q.Time.After(over) || q.Code != 429 {
			continue
		}
		what := fmt.Sprintf("%s %s %s %s", q.Verb, q.Resource, q.Subresource, q.Name)
		if before, again := last[what]; again {
			compared++
			if gap := q.Time.Sub(before); gap < asked {
				t.Errorf("%s: again after %s, although asked to wait %s", what, gap, asked)
			}
		}
		last[what] = q.Time
	}
	t.Logf("%d requests refused, %d waits looked at", patches.Hits()+reads.Hits(), compared)
	if compared < 10 {
		t.Errorf("%d waits looked at: too few to show anything", compared)
	}
	for n := range 5 {
		w.converges(patience, w.namespace, fmt.Sprintf("app-%d", n))
	}
	w.create(w.namespace, "later")
	w.converges(patience, w.namespace, "later")
	for _, e := range w.audit(controlplane.StageResponseComplete, w.users, mutates) {
		if e.Code >= 500 {
			t.Errorf("%s %s: %d", e.Verb, e.RequestURI, e.Code)
		}
	}
	r.alive()
	w.fenced()
}
