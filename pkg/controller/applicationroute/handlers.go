package applicationroute

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// Indexes of ApplicationRoutes: by "namespace/name" of what they refer to, and by
// hostname. Of HTTPRoutes: by hostname, those that are children of ours.
const (
	indexService     = "steadwatch.applicationroute.service"
	indexSecret      = "steadwatch.applicationroute.secret"
	indexGateway     = "steadwatch.applicationroute.gateway"
	indexHostname    = "steadwatch.applicationroute.hostname"
	indexOwnHostname = "steadwatch.applicationroute.own-hostname"
)

// Indexers are what the informer of ApplicationRoutes needs. defaultGateway is
// Config.DefaultGateway.
func Indexers(defaultGateway cache.ObjectName) cache.TypedIndexers[*v1alpha1.ApplicationRoute] {
	return cache.TypedIndexers[*v1alpha1.ApplicationRoute]{
		indexService: func(route *v1alpha1.ApplicationRoute) ([]string, error) {
			var services []string
			for _, b := range route.Spec.Backends {
				services = append(services, cache.NewObjectName(route.Namespace, b.Service).String())
			}
			slices.Sort(services) // one Service may stand there with several ports
			return slices.Compact(services), nil
		},
		indexSecret: func(route *v1alpha1.ApplicationRoute) ([]string, error) {
			if route.Spec.TLSSecret == "" {
				return nil, nil
			}
			return []string{cache.NewObjectName(route.Namespace, route.Spec.TLSSecret).String()}, nil
		},
		indexGateway: func(route *v1alpha1.ApplicationRoute) ([]string, error) {
			gateway, ok := gatewayOf(route, defaultGateway)
			if !ok {
				return nil, nil
			}
			return []string{gateway.String()}, nil
		},
		indexHostname: func(route *v1alpha1.ApplicationRoute) ([]string, error) { return route.Spec.Hostnames, nil },
	}
}

// HTTPRouteIndexers are what the informer of HTTPRoutes needs.
func HTTPRouteIndexers() cache.TypedIndexers[*gatewayv1.HTTPRoute] {
	return cache.TypedIndexers[*gatewayv1.HTTPRoute]{
		indexOwnHostname: func(httpRoute *gatewayv1.HTTPRoute) ([]string, error) {
			if ownRoute(httpRoute) == nil {
				return nil, nil
			}
			var hostnames []string
			for _, h := range httpRoute.Spec.Hostnames {
				hostnames = append(hostnames, string(h))
			}
			return hostnames, nil
		},
	}
}

// Keys returns the keys of all ApplicationRoutes, those included that cannot be decoded.
func (c *Controller) Keys() []cache.ObjectName {
	return c.cfg.ApplicationRoutes.Keys()
}

type enqueue = func(controller.Lane, ...cache.ObjectName)

