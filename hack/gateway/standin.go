package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

// Config is a StandIn's.
type Config struct {
	// Client is who it is to the API server. Required.
	Client *rest.Config
	// Name is the controllerName in status.parents. Empty: example.com/stand-in.
	Name gatewayv1.GatewayController
	// Namespaces limits what it sees to these. Empty: all. Of a Gateway elsewhere
	// nothing is known then, so that nothing is reported of what hangs on it.
	Namespaces []string
}

// Behavior is what a StandIn does other than well. The zero value is well.
type Behavior struct {
	// Refuse returns the reason and the message of Accepted=False for an object of
	// which the kind (Gateway, HTTPRoute, ListenerSet) and the metadata are given; an
	// empty reason accepts it. Nil accepts all.
	Refuse func(kind string, o metav1.Object) (reason, message string)
	// Unprogrammed is the same for Programmed=False of Gateways and ListenerSets.
	Unprogrammed func(kind string, o metav1.Object) (reason, message string)
	// Conditions are said in addition wherever conditions are, with the generation put
	// in: those of a later version, for example.
	Conditions []metav1.Condition
	// Lag is how long after a change it is reported.
	Lag time.Duration
	// Silent reports nothing at all.
	Silent bool
}

// StandIn stands in for a controller that implements the Gateway API.
type StandIn struct {
	name    gatewayv1.GatewayController
	clients versioned.Interface

	gateways     *informer.Informer[*gatewayv1.Gateway]
	routes       *informer.Informer[*gatewayv1.HTTPRoute]
	listenerSets *informer.Informer[*gatewayv1.ListenerSet]
	services     *informer.Informer[*corev1.Service]
	secrets      *informer.Informer[*corev1.Secret]

	queue workqueue.TypedRateLimitingInterface[item]

	mu       sync.Mutex
	behavior Behavior
}

type item struct {
	kind string
	key  cache.ObjectName
}

const (
	kindGateway     = "Gateway"
	kindHTTPRoute   = "HTTPRoute"
	kindListenerSet = "ListenerSet"
	workers         = 4
	// countAfter is how long after a change of a route the numbers of attached ones
	// follow.
	countAfter = 500 * time.Millisecond
)

// Indexes.
const (
	byParent  = "parent"  // kind/namespace/name that a route or a ListenerSet hangs on
	byService = "service" // namespace/name of a route's backends
	bySecret  = "secret"  // namespace/name of a ListenerSet's certificates
)

// New makes a StandIn that behaves well. It starts nothing.
func New(c Config) (*StandIn, error) {
	if c.Client == nil {
		return nil, fmt.Errorf("gateway: Config.Client is nil: set it")
	}
	if c.Name == "" {
		c.Name = "example.com/stand-in"
	}
	config := rest.CopyConfig(c.Client)
	config.QPS, config.UserAgent = -1, "stand-in-gateway"
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &StandIn{
		name: c.Name, clients: clients,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](20*time.Millisecond, 2*time.Second)),
	}
	tolerant := informer.Tolerant(clients.GatewayV1().RESTClient())
	if s.gateways, err = informer.New(informer.Config[*gatewayv1.Gateway]{
		Resource: schema.GroupVersion(gatewayv1.GroupVersion).WithResource(Gateways), ListerWatcher: tolerant, Namespaces: c.Namespaces,
	}); err != nil {
		return nil, err
	}
	if s.routes, err = informer.New(informer.Config[*gatewayv1.HTTPRoute]{
		Resource: schema.GroupVersion(gatewayv1.GroupVersion).WithResource(HTTPRoutes), ListerWatcher: tolerant, Namespaces: c.Namespaces,
		Indexers: cache.TypedIndexers[*gatewayv1.HTTPRoute]{
			byParent:  func(r *gatewayv1.HTTPRoute) ([]string, error) { return routeParents(r), nil },
			byService: func(r *gatewayv1.HTTPRoute) ([]string, error) { return routeServices(r), nil },
		},
	}); err != nil {
		return nil, err
	}
	if s.listenerSets, err = informer.New(informer.Config[*gatewayv1.ListenerSet]{
		Resource: schema.GroupVersion(gatewayv1.GroupVersion).WithResource(ListenerSets), ListerWatcher: tolerant, Namespaces: c.Namespaces,
		Indexers: cache.TypedIndexers[*gatewayv1.ListenerSet]{
			byParent: func(l *gatewayv1.ListenerSet) ([]string, error) {
				return []string{parentKey(kindGateway, gatewayOf(l))}, nil
			},
			bySecret: func(l *gatewayv1.ListenerSet) ([]string, error) { return certificates(l), nil },
		},
	}); err != nil {
		return nil, err
	}
	if s.services, err = informer.New(informer.Config[*corev1.Service]{
		Resource: corev1.SchemeGroupVersion.WithResource("services"), ListerWatcher: informer.ListWatch(kube, kube.CoreV1().Services),
		Namespaces: c.Namespaces,
	}); err != nil {
		return nil, err
	}
	if s.secrets, err = informer.New(informer.Config[*corev1.Secret]{
		Resource: corev1.SchemeGroupVersion.WithResource("secrets"), ListerWatcher: informer.ListWatch(kube, kube.CoreV1().Secrets),
		Namespaces: c.Namespaces,
	}); err != nil {
		return nil, err
	}
	return s, s.register()
}

// Behave changes how s behaves, and has it look at everything again.
func (s *StandIn) Behave(b Behavior) {
	s.mu.Lock()
	s.behavior = b
	s.mu.Unlock()
	for kind, indexer := range map[string]cache.Indexer{
		kindGateway: s.gateways.Indexer(), kindListenerSet: s.listenerSets.Indexer(), kindHTTPRoute: s.routes.Indexer(),
	} {
		for _, key := range indexer.ListKeys() {
			if name, err := cache.ParseObjectName(key); err == nil {
				s.changed(kind, name)
			}
		}
	}
}

