package applicationroute

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	networkingfake "github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/fake"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// newTestController has caches that hold objects, filled by hand and never run, and
// kinds that are all available.
func newTestController(t *testing.T, objects ...runtime.Object) *Controller {
	t.Helper()
	cfg := Config{
		Kube: fake.NewClientset(), Networking: networkingfake.NewSimpleClientset(), Gateway: gatewayfake.NewSimpleClientset(),
		Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), Writes: informer.NewWrites(0), DefaultGateway: testGateway,
		ApplicationRoutes: copyOf(t, routesResource, Indexers(testGateway)),
		Services:          copyOf[*corev1.Service](t, corev1.SchemeGroupVersion.WithResource("services"), nil),
		HTTPRoutes:        copyOf(t, httpRoutesResource, HTTPRouteIndexers()),
		ListenerSets:      copyOf[*gatewayv1.ListenerSet](t, listenerSetsResource, nil),
		Gateways:          copyOf[*gatewayv1.Gateway](t, schema.GroupVersion(gatewayv1.GroupVersion).WithResource("gateways"), nil),
		Secrets:           copyOf[*metav1.PartialObjectMetadata](t, corev1.SchemeGroupVersion.WithResource("secrets"), nil),
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range c.kinds() {
		kind.source = &fakeSource{resource: kind.source.Resource(), synced: true, snapshot: informer.Snapshot{State: informer.StateHearing}}
	}
	for _, object := range objects {
		var err error
		switch object := object.(type) {
		case *v1alpha1.ApplicationRoute:
			err = cfg.ApplicationRoutes.Indexer().Add(object)
		case *corev1.Service:
			err = cfg.Services.Indexer().Add(object)
		case *gatewayv1.HTTPRoute:
			err = cfg.HTTPRoutes.Indexer().Add(object)
		case *gatewayv1.ListenerSet:
			err = cfg.ListenerSets.Indexer().Add(object)
		case *gatewayv1.Gateway:
			err = cfg.Gateways.Indexer().Add(object)
		case *metav1.PartialObjectMetadata:
			err = cfg.Secrets.Indexer().Add(object)
		default:
			err = fmt.Errorf("no cache for a %T", object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// copyOf never runs.
func copyOf[T cache.Object](t *testing.T, resource schema.GroupVersionResource, indexers cache.TypedIndexers[T]) *informer.Informer[T] {
	t.Helper()
	i, err := informer.New(informer.Config[T]{Resource: resource, Indexers: indexers,
		ListerWatcher: func(string) cache.ListerWatcherWithContext {
			return cache.ToListerWatcherWithContext(&cache.ListWatch{})
		}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// fakeSource says what it is told to.
type fakeSource struct {
	resource schema.GroupVersionResource
	synced   bool
	snapshot informer.Snapshot
	asked    int
}

func (s *fakeSource) Resource() schema.GroupVersionResource { return s.resource }
func (s *fakeSource) HasSynced() bool                       { return s.synced }
func (s *fakeSource) OnState(func())                        {}
func (s *fakeSource) Snapshot() informer.Snapshot {
	s.asked++
	return s.snapshot
}

// claiming is a route of that age, which is its number of seconds.
func claiming(name string, created int64, hostnames ...string) *v1alpha1.ApplicationRoute {
	return &v1alpha1.ApplicationRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid of " + name), Generation: 1, ResourceVersion: "1",
			CreationTimestamp: metav1.NewTime(time.Unix(created, 0))},
		Spec: v1alpha1.ApplicationRouteSpec{Hostnames: hostnames, Backends: []v1alpha1.Backend{{Service: "web", Port: 80}}},
	}
}

// at is a change that names another Gateway.
func at(route *v1alpha1.ApplicationRoute, namespace, name string) *v1alpha1.ApplicationRoute {
	route.Spec.Gateway = &v1alpha1.GatewayReference{Namespace: namespace, Name: name}
	return route
}

// rendered is the HTTPRoute of a route as it is.
func rendered(t *testing.T, c *Controller, route *v1alpha1.ApplicationRoute) *gatewayv1.HTTPRoute {
	t.Helper()
	gateway, _ := gatewayOf(route, c.cfg.DefaultGateway)
	httpRoute := decodeAs[gatewayv1.HTTPRoute](t, desiredHTTPRoute(route, gateway, route.Spec.Hostnames))
	httpRoute.CreationTimestamp = route.CreationTimestamp
	if err := c.cfg.HTTPRoutes.Indexer().Add(httpRoute); err != nil {
		t.Fatal(err)
	}
	return httpRoute
}

// freeze makes a route one that cannot be decoded; known, it was good before.
func freeze(t *testing.T, c *Controller, route *v1alpha1.ApplicationRoute, known bool) {
	t.Helper()
	before := c.quarantined
	c.quarantined = func(key cache.ObjectName) (informer.Quarantined, bool) {
		if key == nameOf(route) {
			return informer.Quarantined{Key: key, UID: route.UID, Generation: route.Generation}, true
		}
		return before(key)
	}
	if !known {
		if err := c.cfg.ApplicationRoutes.Indexer().Delete(route); err != nil {
			t.Fatal(err)
		}
	}
}

// enqueued are lanes and keys.
type enqueued []string

func (e *enqueued) enqueue(lane controller.Lane, keys ...cache.ObjectName) {
	for _, key := range keys {
		*e = append(*e, fmt.Sprintf("%d %s", lane, key))
	}
}