// Register adds handlers that enqueue to q to the informers, before they run. Once
// everything returned is done the controller may run: those are the copies of
// ApplicationRoutes and Services. The others may never be filled; each route waits for
// those that it needs.
func (c *Controller) Register(q controller.Queue) ([]cache.DoneChecker, error) {
	routes, err := controller.AddHandlers(q, c.cfg.ApplicationRoutes, "ApplicationRoutes", c.routeHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	services, err := controller.AddHandlers(q, c.cfg.Services, "ApplicationRoutes by Service", c.serviceHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	if _, err := controller.AddHandlers(q, c.cfg.HTTPRoutes, "ApplicationRoutes by HTTPRoute", c.httpRouteHandlers(q.Enqueue)); err != nil {
		return nil, err
	}
	if _, err := controller.AddHandlers(q, c.cfg.ListenerSets, "ApplicationRoutes by ListenerSet", c.listenerSetHandlers(q.Enqueue)); err != nil {
		return nil, err
	}
	if _, err := controller.AddHandlers(q, c.cfg.Gateways, "ApplicationRoutes by Gateway", c.gatewayHandlers(q.Enqueue)); err != nil {
		return nil, err
	}
	if c.cfg.Secrets != nil {
		if _, err := controller.AddHandlers(q, c.cfg.Secrets, "ApplicationRoutes by Secret", c.secretHandlers(q.Enqueue)); err != nil {
			return nil, err
		}
	}
	c.registerQuarantines(q)
	for _, kind := range c.kinds() {
		kind.source.OnState(func() {
			q.Protect("ApplicationRoutes by state of "+kind.kind, cache.ObjectName{}, func() {
				if kind.refresh() {
					q.Enqueue(controller.Background, c.Keys()...)
				}
			})
		})
	}
	return []cache.DoneChecker{routes, services}, nil
}

// registerQuarantines wakes whom an object concerns that cannot be decoded, or can be
// again: no handler hears of that.
func (c *Controller) registerQuarantines(q controller.Queue) {
	on := func(origin string, to interface {
		OnQuarantine(func(informer.Quarantined, bool))
	}, keys func(informer.Quarantined) []cache.ObjectName) {
		to.OnQuarantine(func(record informer.Quarantined, _ bool) {
			q.Protect(origin, record.Key, func() { q.Enqueue(controller.Normal, keys(record)...) })
		})
	}
	ofChild := func(record informer.Quarantined) []cache.ObjectName {
		return c.owners().Of(&metav1.ObjectMeta{Namespace: record.Key.Namespace, Name: record.Key.Name, OwnerReferences: record.OwnerReferences})
	}
	on("ApplicationRoutes by undecodable HTTPRoute", c.cfg.HTTPRoutes, ofChild)
	on("ApplicationRoutes by undecodable ListenerSet", c.cfg.ListenerSets, func(record informer.Quarantined) []cache.ObjectName {
		return append(ofChild(record), c.rivalsAt(record.Key)...) // where it hangs is not known, or is again
	})
	on("ApplicationRoutes by undecodable Gateway", c.cfg.Gateways, func(record informer.Quarantined) []cache.ObjectName {
		return c.cfg.ApplicationRoutes.Referring(indexGateway)(record.Key)
	})
	// What a frozen route holds it holds ahead of others.
	on("ApplicationRoutes by undecodable rival", c.cfg.ApplicationRoutes, func(record informer.Quarantined) []cache.ObjectName {
		return c.rivalsAt(record.Key)
	})
}

func (c *Controller) routeHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.ApplicationRoute] {
	h := controller.ObjectHandlers[*v1alpha1.ApplicationRoute](enqueue)
	return cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.ApplicationRoute]{
		AddFunc: func(route *v1alpha1.ApplicationRoute, initial bool) {
			h.AddFunc(route, initial)
			if initial {
				return // as is every rival
			}
			c.convergence.Changed(route, c.cfg.Clock.Now())
			enqueue(controller.Normal, c.rivals(nil, route)...)
		},
		UpdateFunc: func(old, route *v1alpha1.ApplicationRoute) {
			switch {
			case old.UID != route.UID || old.Generation != route.Generation:
				c.convergence.Changed(route, c.cfg.Clock.Now())
			case conditions.ReadyAt(route, route.Status.ObservedGeneration, route.Status.Conditions):
				c.convergence.Forget(nameOf(route)) // another process led, and got it there
			}
			h.UpdateFunc(old, route)
			enqueue(controller.Normal, c.rivals(old, route)...)
		},
		DeleteFunc: func(route cache.DeletedObject[*v1alpha1.ApplicationRoute]) {
			c.convergence.Forget(route.GetObjectName())
			h.DeleteFunc(route)
			if route.OptionalObj != nil {
				enqueue(controller.Normal, c.rivals(route.OptionalObj, nil)...)
			}
		},
	}
}

// owners says whom an event of an HTTPRoute or a ListenerSet concerns.
func (c *Controller) owners() child.Owners {
	return child.Owners{Kind: groupKind, Exists: c.cfg.ApplicationRoutes.Has}
}

// httpRouteHandlers also wake the rivals of a route that stays as it is, since what its
// HTTPRoute has is what it holds; and those who claim what any HTTPRoute has let go:
// they may have waited for it.
func (c *Controller) httpRouteHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*gatewayv1.HTTPRoute] {
	h := child.Handlers[*gatewayv1.HTTPRoute](c.owners(), enqueue)
	return cache.TypedResourceEventHandlerDetailedFuncs[*gatewayv1.HTTPRoute]{
		AddFunc: func(httpRoute *gatewayv1.HTTPRoute, initial bool) {
			h.AddFunc(httpRoute, initial)
			if c.isStaying(httpRoute) {
				enqueue(controller.AddedLane(initial), c.rivalsOf(httpRoute)...)
			}
		},
		UpdateFunc: func(old, httpRoute *gatewayv1.HTTPRoute) {
			h.UpdateFunc(old, httpRoute)
			switch {
			case sameClaims(old, httpRoute):
			case c.isStaying(old) || c.isStaying(httpRoute):
				enqueue(controller.Normal, c.rivalsOf(old, httpRoute)...)
			case letsGo(old, httpRoute):
				enqueue(controller.Normal, c.rivalsOf(old)...)
			}
		},
		DeleteFunc: func(httpRoute cache.DeletedObject[*gatewayv1.HTTPRoute]) {
			h.DeleteFunc(httpRoute)
			if httpRoute.OptionalObj != nil && ownRoute(httpRoute.OptionalObj) != nil {
				enqueue(controller.Normal, c.rivalsOf(httpRoute.OptionalObj)...)
			}
		},
	}
}

