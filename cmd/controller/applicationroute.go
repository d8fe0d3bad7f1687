package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayversioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	networkingv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/applicationroute"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	networkingclient "github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/typed/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// newApplicationRoute puts the ApplicationRoute controller together.
func newApplicationRoute(s *shared, services *informer.Informer[*corev1.Service]) (*assembly, error) {
	// Its name in the audit log is also the field manager that its writes name.
	const name = "steadwatch-applicationroute"
	resource := networkingv1alpha1.SchemeGroupVersion.WithResource("applicationroutes")

	routes, err := newCopy(s, informer.TolerantClient(networkingclient.NewForConfig),
		informer.Config[*networkingv1alpha1.ApplicationRoute]{Resource: resource, Indexers: applicationroute.Indexers(s.o.defaultGateway.ObjectName)})
	if err != nil {
		return nil, err
	}
	// The kinds of the Gateway API may be missing, or newer than our types: one object
	// that does not fit them stops nothing.
	gatewayAPI, gatewayVersion := informer.TolerantClient(gatewayclient.NewForConfig), schema.GroupVersion(gatewayv1.GroupVersion)
	httpRoutes, err := newCopy(s, gatewayAPI,
		informer.Config[*gatewayv1.HTTPRoute]{Resource: gatewayVersion.WithResource("httproutes"), Optional: true, Indexers: applicationroute.HTTPRouteIndexers()})
	if err != nil {
		return nil, err
	}
	listenerSets, err := newCopy(s, gatewayAPI, informer.Config[*gatewayv1.ListenerSet]{Resource: gatewayVersion.WithResource("listenersets"), Optional: true})
	if err != nil {
		return nil, err
	}
	gateways, err := newCopy(s, gatewayAPI, informer.Config[*gatewayv1.Gateway]{Resource: gatewayVersion.WithResource("gateways"), Optional: true})
	if err != nil {
		return nil, err
	}
	copies := []localCopy{routes, httpRoutes, listenerSets, gateways}
	// Of Secrets nothing but metadata ever gets here, and that only if it is asked for.
	var secrets *informer.Informer[*metav1.PartialObjectMetadata]
	if s.o.tlsSecrets {
		secretsResource := corev1.SchemeGroupVersion.WithResource("secrets")
		ofSecrets := func(clients metadata.Interface, namespace string) metadata.ResourceInterface {
			return clients.Resource(secretsResource).Namespace(namespace)
		}
		secrets, err = newCopy(s, informer.ListWatchClient(metadata.NewForConfig, ofSecrets),
			informer.Config[*metav1.PartialObjectMetadata]{Resource: secretsResource, Transform: applicationroute.TransformSecret})
		if err != nil {
			return nil, err
		}
		copies = append(copies, secrets)
	}

	recorder, err := s.newRecorder(name)
	if err != nil {
		return nil, err
	}
	cfg := applicationroute.Config{
		ApplicationRoutes: routes, Services: services, HTTPRoutes: httpRoutes, ListenerSets: listenerSets, Gateways: gateways, Secrets: secrets,
		Writes:         informer.NewWrites(writeOverdueAfter, routes, httpRoutes, listenerSets),
		DefaultGateway: s.o.defaultGateway.ObjectName,
		Recorder:       recorder,
		Converged:      s.counters.Converged("ApplicationRoute"),
	}
	writing := s.writer(name, "", s.o.kubeAPIQPS, s.o.kubeAPIBurst)
	if cfg.Kube, err = kubernetes.NewForConfig(writing); err != nil {
		return nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	if cfg.Networking, err = versioned.NewForConfig(writing); err != nil {
		return nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	if cfg.Gateway, err = gatewayversioned.NewForConfig(writing); err != nil {
		return nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	if cfg.Metadata, err = metadata.NewForConfig(writing); err != nil {
		return nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	reconciler, err := applicationroute.New(cfg)
	if err != nil {
		return nil, err
	}
	// As for WebApps, without a finalizer: there is nothing to do for a route that is
	// deleted.
	teller, err := versioned.NewForConfig(s.writer(name, "-undecodable", 5, 10))
	if err != nil {
		return nil, fmt.Errorf("build the client for undecodable objects: %w", err)
	}
	reporter, err := undecodable.New(undecodable.Config{
		Resource:     resource,
		Kind:         "ApplicationRoute",
		Client:       teller.NetworkingV1alpha1().RESTClient(),
		FieldManager: name,
		Quarantined:  routes.Quarantined,
		Recorder:     recorder,
	})
	if err != nil {
		return nil, err
	}

	a := &assembly{
		name:        "applicationroute",
		copies:      copies,
		quarantines: []quarantineSource{routes, httpRoutes, listenerSets, gateways},
		needs:       []metrics.Informer{routes, services},
		recorder:    recorder,
	}
	if a.Controller, err = s.newController(a.name, reconciler, reporter, cfg.Writes, reconciler.Keys, routes.Undecodable); err != nil {
		return nil, err
	}
	if a.caches, err = reconciler.Register(a); err != nil {
		return nil, err
	}
	a.follow(routes, reporter)
	s.registry.MustRegister(metrics.NewUnconverged("ApplicationRoute", func() (int, bool) {
		return routes.Unconverged(func(route *networkingv1alpha1.ApplicationRoute) int64 { return route.Status.ObservedGeneration })
	}))
	return a, nil
}
