package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

const (
	// writeOverdueAfter is how long a key waits for its own write to show up in
	// the local copy before the reconciler reads from the API server instead.
	writeOverdueAfter = 10 * time.Second
	// flushTimeout bounds the wait for the last Events at shutdown.
	flushTimeout = 2 * time.Second
	// cacheReminder is how often a leader says which local copies it lacks.
	cacheReminder = time.Minute
)

// run puts the process together, top to bottom, and returns when all of it has
// ended: nil after a shutdown that left nothing running, a *flagError where
// nothing was started. After any other error something may still run, and the
// caller ends the process at once.
//
// An API server that is away is not an error, at no time.
func run(ctx context.Context, o *options) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", buildVersion(), "namespaces", o.namespaces.String(), "leaderElect", o.leaderElect)

	// Metrics. The hooks of client-go are global and set here alone, before the
	// first client is made.
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counters, err := metrics.New(registry, buildVersion())
	if err != nil {
		return err
	}
	clientmetrics.Register(counters.RESTClient())
	leaderelection.SetProvider(counters)

	// The API server. What reads passes freely; what writes for the leader passes
	// the fence. Each has a limiter of its own, so that a burst of writes holds up
	// neither the local copies nor the lease.
	config, err := loadConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	reads := clientConfig(config, "steadwatch", o.kubeAPIQPS, o.kubeAPIBurst)
	clock := systemClock()
	fence := newFence(o.renewDeadline, o.leaseDuration, clock)
	if !o.leaderElect {
		fence = newFence(0, 0, clock)
	}

	// Local copies and controllers, each in a file of its own. A kind that cannot be
	// listed is a state of its own, and holds up nobody who can do without it. What is
	// shared: the Services, the connection over which a watch that has gone silent is
	// found out, and the metrics.
	hearing, err := newHearing(config, o)
	if err != nil {
		return err
	}
	events, stopEvents := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEvents()
	parts := &shared{o: o, config: config, reads: reads, fence: fence, hearing: hearing, registry: registry, counters: counters, events: events}
	services, err := newCopy(parts, informer.ListWatchClient(corev1client.NewForConfig, (*corev1client.CoreV1Client).Services),
		informer.Config[*corev1.Service]{Resource: corev1.SchemeGroupVersion.WithResource("services")})
	if err != nil {
		return err
	}
	webApps, err := newWebApp(parts, services)
	if err != nil {
		return err
	}
	routes, err := newApplicationRoute(parts, services)
	if err != nil {
		return err
	}
	everything := gather(services, webApps, routes)
	registry.MustRegister(metrics.NewCollector(everything.informers, everything.measured))

	// The write that must come back, by the same name as the lease's holder.
	identity, err := newIdentity()
	if err != nil {
		return err
	}
	watching, err := newWatchCanary(config, o, identity, fence, counters, registry, hearing.AuditNow)
	if err != nil {
		return err
	}

	// The lease.
	var elected *election
	live := watching.liveness(everything.wedged...)
	if o.leaderElect {
		if elected, err = newElection(config, o, identity, fence); err != nil {
			return err
		}
		live = append(live, canary.Check{Name: "leader-election", Check: elected.Check})
	}

	// Servers, before anything can wait: a filled cache, the lease, or whoever
	// waits for a probe of this very process.
	ready := &readiness{informers: everything.informers}
	probes := http.NewServeMux()
	handle(probes, "/healthz", live)
	handle(probes, "/readyz", []canary.Check{{Name: "informers", Check: ready.Check}})
	scrapes := http.NewServeMux()
	scrapes.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	var serving servers
	defer serving.close(ctx)
	if err := errors.Join(
		serving.listen(ctx, "health-probe-bind-address", o.healthAddress, probes),
		serving.listen(ctx, "metrics-bind-address", o.metricsAddress, scrapes),
		serving.listen(ctx, "debug-bind-address", o.debugAddress,
			watching.debug(debugHandler(everything.informers, everything.quarantines, everything.controllers))),
	); err != nil {
		return err
	}

	// Running. Informers run on standbys too, so that one can take over at once;
	// they outlive the controllers.
	stopInformers := informer.Start(context.WithoutCancel(ctx), everything.copies...)
	context.AfterFunc(ctx, ready.shutDown)
	lead := watching.during(together(webApps.lead, routes.lead))
	if o.leaderElect {
		err = elected.run(ctx, lead)
	} else {
		fence.open()
		err = lead(ctx)
		fence.close()
	}
	if err != nil {
		return err
	}

	// Shutdown: the controllers have drained and the lease is released. What is
	// left goes in the order in which the rest could still need it.
	stopEvents()
	stopInformers()
	serving.close(ctx)
	logger.Info("Ended")
	return nil
}

// newElection connects the elector, on a client of its own, to the fence.
func newElection(config *rest.Config, o *options, identity string, fence *fence) (*election, error) {
	lock, reconnect, err := newLeaseLock(clientConfig(config, "steadwatch", 0, 0), o.leaderElectionNamespace, identity)
	if err != nil {
		return nil, err
	}
	return &election{
		lease: &lease{
			Interface: lock,
			fence:     fence,
			now:       fence.now,
			timeout:   leaseRequestTimeout(o.renewDeadline),
			reconnect: reconnect,
			report:    leaseReport{namespace: o.leaderElectionNamespace},
		},
		fence:         fence,
		leaseDuration: o.leaseDuration,
		renewDeadline: o.renewDeadline,
		retryPeriod:   o.retryPeriod,
	}, nil
}

// awaitCaches waits until a controller can rely on its local copies; false means
// that ctx ended first. A leader that waits says for what, now and again.
func awaitCaches(ctx context.Context, name string, informers []metrics.Informer, synced []cache.DoneChecker) bool {
	for {
		waiting, cancel := context.WithTimeout(ctx, cacheReminder)
		done := cache.WaitFor(klog.NewContext(waiting, klog.FromContext(ctx).V(4)), "caches of "+name, synced...)
		cancel()
		if done || ctx.Err() != nil {
			return done && ctx.Err() == nil
		}
		klog.FromContext(ctx).Info("Leading, but a controller waits for its caches", "controller", name,
			"resources", strings.Join(unsynced(informers), ", "))
	}
}

// handle mounts checks at path and below.
func handle(mux *http.ServeMux, path string, checks []canary.Check) {
	h := canary.Handler(path, checks...)
	mux.Handle(path, h)
	mux.Handle(path+"/", h)
}
