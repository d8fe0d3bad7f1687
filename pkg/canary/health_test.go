package canary_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steadwatch/steadwatch/pkg/canary"
)

func holds() error { return nil }

func TestHandler(t *testing.T) {
	fails := func() error { return errors.New("queue of 10.0.0.1 is stuck") }
	tests := map[string]struct {
		reason string
		path   string
		method string
		checks []canary.Check
		status int
		body   string
	}{
		"AllHold": {
			reason: "a probe needs no more than the status; the body is that of Kubernetes components",
			path:   "/healthz",
			checks: []canary.Check{{Name: "election", Check: holds}},
			status: 200,
			body:   "ok",
		},
		"Verbose": {
			reason: "a person wants to see what was asked",
			path:   "/healthz?verbose",
			checks: []canary.Check{{Name: "election", Check: holds}},
			status: 200,
			body:   "[+]ping ok\n[+]election ok\nhealthz check passed\n",
		},
		"Note": {
			reason: "a condition may hold and yet have something to say, to who asks",
			path:   "/healthz?verbose",
			checks: []canary.Check{{Name: "webapp", Check: holds, Note: func() string { return "2 wedged" }}, {Name: "b", Check: holds, Note: func() string { return "" }}},
			status: 200,
			body:   "[+]ping ok\n[+]webapp ok: 2 wedged\n[+]b ok\nhealthz check passed\n",
		},
		"NoteWithheld": {
			reason: "like the text of an error",
			path:   "/healthz",
			checks: []canary.Check{{Name: "webapp", Check: holds, Note: func() string { return "2 wedged" }}, {Name: "b", Check: fails}},
			status: 503,
			body:   "[+]ping ok\n[+]webapp ok\n[-]b failed: reason withheld\nhealthz check failed\n",
		},
		"OneFails": {
			reason: "the failing part is named, its text is not for everyone",
			path:   "/healthz",
			checks: []canary.Check{{Name: "election", Check: holds}, {Name: "webapp", Check: fails}},
			status: 503,
			body:   "[+]ping ok\n[+]election ok\n[-]webapp failed: reason withheld\nhealthz check failed\n",
		},
		"OneFailsVerbose": {
			reason: "the text is shown to who asks for it",
			path:   "/healthz?verbose=true",
			checks: []canary.Check{{Name: "webapp", Check: fails}},
			status: 503,
			body:   "[+]ping ok\n[-]webapp failed: queue of 10.0.0.1 is stuck\nhealthz check failed\n",
		},
		"ReportStaysOneLineACheck": {
			reason: "joined errors contain newlines",
			path:   "/healthz?verbose",
			checks: []canary.Check{{Name: "webapp", Check: func() error { return errors.Join(errors.New("a"), errors.New("b")) }}},
			status: 503,
			body:   "[+]ping ok\n[-]webapp failed: a; b\nhealthz check failed\n",
		},
		"Excluded": {
			reason: "an operator can live without one part for a while",
			path:   "/healthz?exclude=webapp",
			checks: []canary.Check{{Name: "webapp", Check: fails}},
			status: 200,
			body:   "ok",
		},
		"ExcludedVerbose": {
			reason: "what was left out is shown as left out",
			path:   "/healthz?exclude=webapp&verbose",
			checks: []canary.Check{{Name: "webapp", Check: fails}},
			status: 200,
			body:   "[+]ping ok\n[+]webapp excluded: ok\nhealthz check passed\n",
		},
		"UnknownExclude": {
			reason: "a misspelt name must not pass silently, as in k8s.io/apiserver",
			path:   "/healthz?exclude=wepapp&exclude=b&verbose",
			checks: []canary.Check{{Name: "webapp", Check: holds}},
			status: 200,
			body: "[+]ping ok\n[+]webapp ok\n" +
				"warn: some health checks cannot be excluded: no matches for \"b\", \"wepapp\"\nhealthz check passed\n",
		},
		"OwnPath":          {reason: "one question at a time", path: "/healthz/webapp", checks: []canary.Check{{Name: "webapp", Check: holds}, {Name: "other", Check: fails}}, status: 200, body: "ok"},
		"OwnPathFails":     {reason: "text withheld here too", path: "/healthz/webapp", checks: []canary.Check{{Name: "webapp", Check: fails}}, status: 503, body: "webapp failed: reason withheld\n"},
		"OwnPathVerbose":   {reason: "and shown on demand", path: "/healthz/webapp?verbose", checks: []canary.Check{{Name: "webapp", Check: fails}}, status: 503, body: "webapp failed: queue of 10.0.0.1 is stuck\n"},
		"UnknownPath":      {reason: "no such check is not a failing one", path: "/healthz/nope", status: 404, body: "404 page not found\n"},
		"PingAlwaysExists": {reason: "kubelet setups refer to it", path: "/healthz/ping", status: 200, body: "ok"},
		"Panic": {
			reason: "a check that panics is a failed check, not the end of the process",
			path:   "/healthz?verbose",
			checks: []canary.Check{{Name: "webapp", Check: func() error { panic("boom") }}},
			status: 503,
			body:   "[+]ping ok\n[-]webapp failed: panic: boom\nhealthz check failed\n",
		},
		"Write": {reason: "nothing can be changed here", method: http.MethodPost, path: "/healthz", status: 405, body: "method not allowed\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			w := httptest.NewRecorder()
			canary.Handler("/healthz", tc.checks...).ServeHTTP(w, httptest.NewRequest(method, tc.path, nil))
			if w.Code != tc.status {
				t.Errorf("%s\nstatus %d, want %d", tc.reason, w.Code, tc.status)
			}
			if diff := cmp.Diff(tc.body, w.Body.String()); diff != "" {
				t.Errorf("%s\nbody (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A worker pool that is wedged while it holds a lock makes its check hang. The
// probe still gets an answer in time, which names it, and asking again and
// again starts no second run.
func TestR43HangingCheckIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		mend := make(chan struct{})
		h := canary.Handler("/healthz",
			canary.Check{Name: "stuck", Check: func() error { calls.Add(1); <-mend; return nil }},
			canary.Check{Name: "fine", Check: holds},
		)
		ask := func() string {
			start := time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz?verbose", nil))
			if took := time.Since(start); took >= time.Second {
				t.Errorf("answered after %s, the kubelet waits one second", took)
			}
			return w.Body.String()
		}
		want := "[+]ping ok\n[-]stuck failed: no answer within 800ms\n[+]fine ok\nhealthz check failed\n"
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if diff := cmp.Diff(want, ask()); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
			})
		}
		wg.Wait()
		ask()
		if n := calls.Load(); n != 1 {
			t.Errorf("the hanging check was started %d times, want once", n)
		}
		close(mend)
		synctest.Wait()
		if diff := cmp.Diff("[+]ping ok\n[+]stuck ok\n[+]fine ok\nhealthz check passed\n", ask()); diff != "" {
			t.Errorf("after it came back (-want +got):\n%s", diff)
		}
	})
}

func TestDuplicateNamePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("two checks of one name share a path: Handler must refuse them")
		}
	}()
	canary.Handler("/readyz", canary.Check{Name: "ping", Check: holds})
}
