package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1ac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"
	gateway "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	gatewaylisters "sigs.k8s.io/gateway-api/pkg/client/listers/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	networkingv1alpha1ac "github.com/steadwatch/steadwatch/pkg/generated/applyconfiguration/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	networkinglisters "github.com/steadwatch/steadwatch/pkg/generated/listers/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// manager owns the fields that are applied.
const manager = "embedding"

type reconciler struct {
	copies
	networking versioned.Interface
	writes     *informer.Writes
	applier    *child.Applier
	children   child.Kind[*gatewayv1.HTTPRoute, *gatewayv1ac.HTTPRouteApplyConfiguration]
}

func newReconciler(config *rest.Config, local copies) (*reconciler, error) {
	networking, err1 := versioned.NewForConfig(config)
	gateways, err2 := gateway.NewForConfig(config)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	r := &reconciler{copies: local, networking: networking, writes: informer.NewWrites(0, local.routes, local.httpRoutes)}
	r.applier = &child.Applier{
		FieldManager: manager,
		Annotation:   "example.com/applied-hash",
		Owner:        schema.GroupKind{Group: v1alpha1.SchemeGroupVersion.Group, Kind: "ApplicationRoute"},
		Wrote:        r.wrote,
	}
	r.children = child.Kind[*gatewayv1.HTTPRoute, *gatewayv1ac.HTTPRouteApplyConfiguration]{
		Name:     "HTTPRoute",
		Resource: local.httpRoutes.Resource(),
		Cached: func(namespace, name string) (*gatewayv1.HTTPRoute, error) {
			return gatewaylisters.NewHTTPRouteLister(local.httpRoutes.Indexer()).HTTPRoutes(namespace).Get(name)
		},
		Client: func(namespace string) child.Client[*gatewayv1.HTTPRoute, *gatewayv1ac.HTTPRouteApplyConfiguration] {
			return gateways.GatewayV1().HTTPRoutes(namespace)
		},
	}
	return r, nil
}

// register has every event lead to the keys of the routes that it concerns.
func (r *reconciler) register(c *controller.Controller) ([]cache.DoneChecker, error) {
	routes, err1 := r.routes.AddHandler(controller.Protected(c, "routes", cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.ApplicationRoute]{
		AddFunc: func(o *v1alpha1.ApplicationRoute, initial bool) {
			c.Enqueue(controller.AddedLane(initial), cache.MetaObjectToName(o))
		},
		UpdateFunc: func(old, o *v1alpha1.ApplicationRoute) {
			c.Enqueue(controller.SpecLane(old, o), cache.MetaObjectToName(o))
		},
		DeleteFunc: func(o cache.DeletedObject[*v1alpha1.ApplicationRoute]) {
			c.Enqueue(controller.Normal, o.GetObjectName())
		},
	}))
	users := func(lane controller.Lane, service cache.ObjectName) {
		keys, _ := r.routes.Indexer().IndexKeys(byService, service.String())
		c.Enqueue(lane, controller.ParseKeys(keys)...)
	}
	services, err2 := r.services.AddHandler(controller.Protected(c, "routes by Service", cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Service]{
		AddFunc:    func(o *corev1.Service, initial bool) { users(controller.AddedLane(initial), cache.MetaObjectToName(o)) },
		UpdateFunc: func(old, o *corev1.Service) { users(controller.ChangedLane(old, o), cache.MetaObjectToName(o)) },
		DeleteFunc: func(o cache.DeletedObject[*corev1.Service]) { users(controller.Normal, o.GetObjectName()) },
	}))
	exists := func(key cache.ObjectName) bool {
		_, exists, _ := r.routes.Indexer().GetByKey(key.String())
		return exists
	}
	httpRoutes, err3 := r.httpRoutes.AddHandler(controller.Protected(c, "routes by HTTPRoute",
		child.Handlers[*gatewayv1.HTTPRoute](child.Owners{Kind: r.applier.Owner, Exists: exists}, c.Enqueue)))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	return []cache.DoneChecker{routes.HasSyncedChecker(), services.HasSyncedChecker(), httpRoutes.HasSyncedChecker()}, nil
}

