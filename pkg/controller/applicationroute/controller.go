package applicationroute

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1ac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"
	gatewayversioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	gatewaylisters "sigs.k8s.io/gateway-api/pkg/client/listers/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	networkinglisters "github.com/steadwatch/steadwatch/pkg/generated/listers/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

const (
	// fieldManager owns what this controller writes.
	fieldManager = "steadwatch-applicationroute"
	// annotationApplied, on a child, is the hash of the last applied configuration.
	annotationApplied = "networking.tejo.dev/applied-hash"
)

var (
	groupKind            = v1alpha1.SchemeGroupVersion.WithKind(kind).GroupKind()
	routesResource       = v1alpha1.SchemeGroupVersion.WithResource("applicationroutes")
	httpRoutesResource   = schema.GroupVersion(gatewayv1.GroupVersion).WithResource("httproutes")
	listenerSetsResource = schema.GroupVersion(gatewayv1.GroupVersion).WithResource("listenersets")
)

// Config is what New needs.
type Config struct {
	// Kube, Networking, Gateway and Metadata reach the API server. Required. Their
	// user agent, limits and the fence of the lead are the caller's. Kube only reads:
	// namespaces, and the types of Secrets.
	Kube       kubernetes.Interface
	Networking versioned.Interface
	Gateway    gatewayversioned.Interface
	Metadata   metadata.Interface

	// The local copies. Required, all but Secrets. That of ApplicationRoutes needs
	// Indexers, that of HTTPRoutes HTTPRouteIndexers. Those of the Gateway API may be
	// of kinds that are not served, or not to us.
	ApplicationRoutes *informer.Informer[*v1alpha1.ApplicationRoute]
	Services          *informer.Informer[*corev1.Service]
	HTTPRoutes        *informer.Informer[*gatewayv1.HTTPRoute]
	ListenerSets      *informer.Informer[*gatewayv1.ListenerSet]
	Gateways          *informer.Informer[*gatewayv1.Gateway]
	// Secrets, of metadata alone, is nil where no Secret may be read.
	Secrets *informer.Informer[*metav1.PartialObjectMetadata]

	// Writes is told of every write, and compares with the copies of
	// ApplicationRoutes, HTTPRoutes and ListenerSets. The gate before Reconcile keeps
	// a key back while its Pending says so. Required.
	Writes *informer.Writes

	// DefaultGateway is for routes that name none. Zero: there is none.
	DefaultGateway cache.ObjectName

	// Recorder takes Events; it must not block. Nil: none are recorded.
	Recorder record.EventRecorder
	// Converged is called with how long a change of spec took to become Ready. Nil: it
	// is not.
	Converged func(time.Duration)
	// Clock times conditions and convergence. Nil: the real one.
	Clock clock.PassiveClock
}

// Controller reconciles ApplicationRoutes. It is a controller.Reconciler.
type Controller struct {
	cfg               Config
	routes            networkinglisters.ApplicationRouteLister
	services          corelisters.ServiceLister
	gatewayLister     gatewaylisters.GatewayLister
	listenerSetLister gatewaylisters.ListenerSetLister
	secretTypes       *secretTypes

	applier      *child.Applier
	httpRoutes   child.Kind[*gatewayv1.HTTPRoute, *gatewayv1ac.HTTPRouteApplyConfiguration]
	listenerSets child.Kind[*gatewayv1.ListenerSet, *gatewayv1ac.ListenerSetApplyConfiguration]

	// Of kinds that may be missing. secretsKind is nil where Config.Secrets is.
	httpRoutesKind, listenerSetsKind, gatewaysKind, secretsKind *availability

	// quarantined is ApplicationRoutes.Quarantined.
	quarantined func(cache.ObjectName) (informer.Quarantined, bool)

	convergence conditions.Convergence
}

