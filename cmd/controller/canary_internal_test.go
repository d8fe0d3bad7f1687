package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
)

func newTestCanary(t *testing.T, o *options) watchCanary {
	t.Helper()
	registry := prometheus.NewRegistry()
	counters, err := metrics.New(registry, "test")
	if err != nil {
		t.Fatal(err)
	}
	// Nobody listens there.
	w, err := newWatchCanary(&rest.Config{Host: "https://127.0.0.1:1"}, o, "here", newFence(0, 0, systemClock()), counters, registry, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var errWedged = errors.New("all workers are stuck")

// Switched off there is no budget: a wedged controller fails liveness by itself.
func TestCanaryOff(t *testing.T) {
	w := newTestCanary(t, &options{})
	checks := w.liveness(canary.Check{Name: "webapp", Check: func() error { return errWedged }})
	if len(checks) != 1 || !errors.Is(checks[0].Check(), errWedged) {
		t.Errorf("checks %+v, want the given one as it is", checks)
	}
	led := false
	if err := w.during(func(context.Context) error { led = true; return nil })(t.Context()); err != nil || !led {
		t.Errorf("led %t, %v", led, err)
	}
	rw := httptest.NewRecorder()
	w.debug(http.NotFoundHandler()).ServeHTTP(rw, httptest.NewRequest(http.MethodGet, "/debug/canary", nil))
	if rw.Code != http.StatusNotFound {
		t.Errorf("/debug/canary: %d", rw.Code)
	}
}

// The canary runs for as long as the process leads, also where the controllers end
// by themselves, and an API server that is away fails no liveness.
func TestCanaryDuring(t *testing.T) {
	w := newTestCanary(t, &options{watchCanaryInterval: time.Second, watchCanaryFailAfter: time.Second, leaderElectionNamespace: "n"})
	checks := w.liveness(canary.Check{Name: "webapp", Check: func() error { return errWedged }})
	if len(checks) != 2 || checks[1].Name != "canary" {
		t.Fatalf("checks %+v, want the given one and the canary's", checks)
	}
	ended := errors.New("ended")
	err := w.during(func(ctx context.Context) error {
		for w.Snapshot().State != canary.Unwritable {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-t.Context().Done():
				t.Fatalf("%+v", w.Snapshot())
			}
		}
		for _, c := range checks {
			if err := c.Check(); err != nil {
				t.Errorf("%s: %v although no ask can be written", c.Name, err)
			}
		}
		return ended
	})(t.Context())
	if !errors.Is(err, ended) || w.Snapshot().State != canary.Standby {
		t.Errorf("%v, state %s", err, w.Snapshot().State)
	}
	rw := httptest.NewRecorder()
	w.debug(http.NotFoundHandler()).ServeHTTP(rw, httptest.NewRequest(http.MethodGet, "/debug/canary", nil))
	if rw.Code != http.StatusOK {
		t.Errorf("/debug/canary: %d", rw.Code)
	}
}