// gate keeps back routes that cannot be decoded, and those whose last write is not in
// the local copy yet.
func (r *reconciler) gate(key cache.ObjectName) controller.Verdict {
	if bad, found := r.routes.Quarantined(key); found {
		return controller.Verdict{State: controller.Frozen, Reason: bad.Error}
	}
	if detail, _, pending := r.writes.Pending(key); pending {
		return controller.Verdict{State: controller.Stale, Reason: detail}
	}
	return controller.Verdict{}
}

// Reconcile brings one route's HTTPRoute and status in line with its spec.
func (r *reconciler) Reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	route, err := networkinglisters.NewApplicationRouteLister(r.routes.Indexer()).ApplicationRoutes(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		r.writes.Forget(key)
		return controller.Result{}, nil
	}
	if err != nil || route.DeletionTimestamp != nil || route.Spec.Gateway == nil {
		return controller.Result{}, err
	}
	current, err := child.Find(ctx, r.applier, r.children, route, len(r.writes.Overdue(key)) > 0)
	if err != nil {
		return controller.Result{}, err
	}
	if _, err := child.Ensure(ctx, r.applier, r.children, route, current, desired(route), nil); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{}, r.report(ctx, route)
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
		WithName(gatewayv1.ObjectName(route.Spec.Gateway.Name))
	if ns := route.Spec.Gateway.Namespace; ns != "" {
		parent.WithNamespace(gatewayv1.Namespace(ns))
	}
	spec := gatewayv1ac.HTTPRouteSpec().WithParentRefs(parent).WithRules(rule)
	for _, h := range route.Spec.Hostnames {
		spec.WithHostnames(gatewayv1.Hostname(h))
	}
	return gatewayv1ac.HTTPRoute(route.Name, route.Namespace).WithSpec(spec).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(v1alpha1.SchemeGroupVersion.String()).
			WithKind("ApplicationRoute").WithName(route.Name).WithUID(route.UID).WithController(true))
}

// report says which Services are missing, and writes if that has changed.
func (r *reconciler) report(ctx context.Context, route *v1alpha1.ApplicationRoute) error {
	found := metav1.Condition{Type: v1alpha1.ConditionDependenciesReady, Status: metav1.ConditionTrue, Reason: "DependenciesFound"}
	var missing []string
	for _, b := range route.Spec.Backends {
		if _, err := corelisters.NewServiceLister(r.services.Indexer()).Services(route.Namespace).Get(b.Service); err != nil {
			missing = append(missing, b.Service)
		}
	}
	if len(missing) > 0 {
		found.Status, found.Reason = metav1.ConditionFalse, "ServiceMissing"
		found.Message = "no Service " + strings.Join(missing, ", ")
	}
	next := conditions.Carry(route.Status.Conditions, []metav1.Condition{found}, route.Generation, false, metav1.Now())
	if !conditions.Changed(route.Status.Conditions, next) {
		return nil
	}
	written, err := r.networking.NetworkingV1alpha1().ApplicationRoutes(route.Namespace).ApplyStatus(ctx,
		networkingv1alpha1ac.ApplicationRoute(route.Name, route.Namespace).WithResourceVersion(route.ResourceVersion).
			WithStatus(networkingv1alpha1ac.ApplicationRouteStatus().WithObservedGeneration(route.Generation).
				WithConditions(conditions.Configurations(next)...)),
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	r.wrote(ctx, route, v1alpha1.SchemeGroupVersion.WithResource("applicationroutes"), written)
	return nil
}

// wrote has the gate wait until the local copy shows what was written.
func (r *reconciler) wrote(_ context.Context, owner metav1.Object, resource schema.GroupVersionResource, written metav1.Object) {
	r.writes.Wrote(cache.MetaObjectToName(owner), resource, cache.MetaObjectToName(written), written.GetUID(), written.GetResourceVersion())
}