// sameClaims says whether nothing has changed that another route may go by: a change of
// the owner shows in no generation.
func sameClaims(old, httpRoute *gatewayv1.HTTPRoute) bool {
	return old.UID == httpRoute.UID && old.Generation == httpRoute.Generation && sameOwner(old, httpRoute)
}

func sameOwner(old, httpRoute *gatewayv1.HTTPRoute) bool {
	a, b := ownRoute(old), ownRoute(httpRoute)
	return a == nil && b == nil || a != nil && b != nil && a.UID == b.UID
}

// letsGo says whether old has a hostname, or a place where it has them, that httpRoute
// has not.
func letsGo(old, httpRoute *gatewayv1.HTTPRoute) bool {
	return ownRoute(old) != nil && (old.UID != httpRoute.UID || !sameOwner(old, httpRoute) ||
		!equality.Semantic.DeepEqual(old.Spec.ParentRefs, httpRoute.Spec.ParentRefs) ||
		slices.ContainsFunc(old.Spec.Hostnames, func(h gatewayv1.Hostname) bool { return !slices.Contains(httpRoute.Spec.Hostnames, h) }))
}

// listenerSetHandlers also wake those who claim what the HTTPRoute that hangs on it has,
// when it comes, goes or moves: that is where the HTTPRoute has its hostnames.
func (c *Controller) listenerSetHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*gatewayv1.ListenerSet] {
	h := child.Handlers[*gatewayv1.ListenerSet](c.owners(), enqueue)
	return cache.TypedResourceEventHandlerDetailedFuncs[*gatewayv1.ListenerSet]{
		AddFunc: func(set *gatewayv1.ListenerSet, initial bool) {
			h.AddFunc(set, initial)
			enqueue(controller.AddedLane(initial), c.rivalsAt(nameOf(set))...)
		},
		UpdateFunc: func(old, set *gatewayv1.ListenerSet) {
			h.UpdateFunc(old, set)
			if gatewayOfSet(old) != gatewayOfSet(set) {
				enqueue(controller.Normal, c.rivalsAt(nameOf(set))...)
			}
		},
		DeleteFunc: func(set cache.DeletedObject[*gatewayv1.ListenerSet]) {
			h.DeleteFunc(set)
			enqueue(controller.Normal, c.rivalsAt(set.GetObjectName())...)
		},
	}
}

// serviceHandlers look at what a route depends on: whether the Service is there, and
// its ports. Its endpoints, addresses and labels are the gateway's business.
func (c *Controller) serviceHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Service] {
	return controller.ReferenceHandlers(enqueue, c.cfg.ApplicationRoutes.Referring(indexService), func(old, s *corev1.Service) bool {
		return old.UID != s.UID || !slices.EqualFunc(old.Spec.Ports, s.Spec.Ports, func(a, b corev1.ServicePort) bool { return a.Port == b.Port })
	})
}

// secretHandlers look at which Secret it is: its type, which is all that a status shows
// of it, cannot change. That of a certificate is written at each renewal.
func (c *Controller) secretHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*metav1.PartialObjectMetadata] {
	h := controller.ReferenceHandlers(enqueue, c.cfg.ApplicationRoutes.Referring(indexSecret), func(old, s *metav1.PartialObjectMetadata) bool { return old.UID != s.UID })
	told := h.DeleteFunc
	h.DeleteFunc = func(s cache.DeletedObject[*metav1.PartialObjectMetadata]) {
		c.secretTypes.forget(s.GetObjectName())
		told(s)
	}
	return h
}

// gatewayHandlers look at what a status shows of a Gateway. The rest of it changes
// with each of the routes that hang on it, all of which would be looked at again; which
// is also why they wait behind what changes by itself.
func (c *Controller) gatewayHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*gatewayv1.Gateway] {
	behind := func(_ controller.Lane, keys ...cache.ObjectName) { enqueue(controller.Background, keys...) }
	return controller.ReferenceHandlers(behind, c.cfg.ApplicationRoutes.Referring(indexGateway), gatewayChanged)
}

// gatewayChanged compares what readGateway and status.go use of a Gateway.
func gatewayChanged(old, g *gatewayv1.Gateway) bool {
	if old.UID != g.UID || (old.DeletionTimestamp == nil) != (g.DeletionTimestamp == nil) {
		return true
	}
	return slices.ContainsFunc([]gatewayv1.GatewayConditionType{gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed},
		func(conditionType gatewayv1.GatewayConditionType) bool {
			a := meta.FindStatusCondition(old.Status.Conditions, string(conditionType))
			b := meta.FindStatusCondition(g.Status.Conditions, string(conditionType))
			if a == nil || b == nil {
				return a != b
			}
			// The words that go with True are not shown; some gateways count in them.
			return a.Status != b.Status || a.Status != metav1.ConditionTrue && (a.Reason != b.Reason || a.Message != b.Message)
		})
}
