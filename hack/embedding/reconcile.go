package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1ac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	networkingv1alpha1ac "github.com/steadwatch/steadwatch/pkg/generated/applyconfiguration/networking/v1alpha1"
	networkingclient "github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/typed/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var kind = v1alpha1.SchemeGroupVersion.WithKind("ApplicationRoute")

type reconciler struct {
	routes     *informer.Informer[*v1alpha1.ApplicationRoute]
	services   *informer.Informer[*corev1.Service]
	httpRoutes *informer.Informer[*gatewayv1.HTTPRoute]
	writes     *informer.Writes
	networking *networkingclient.NetworkingV1alpha1Client
	applier    *child.Applier
	children   child.Kind[*gatewayv1.HTTPRoute, *gatewayv1ac.HTTPRouteApplyConfiguration]
}

func newReconciler(config *rest.Config) (*reconciler, error) {
	hearing, err1 := informer.NewHearing(informer.HearingConfig{Config: config})
	routes, err2 := informer.NewForConfig(config, informer.TolerantClient(networkingclient.NewForConfig),
		informer.Config[*v1alpha1.ApplicationRoute]{Hearing: hearing, Indexers: indexers,
			Resource: v1alpha1.SchemeGroupVersion.WithResource("applicationroutes")})
	services, err3 := informer.NewForConfig(config,
		informer.ListWatchClient(corev1client.NewForConfig, (*corev1client.CoreV1Client).Services),
		informer.Config[*corev1.Service]{Hearing: hearing,
			Resource: corev1.SchemeGroupVersion.WithResource("services")})
	httpRoutes, err4 := informer.NewForConfig(config, informer.TolerantClient(gatewayclient.NewForConfig),
		informer.Config[*gatewayv1.HTTPRoute]{Hearing: hearing,
			Resource: schema.GroupVersion(gatewayv1.GroupVersion).WithResource("httproutes")})
	networking, err5 := networkingclient.NewForConfig(config)
	gateways, err6 := gatewayclient.NewForConfig(config)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, err
	}
	writes := informer.NewWrites(0, routes, httpRoutes)
	return &reconciler{
		routes: routes, services: services, httpRoutes: httpRoutes, writes: writes, networking: networking,
		children: child.NewKind("HTTPRoute", httpRoutes, gateways.HTTPRoutes),
		applier: &child.Applier{
			Owner: kind.GroupKind(), FieldManager: "embedding", Annotation: "example.com/applied-hash",
			Wrote: writes.WroteObject,
		},
	}, nil
}

// byService finds the routes that send traffic to a Service.
const byService = "service"

var indexers = cache.TypedIndexers[*v1alpha1.ApplicationRoute]{
	byService: func(route *v1alpha1.ApplicationRoute) (services []string, _ error) {
		for _, b := range route.Spec.Backends {
			services = append(services, cache.NewObjectName(route.Namespace, b.Service).String())
		}
		return services, nil
	},
}

// Reconcile brings one route's HTTPRoute and status in line with its spec.
func (r *reconciler) Reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	route, err := r.routes.Get(key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		r.writes.Forget(key)
		return controller.Result{}, nil
	}
	if err != nil || route.DeletionTimestamp != nil || route.Spec.Gateway == nil {
		return controller.Result{}, err
	}
	current, err := child.Find(ctx, r.applier, r.children, route, len(r.writes.Overdue(key)) > 0)
	if err == nil {
		_, err = child.Ensure(ctx, r.applier, r.children, route, current, desired(route), nil)
	}
	if err == nil {
		err = r.report(ctx, route)
	}
	return controller.Result{}, err
}

// desired is the HTTPRoute, with the defaults of what is inside of lists.
func desired(route *v1alpha1.ApplicationRoute) *gatewayv1ac.HTTPRouteApplyConfiguration {
	rule := gatewayv1ac.HTTPRouteRule().WithMatches(gatewayv1ac.HTTPRouteMatch().
		WithPath(gatewayv1ac.HTTPPathMatch().WithType(gatewayv1.PathMatchPathPrefix).WithValue("/")))
	for _, b := range route.Spec.Backends {
		rule.WithBackendRefs(gatewayv1ac.HTTPBackendRef().WithGroup("").WithKind("Service").
			WithName(gatewayv1.ObjectName(b.Service)).WithPort(b.Port).WithWeight(ptr.Deref(b.Weight, 1)))
	}
	parent := gatewayv1ac.ParentReference().WithGroup(gatewayv1.GroupName).WithKind("Gateway").
		WithNamespace(gatewayv1.Namespace(cmp.Or(route.Spec.Gateway.Namespace, route.Namespace))).
		WithName(gatewayv1.ObjectName(route.Spec.Gateway.Name))
	spec := gatewayv1ac.HTTPRouteSpec().WithParentRefs(parent).WithRules(rule)
	for _, h := range route.Spec.Hostnames {
		spec.WithHostnames(gatewayv1.Hostname(h))
	}
	return gatewayv1ac.HTTPRoute(route.Name, route.Namespace).WithSpec(spec).
		WithOwnerReferences(child.OwnerReference(route, kind))
}

// report says whether a Service is missing, and writes if that has changed.
func (r *reconciler) report(ctx context.Context, route *v1alpha1.ApplicationRoute) error {
	found := metav1.Condition{Type: "DependenciesReady", Status: metav1.ConditionTrue, Reason: "DependenciesFound"}
	for _, b := range route.Spec.Backends {
		if !r.services.Has(cache.NewObjectName(route.Namespace, b.Service)) {
			found.Status, found.Reason = metav1.ConditionFalse, "ServiceMissing"
			found.Message = fmt.Sprintf("there is no Service %q", b.Service)
		}
	}
	old := route.Status.Conditions
	next := conditions.Carry(old, []metav1.Condition{found}, route.Generation, false, metav1.Now())
	if !conditions.Changed(old, next) {
		return nil
	}
	status := networkingv1alpha1ac.ApplicationRouteStatus().WithObservedGeneration(route.Generation).
		WithConditions(conditions.Configurations(next)...)
	written, err := r.networking.ApplicationRoutes(route.Namespace).ApplyStatus(ctx,
		networkingv1alpha1ac.ApplicationRoute(route.Name, route.Namespace).
			WithResourceVersion(route.ResourceVersion).WithStatus(status),
		metav1.ApplyOptions{FieldManager: r.applier.FieldManager, Force: true})
	if err == nil {
		r.writes.WroteObject(ctx, route, r.routes.Resource(), written)
	}
	return err
}
