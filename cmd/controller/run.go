package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/klog/v2"

	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
	"github.com/steadwatch/steadwatch/pkg/controller/webapp"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
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

	// Local copies. A kind that cannot be listed is a state of its own. Each has
	// connections of its own, so that a watch which has gone silent can leave them;
	// they share the one over which it is found out.
	hearing, err := newHearing(config, o)
	if err != nil {
		return err
	}
	webAppsVia, deploymentsVia, servicesVia, configMapsVia := informer.NewConnection(reads), informer.NewConnection(reads), informer.NewConnection(reads), informer.NewConnection(reads)
	platform, err := versioned.NewForConfig(webAppsVia.Config())
	if err != nil {
		return fmt.Errorf("build the client for reading: %w", err)
	}
	webApps, err := informer.New(informer.Config[*platformv1alpha1.WebApp]{
		Resource:      platformv1alpha1.SchemeGroupVersion.WithResource("webapps"),
		ListerWatcher: informer.Tolerant(platform.PlatformV1alpha1().RESTClient()),
		Hearing:       hearing,
		Connection:    webAppsVia,
		Namespaces:    o.namespaces,
		Indexers:      webapp.Indexers(),
	})
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(deploymentsVia.Config())
	if err != nil {
		return fmt.Errorf("build the client for reading: %w", err)
	}
	deployments, err := informer.New(informer.Config[*appsv1.Deployment]{
		Resource:      appsv1.SchemeGroupVersion.WithResource("deployments"),
		ListerWatcher: informer.ListWatch(kube, kube.AppsV1().Deployments),
		Hearing:       hearing,
		Connection:    deploymentsVia,
		Namespaces:    o.namespaces,
	})
	if err != nil {
		return err
	}
	if kube, err = kubernetes.NewForConfig(servicesVia.Config()); err != nil {
		return fmt.Errorf("build the client for reading: %w", err)
	}
	services, err := informer.New(informer.Config[*corev1.Service]{
		Resource:      corev1.SchemeGroupVersion.WithResource("services"),
		ListerWatcher: informer.ListWatch(kube, kube.CoreV1().Services),
		Hearing:       hearing,
		Connection:    servicesVia,
		Namespaces:    o.namespaces,
	})
	if err != nil {
		return err
	}
	if kube, err = kubernetes.NewForConfig(configMapsVia.Config()); err != nil {
		return fmt.Errorf("build the client for reading: %w", err)
	}
	configMaps, err := informer.New(informer.Config[*corev1.ConfigMap]{
		Resource:      corev1.SchemeGroupVersion.WithResource("configmaps"),
		ListerWatcher: informer.ListWatch(kube, kube.CoreV1().ConfigMaps),
		Hearing:       hearing,
		Connection:    configMapsVia,
		Namespaces:    o.namespaces,
		Transform:     webapp.TransformConfigMap,
	})
	if err != nil {
		return err
	}
	informers := []metrics.Informer{webApps, deployments, services, configMaps}

	// The WebApp controller. Its name in the audit log is also the field manager
	// that its writes name.
	const webAppName = "steadwatch-webapp"
	writing := fencedConfig(config, fence, webAppName, o.kubeAPIQPS, o.kubeAPIBurst)
	webAppConfig := webapp.Config{
		WebApps: webApps, Deployments: deployments, Services: services, ConfigMaps: configMaps,
		Writes:    informer.NewWrites(writeOverdueAfter, webApps, deployments, services),
		Converged: counters.Converged("WebApp"),
	}
	if webAppConfig.Kube, err = kubernetes.NewForConfig(writing); err != nil {
		return fmt.Errorf("build the client of %s: %w", webAppName, err)
	}
	if webAppConfig.Platform, err = versioned.NewForConfig(writing); err != nil {
		return fmt.Errorf("build the client of %s: %w", webAppName, err)
	}
	if webAppConfig.Metadata, err = metadata.NewForConfig(writing); err != nil {
		return fmt.Errorf("build the client of %s: %w", webAppName, err)
	}
	for _, i := range []interface {
		Resource() schema.GroupVersionResource
		OnRewind(func())
	}{webApps, deployments, services} {
		i.OnRewind(func() { webAppConfig.Writes.Reset(i.Resource()) })
	}
	reporting := fencedConfig(config, fence, webAppName+"-events", 5, 25)
	reporter, err := kubernetes.NewForConfig(reporting)
	if err != nil {
		return fmt.Errorf("build the client for Events: %w", err)
	}
	eventsCtx, stopEvents := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEvents()
	recorder := newEventRecorder(eventsCtx, reporter.CoreV1(), webAppName)
	webAppConfig.Recorder = recorder
	webAppReconciler, err := webapp.New(webAppConfig)
	if err != nil {
		return err
	}
	// What is done for a WebApp that cannot be decoded, in place of reconciling it.
	// Its limiter is its own: people are told however much there is to reconcile.
	telling := fencedConfig(config, fence, webAppName+"-undecodable", 5, 10)
	teller, err := versioned.NewForConfig(telling)
	if err != nil {
		return fmt.Errorf("build the client for undecodable objects: %w", err)
	}
	webAppUndecodable, err := undecodable.New(undecodable.Config{
		Resource:     platformv1alpha1.SchemeGroupVersion.WithResource("webapps"),
		Kind:         "WebApp",
		Client:       teller.PlatformV1alpha1().RESTClient(),
		FieldManager: webAppName,
		Quarantined:  webApps.Quarantined,
		Finalizer:    platformv1alpha1.Finalizer,
		Finalize:     webAppReconciler.Finalize,
		Recorder:     recorder,
	})
	if err != nil {
		return err
	}
	webAppController, err := controller.New(controller.Config{
		Name:       "webapp",
		Reconciler: webAppReconciler,
		Frozen:     webAppUndecodable,
		// A WebApp that cannot be decoded may be in no lister.
		Keys:             func() []cache.ObjectName { return append(webAppReconciler.Keys(), quarantinedKeys(webApps)...) },
		Gate:             gate(webAppConfig.Writes, webApps.Quarantined),
		Workers:          o.workers,
		ReconcileTimeout: o.reconcileTimeout,
		ShutdownTimeout:  o.shutdownTimeout,
		RetryBaseDelay:   o.retryBaseDelay,
		RetryMaxDelay:    o.retryMaxDelay,
		RetryQPS:         o.retryQPS,
		RetryBurst:       o.retryBurst,
		TerminalRecheck:  o.terminalRecheck,
		MetricsProvider:  counters,
		Observe:          counters.Observe("webapp"),
	})
	if err != nil {
		return err
	}
	webAppCaches, err := webAppReconciler.Register(webAppController)
	if err != nil {
		return err
	}
	webApps.OnQuarantine(func(bad informer.Quarantined, entered bool) {
		if !entered {
			webAppUndecodable.Forget(bad.Key)
		}
		webAppController.Enqueue(controller.Urgent, bad.Key)
	})
	registry.MustRegister(metrics.NewCollector(informers, []metrics.Controller{webAppController}))
	registry.MustRegister(metrics.NewUnconverged("WebApp", func() (int, bool) {
		return webApps.Unconverged(func(app *platformv1alpha1.WebApp) int64 { return app.Status.ObservedGeneration })
	}))

	// The write that must come back.
	watching, err := newWatchCanary(config, o, fence, counters, registry, hearing.AuditNow)
	if err != nil {
		return err
	}

	// The lease.
	var elected *election
	live := watching.liveness(canary.Check{Name: "webapp", Check: webAppController.Check, Note: wedgedNote(webAppController)})
	if o.leaderElect {
		if elected, err = newElection(config, o, fence); err != nil {
			return err
		}
		live = append(live, canary.Check{Name: "leader-election", Check: elected.Check})
	}

	// Servers, before anything can wait: a filled cache, the lease, or whoever
	// waits for a probe of this very process.
	ready := &readiness{informers: informers}
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
			watching.debug(debugHandler(informers, []quarantineSource{webApps}, map[string]*controller.Controller{"webapp": webAppController}))),
	); err != nil {
		return err
	}

	// Running. Informers run on standbys too, so that one can take over at once;
	// they outlive the controllers.
	informing, stopInformers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopInformers()
	var informersDone sync.WaitGroup
	for _, run := range []func(context.Context) error{webApps.Run, deployments.Run, services.Run, configMaps.Run} {
		informersDone.Go(func() {
			if err := run(informing); err != nil {
				logger.Error(err, "Informer ended")
			}
		})
	}
	context.AfterFunc(ctx, ready.shutDown)
	lead := watching.during(func(ctx context.Context) error {
		if !awaitCaches(ctx, "webapp", informers, webAppCaches) {
			return nil
		}
		err := webAppController.Run(ctx)
		if !errors.Is(context.Cause(ctx), controller.ErrAbort) {
			flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
			defer cancel()
			recorder.flush(flushing)
		}
		return err
	})
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
	informersDone.Wait()
	serving.close(ctx)
	logger.Info("Ended")
	return nil
}

