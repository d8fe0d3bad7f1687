package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
	"github.com/steadwatch/steadwatch/pkg/controller/webapp"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	platformclient "github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/typed/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// newWebApp puts the WebApp controller together.
func newWebApp(s *shared, services *informer.Informer[*corev1.Service]) (*assembly, error) {
	// Its name in the audit log is also the field manager that its writes name.
	const name = "steadwatch-webapp"
	resource := platformv1alpha1.SchemeGroupVersion.WithResource("webapps")

	webApps, err := newCopy(s, informer.TolerantClient(platformclient.NewForConfig),
		informer.Config[*platformv1alpha1.WebApp]{Resource: resource, Indexers: webapp.Indexers()})
	if err != nil {
		return nil, err
	}
	deployments, err := newCopy(s, informer.ListWatchClient(appsv1client.NewForConfig, (*appsv1client.AppsV1Client).Deployments),
		informer.Config[*appsv1.Deployment]{Resource: appsv1.SchemeGroupVersion.WithResource("deployments")})
	if err != nil {
		return nil, err
	}
	configMaps, err := newCopy(s, informer.ListWatchClient(corev1client.NewForConfig, (*corev1client.CoreV1Client).ConfigMaps),
		informer.Config[*corev1.ConfigMap]{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Transform: webapp.TransformConfigMap})
	if err != nil {
		return nil, err
	}

	recorder, err := s.newRecorder(name)
	if err != nil {
		return nil, err
	}
	cfg := webapp.Config{
		WebApps: webApps, Deployments: deployments, Services: services, ConfigMaps: configMaps,
		Writes:    informer.NewWrites(writeOverdueAfter, webApps, deployments, services),
		Recorder:  recorder,
		Converged: s.counters.Converged("WebApp"),
	}
	writing := s.writer(name, "", s.o.kubeAPIQPS, s.o.kubeAPIBurst)
	if cfg.Kube, err = kubernetes.NewForConfig(writing); err != nil {
		return nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	if cfg.Platform, err = versioned.NewForConfig(writing); err != nil {
		return nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	if cfg.Metadata, err = metadata.NewForConfig(writing); err != nil {
		return nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	reconciler, err := webapp.New(cfg)
	if err != nil {
		return nil, err
	}
	// What is done for a WebApp that cannot be decoded, in place of reconciling it.
	// Its limiter is its own: people are told however much there is to reconcile.
	teller, err := versioned.NewForConfig(s.writer(name, "-undecodable", 5, 10))
	if err != nil {
		return nil, fmt.Errorf("build the client for undecodable objects: %w", err)
	}
	reporter, err := undecodable.New(undecodable.Config{
		Resource:     resource,
		Kind:         "WebApp",
		Client:       teller.PlatformV1alpha1().RESTClient(),
		FieldManager: name,
		Quarantined:  webApps.Quarantined,
		Finalizer:    platformv1alpha1.Finalizer,
		Finalize:     reconciler.Finalize,
		Recorder:     recorder,
	})
	if err != nil {
		return nil, err
	}

	a := &assembly{
		name:        "webapp",
		copies:      []localCopy{webApps, deployments, configMaps},
		quarantines: []quarantineSource{webApps},
		needs:       []metrics.Informer{webApps, deployments, services, configMaps},
		recorder:    recorder,
	}
	if a.Controller, err = s.newController(a.name, reconciler, reporter, cfg.Writes, reconciler.Keys, webApps.Undecodable); err != nil {
		return nil, err
	}
	if a.caches, err = reconciler.Register(a); err != nil {
		return nil, err
	}
	a.follow(webApps, reporter)
	s.registry.MustRegister(metrics.NewUnconverged("WebApp", func() (int, bool) {
		return webApps.Unconverged(func(app *platformv1alpha1.WebApp) int64 { return app.Status.ObservedGeneration })
	}))
	return a, nil
}