func (s *StandIn) behaves() Behavior {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behavior
}

// register connects the informers to the queue. Its own writes change no generation, so
// that they do not lead to a pass.
func (s *StandIn) register() error {
	gateways := func(g *gatewayv1.Gateway) {
		s.changed(kindGateway, cache.MetaObjectToName(g))
		s.dependents(kindGateway, cache.MetaObjectToName(g))
	}
	if err := handle(s.gateways, gateways, sameGeneration); err != nil {
		return err
	}
	listenerSets := func(l *gatewayv1.ListenerSet) {
		s.changed(kindListenerSet, cache.MetaObjectToName(l))
		s.dependents(kindListenerSet, cache.MetaObjectToName(l))
		s.count([]string{parentKey(kindGateway, gatewayOf(l))})
	}
	if err := handle(s.listenerSets, listenerSets, sameGeneration); err != nil {
		return err
	}
	routes := func(r *gatewayv1.HTTPRoute) {
		s.changed(kindHTTPRoute, cache.MetaObjectToName(r))
		s.count(routeParents(r))
	}
	if err := handle(s.routes, routes, sameGeneration); err != nil {
		return err
	}
	services := func(o *corev1.Service) { s.found(s.routes.Indexer(), kindHTTPRoute, byService, key(o)) }
	if err := handle(s.services, services, sameVersion); err != nil {
		return err
	}
	secrets := func(o *corev1.Secret) {
		sets, _ := s.listenerSets.Indexer().ByIndex(bySecret, key(o))
		for _, l := range sets {
			listenerSets(l.(*gatewayv1.ListenerSet))
		}
	}
	return handle(s.secrets, secrets, sameVersion)
}

func sameGeneration[T metav1.Object](a, b T) bool {
	return a.GetGeneration() == b.GetGeneration() && a.GetUID() == b.GetUID()
}

func sameVersion[T metav1.Object](a, b T) bool {
	return a.GetResourceVersion() == b.GetResourceVersion()
}

// handle calls f for what is added and deleted, and for both versions of what has
// changed.
func handle[T cache.Object](i *informer.Informer[T], f func(T), same func(a, b T) bool) error {
	_, err := i.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc: func(o T, _ bool) { f(o) },
		UpdateFunc: func(before, after T) {
			if !same(before, after) {
				f(before)
				f(after)
			}
		},
		DeleteFunc: func(d cache.DeletedObject[T]) {
			var none T
			if d.OptionalObj != none {
				f(d.OptionalObj)
			}
		},
	})
	return err
}

func (s *StandIn) changed(kind string, key cache.ObjectName) {
	s.queue.AddAfter(item{kind, key}, s.behaves().Lag)
}

// dependents have changed too if what they hang on has.
func (s *StandIn) dependents(kind string, name cache.ObjectName) {
	s.found(s.listenerSets.Indexer(), kindListenerSet, byParent, parentKey(kind, name))
	s.found(s.routes.Indexer(), kindHTTPRoute, byParent, parentKey(kind, name))
	if kind != kindGateway {
		return
	}
	sets, _ := s.listenerSets.Indexer().ByIndex(byParent, parentKey(kind, name))
	for _, l := range sets {
		s.found(s.routes.Indexer(), kindHTTPRoute, byParent, parentKey(kindListenerSet, cache.MetaObjectToName(l.(*gatewayv1.ListenerSet))))
	}
}

func (s *StandIn) found(indexer cache.Indexer, kind, index, value string) {
	keys, _ := indexer.IndexKeys(index, value)
	for _, key := range keys {
		if name, err := cache.ParseObjectName(key); err == nil {
			s.changed(kind, name)
		}
	}
}

// count has the numbers of attached routes brought up to date.
func (s *StandIn) count(parents []string) {
	for _, p := range parents {
		kind, name := splitParent(p)
		s.queue.AddAfter(item{kind, name}, max(countAfter, s.behaves().Lag))
	}
}

// Run works until ctx ends, then returns nil when everything it started has ended. A
// StandIn runs once.
func (s *StandIn) Run(ctx context.Context) error {
	// What is missing is what a test is about, not news.
	ctx = klog.NewContext(ctx, klog.Logger{})
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{s.gateways.Run, s.routes.Run, s.listenerSets.Run, s.services.Run, s.secrets.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	// Without them everything would be reported as missing first. The Gateway API's own
	// kinds may not be there.
	cache.WaitFor(ctx, "", s.services.HasSyncedChecker(), s.secrets.HasSyncedChecker())
	for range workers {
		running.Go(func() {
			for {
				i, shutdown := s.queue.Get()
				if shutdown {
					return
				}
				if err := s.report(ctx, i); err != nil && !apierrors.IsNotFound(err) {
					s.queue.AddRateLimited(i)
				} else {
					s.queue.Forget(i)
				}
				s.queue.Done(i)
			}
		})
	}
	<-ctx.Done()
	s.queue.ShutDown()
	running.Wait()
	return nil
}

// get returns a copy of an object in an informer's store, the zero T for none.
func get[T interface {
	cache.Object
	DeepCopy() T
}](i *informer.Informer[T], key cache.ObjectName) (o T) {
	if found, exists, err := i.Indexer().GetByKey(key.String()); err == nil && exists {
		return found.(T).DeepCopy()
	}
	return o
}

func key(o metav1.Object) string { return cache.MetaObjectToName(o).String() }

// unique sorts.
func unique(values map[string]bool) []string { return slices.Sorted(maps.Keys(values)) }