// New checks cfg and returns a Controller. It starts nothing.
func New(cfg Config) (*Controller, error) {
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Kube", cfg.Kube == nil}, {"Networking", cfg.Networking == nil}, {"Gateway", cfg.Gateway == nil}, {"Metadata", cfg.Metadata == nil},
		{"ApplicationRoutes", cfg.ApplicationRoutes == nil}, {"Services", cfg.Services == nil}, {"HTTPRoutes", cfg.HTTPRoutes == nil},
		{"ListenerSets", cfg.ListenerSets == nil}, {"Gateways", cfg.Gateways == nil}, {"Writes", cfg.Writes == nil},
	} {
		if f.missing {
			return nil, fmt.Errorf("applicationroute controller: Config.%s is nil: it is required", f.name)
		}
	}
	if _, ok := cfg.ApplicationRoutes.Indexer().GetIndexers()[indexHostname]; !ok {
		return nil, fmt.Errorf("applicationroute controller: the informer of ApplicationRoutes has no index %q: make it with applicationroute.Indexers()", indexHostname)
	}
	if _, ok := cfg.HTTPRoutes.Indexer().GetIndexers()[indexOwnHostname]; !ok {
		return nil, fmt.Errorf("applicationroute controller: the informer of HTTPRoutes has no index %q: make it with applicationroute.HTTPRouteIndexers()", indexOwnHostname)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	c := &Controller{
		cfg:               cfg,
		routes:            networkinglisters.NewApplicationRouteLister(cfg.ApplicationRoutes.Indexer()),
		services:          corelisters.NewServiceLister(cfg.Services.Indexer()),
		gatewayLister:     gatewaylisters.NewGatewayLister(cfg.Gateways.Indexer()),
		listenerSetLister: gatewaylisters.NewListenerSetLister(cfg.ListenerSets.Indexer()),
		secretTypes:       newSecretTypes(cfg.Kube.CoreV1().RESTClient()),
		httpRoutes:        child.NewKind(kindHTTPRoute, cfg.HTTPRoutes, cfg.Gateway.GatewayV1().HTTPRoutes),
		listenerSets:      child.NewKind(kindListenerSet, cfg.ListenerSets, cfg.Gateway.GatewayV1().ListenerSets),
		httpRoutesKind:    &availability{kind: kindHTTPRoute, source: cfg.HTTPRoutes},
		listenerSetsKind:  &availability{kind: kindListenerSet, source: cfg.ListenerSets},
		gatewaysKind:      &availability{kind: kindGateway, source: cfg.Gateways},
		quarantined:       cfg.ApplicationRoutes.Quarantined,
	}
	c.listenerSets.Lists = listKeys
	if cfg.Secrets != nil {
		c.secretsKind = &availability{kind: "Secret", source: cfg.Secrets}
	}
	c.applier = &child.Applier{FieldManager: fieldManager, Annotation: annotationApplied, Owner: groupKind, Wrote: cfg.Writes.WroteObject, Deleted: cfg.Writes.DeletedObject,
		Metadata: func(ctx context.Context, resource schema.GroupVersionResource, key cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
			return cfg.Metadata.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		}}
	c.httpRoutes.Undecodable = func(key cache.ObjectName) metav1.Object { return metadataOf(cfg.HTTPRoutes.Quarantined(key)) }
	c.listenerSets.Undecodable = func(key cache.ObjectName) metav1.Object { return metadataOf(cfg.ListenerSets.Quarantined(key)) }
	return c, nil
}

// kinds are those that may be missing.
func (c *Controller) kinds() []*availability {
	kinds := []*availability{c.httpRoutesKind, c.listenerSetsKind, c.gatewaysKind}
	if c.secretsKind != nil {
		kinds = append(kinds, c.secretsKind)
	}
	return kinds
}

// Reconcile brings the children and the status of one ApplicationRoute in line with its
// spec.
func (c *Controller) Reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	route, live, err := c.read(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	if route == nil {
		c.cfg.Writes.Forget(key)
		return controller.Result{}, nil
	}
	if route.DeletionTimestamp != nil {
		return controller.Result{}, nil // what is left is the garbage collector's
	}
	if kind, after := c.settling(route); after > 0 {
		return controller.Result{After: after, Reason: fmt.Sprintf("the local copy of %ss is being filled", kind)}, nil
	}
	seen := c.observe(ctx, route)
	if seen.unavailable == nil && !seen.noGateway {
		seen.failed(c.reconcileChildren(ctx, route, live, &seen))
	}
	return c.report(ctx, route, seen)
}