// newElection connects the elector, on a client of its own, to the fence.
func newElection(config *rest.Config, o *options, fence *fence) (*election, error) {
	identity, err := newIdentity()
	if err != nil {
		return nil, err
	}
	lock, reconnect, err := newLeaseLock(clientConfig(config, "steadwatch", 0, 0), o.leaderElectionNamespace, identity)
	if err != nil {
		return nil, err
	}
	return &election{
		lease: &lease{
			Interface: lock,
			fence:     fence,
			now:       fence.now,
			timeout:   o.renewDeadline / 3,
			reconnect: reconnect,
			report:    leaseReport{namespace: o.leaderElectionNamespace},
		},
		fence:         fence,
		leaseDuration: o.leaseDuration,
		renewDeadline: o.renewDeadline,
		retryPeriod:   o.retryPeriod,
	}, nil
}

// gate keeps a key back while its object cannot be decoded, so that nobody acts
// on an older version or on none, and while the local copy lacks a write made
// for it.
func gate(writes *informer.Writes, quarantined func(cache.ObjectName) (informer.Quarantined, bool)) func(cache.ObjectName) controller.Verdict {
	return func(key cache.ObjectName) controller.Verdict {
		if q, bad := quarantined(key); bad {
			f := q.Fields[0]
			return controller.Verdict{State: controller.Frozen, Reason: fmt.Sprintf("cannot be decoded: %s is %s: %s", cmp.Or(f.Path, "the object"), f.Value, f.Reason)}
		}
		if detail, _, pending := writes.Pending(key); pending {
			return controller.Verdict{State: controller.Stale, Reason: detail}
		}
		return controller.Verdict{}
	}
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
