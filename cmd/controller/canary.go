package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
)

// watchCanary is the canary of this process; without one inside it is switched off.
type watchCanary struct{ *canary.Canary }

// newWatchCanary makes the canary that the flags ask for. It writes as the leader
// does, through the fence. alarm is called with what it has found that the local
// copies should look into; it must not block.
func newWatchCanary(config *rest.Config, o *options, identity string, fence *fence, counters *metrics.Metrics, registry prometheus.Registerer, alarm func(reason string)) (watchCanary, error) {
	if o.watchCanaryInterval == 0 {
		return watchCanary{}, nil
	}
	c, err := canary.New(canary.Config{
		Client:    fencedConfig(config, fence, "steadwatch", 0, 0),
		Namespace: o.leaderElectionNamespace,
		Identity:  identity,
		Interval:  o.watchCanaryInterval,
		FailAfter: o.watchCanaryFailAfter,
		RoundTrip: counters.RoundTrip(),
		Late:      func() { alarm("the canary is late") },
		Rewound:   func() { alarm("the revision of the canary's Lease has gone down") },
	})
	if err != nil {
		return watchCanary{}, err
	}
	registry.MustRegister(metrics.NewCanaryCollector(c))
	return watchCanary{c}, nil
}

// liveness returns checks with the canary's own. Those given are for what a restart
// mends; they draw on the budget of restarts that the canary keeps. Without a canary
// there is none, and they fail whenever they have cause to.
func (w watchCanary) liveness(checks ...canary.Check) []canary.Check {
	if w.Canary == nil {
		return checks
	}
	for i := range checks {
		checks[i].Check = w.WithinBudget(checks[i].Check)
	}
	return append(checks, canary.Check{Name: "canary", Check: w.Check})
}

// during runs the canary for as long as lead leads, also while it waits for its
// caches: that they do not fill may be what the canary finds the cause of.
func (w watchCanary) during(lead func(context.Context) error) func(context.Context) error {
	if w.Canary == nil {
		return lead
	}
	return func(ctx context.Context) error {
		watching, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() {
			if err := w.Run(watching); err != nil {
				klog.FromContext(ctx).Error(err, "Canary ended")
			}
		})
		defer done.Wait()
		defer stop()
		return lead(ctx)
	}
}

// debug adds GET /debug/canary to next.
func (w watchCanary) debug(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("GET /debug/canary", func(rw http.ResponseWriter, _ *http.Request) {
		if w.Canary == nil {
			http.Error(rw, "switched off by --watch-canary-interval=0", http.StatusNotFound)
			return
		}
		writeJSON(rw, w.Snapshot())
	})
	return mux
}

// checkWatchCanary refuses values that make no sense.
func (o *options) checkWatchCanary(refuse func(name, format string, args ...any) error) error {
	switch {
	case o.watchCanaryInterval < 0, o.watchCanaryInterval > 0 && o.watchCanaryInterval < time.Second:
		return refuse("watch-canary-interval", "must be a second or more, or 0 to switch it off")
	case o.watchCanaryInterval > 0 && o.watchCanaryFailAfter < o.watchCanaryInterval:
		return refuse("watch-canary-fail-after", "must not be below --watch-canary-interval (%s); to switch the canary off, set that to 0", o.watchCanaryInterval)
	}
	return nil
}