// read returns the ApplicationRoute, nil if there is none. While a write of ours is
// overdue in the cache nothing of this key is read from there: live is true.
func (c *Controller) read(ctx context.Context, key cache.ObjectName) (route *v1alpha1.ApplicationRoute, live bool, err error) {
	overdue := c.cfg.Writes.Overdue(key)
	if len(overdue) > 0 {
		live = true
		klog.FromContext(ctx).Info("The cache lacks a write of ours for too long, reading from the API server",
			"resource", overdue[0].Resource.GroupResource().String(), "child", overdue[0].Child.String(),
			"resourceVersion", overdue[0].ResourceVersion, "since", overdue[0].Since)
		route, err = c.cfg.Networking.NetworkingV1alpha1().ApplicationRoutes(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	} else {
		route, err = c.routes.ApplicationRoutes(key.Namespace).Get(key.Name)
	}
	if apierrors.IsNotFound(err) {
		return nil, live, nil
	}
	if err != nil {
		return nil, live, fmt.Errorf("read ApplicationRoute: %w", err)
	}
	return route, live, nil
}

// settling returns a kind that route needs and whose copy is being filled, and how long
// to wait for it.
func (c *Controller) settling(route *v1alpha1.ApplicationRoute) (kind string, after time.Duration) {
	now := c.cfg.Clock.Now()
	wait := func(a *availability, namespace string) {
		if left := a.settling(namespace, now); left > after {
			kind, after = a.kind, left
		}
	}
	wait(c.httpRoutesKind, route.Namespace)
	wait(c.listenerSetsKind, route.Namespace) // which say where frozen routes are attached, too
	if route.Spec.TLSSecret != "" && c.secretsKind != nil {
		wait(c.secretsKind, route.Namespace)
	}
	if gateway, ok := gatewayOf(route, c.cfg.DefaultGateway); ok && c.cfg.Gateways.Store(gateway.Namespace) != nil {
		wait(c.gatewaysKind, gateway.Namespace)
	}
	return kind, after
}

// observe looks at all that is not ours: it writes nothing.
func (c *Controller) observe(ctx context.Context, route *v1alpha1.ApplicationRoute) observed {
	var seen observed
	var err error
	seen.missing, err = c.missingServices(route)
	seen.failed(err)
	secret, unchecked, err := c.missingSecret(ctx, route)
	seen.failed(err)
	if secret != nil {
		seen.missing = append(seen.missing, *secret)
	}
	seen.secretUnchecked = unchecked

	gateway, ok := gatewayOf(route, c.cfg.DefaultGateway)
	if !ok {
		seen.noGateway = true
		return seen
	}
	seen.gateway = gateway
	seen.gatewayState, err = c.readGateway(gateway)
	seen.failed(err)
	seen.hostnames, seen.lost = c.split(route, gateway)
	seen.unavailable = c.unavailable(route)
	return seen
}

// unavailable returns the kind that has to be listed before a child of route can be
// written. ListenerSets matter to those alone that have one.
func (c *Controller) unavailable(route *v1alpha1.ApplicationRoute) *conditions.Problem {
	if problem := c.httpRoutesKind.problem(route.Namespace); problem != nil {
		return problem
	}
	if route.Spec.TLSSecret == "" {
		return nil
	}
	return c.listenerSetsKind.problem(route.Namespace)
}

// undecodableChild is about a child of which only the metadata can be read.
func (c *Controller) undecodableChild(route *v1alpha1.ApplicationRoute) (*conditions.Problem, error) {
	if record, bad := c.cfg.HTTPRoutes.Quarantined(nameOf(route)); bad {
		return c.undecodable(route, kindHTTPRoute, record)
	}
	if record, bad := c.cfg.ListenerSets.Quarantined(nameOf(route)); bad && route.Spec.TLSSecret != "" {
		return c.undecodable(route, kindListenerSet, record)
	}
	return nil, nil
}

// undecodable says what is to be said of an object under a child's name of which only
// the metadata can be read.
func (c *Controller) undecodable(route *v1alpha1.ApplicationRoute, kind string, record informer.Quarantined) (*conditions.Problem, error) {
	if err := c.applier.Claim(kind, route, metadataOf(record, true)); err != nil {
		return nil, err
	}
	return &conditions.Problem{Reason: reasonChildUndecodable, Lasting: true,
		Message: fmt.Sprintf("%s %q cannot be decoded, and is not written over: %s", kind, route.Name, record.Reason())}, nil
}

// metadataOf is what is known of an object that cannot be decoded, nil if it can be.
func metadataOf(record informer.Quarantined, bad bool) metav1.Object {
	if !bad {
		return nil
	}
	return &metav1.ObjectMeta{Namespace: record.Key.Namespace, Name: record.Key.Name, UID: record.UID,
		DeletionTimestamp: record.DeletionTimestamp, OwnerReferences: record.OwnerReferences}
}

// reconcileChildren writes in an order in which nothing refers to what is not there:
// the ListenerSet before the HTTPRoute that hangs on it, and the HTTPRoute off it again
// before it is deleted.
func (c *Controller) reconcileChildren(ctx context.Context, route *v1alpha1.ApplicationRoute, live bool, seen *observed) error {
	if len(seen.hostnames) == 0 {
		return c.withdraw(ctx, route, live, seen.lost)
	}
	var err error
	if seen.unavailable, err = c.undecodableChild(route); seen.unavailable != nil || err != nil {
		return err
	}
	httpRoute, err := child.Find(ctx, c.applier, c.httpRoutes, route, live)
	if err != nil {
		return err
	}
	seen.httpRoute = httpRoute
	if err := c.confirm(ctx, givenUp(httpRoute, seen.lost)); err != nil {
		return err
	}
	if route.Spec.TLSSecret != "" {
		listenerSet, err := child.Find(ctx, c.applier, c.listenerSets, route, live)
		if err != nil {
			return err
		}
		seen.listenerSet, err = child.Ensure(ctx, c.applier, c.listenerSets, route, listenerSet,
			desiredListenerSet(route, seen.gateway, seen.hostnames), nil)
		if err != nil {
			return err
		}
	}
	seen.httpRoute, err = child.Ensure(ctx, c.applier, c.httpRoutes, route, httpRoute, desiredHTTPRoute(route, seen.gateway, seen.hostnames), nil)
	if err != nil {
		return err
	}
	if route.Spec.TLSSecret == "" {
		return child.Withdraw(ctx, c.applier, c.listenerSets, route)
	}
	return nil
}

// withdraw deletes both children of a route that holds no hostname: an HTTPRoute
// without one would match all of them.
func (c *Controller) withdraw(ctx context.Context, route *v1alpha1.ApplicationRoute, live bool, lost []claim) error {
	// One that cannot be decoded may have any of them.
	if _, bad := c.cfg.HTTPRoutes.Quarantined(nameOf(route)); !bad {
		httpRoute, err := c.httpRoutes.Read(ctx, nameOf(route), live)
		if err != nil {
			return err
		}
		if httpRoute != nil && !metav1.IsControlledBy(httpRoute, route) {
			httpRoute = nil
		}
		lost = givenUp(httpRoute, lost)
	}
	if err := c.confirm(ctx, lost); err != nil {
		return err
	}
	if err := child.Withdraw(ctx, c.applier, c.httpRoutes, route); err != nil {
		return err
	}
	return child.Withdraw(ctx, c.applier, c.listenerSets, route)
}

func nameOf(object metav1.Object) cache.ObjectName { return cache.MetaObjectToName(object) }
