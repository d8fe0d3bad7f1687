package applicationroute

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

// A hostname of a Gateway is held by one ApplicationRoute at a time: of those that
// claim it the one that was created first, and of two of the same second the one whose
// namespace and name come first. Every process comes to the same result, and a route
// that is made later takes nothing from anybody.
//
// A route that cannot be decoded is frozen. What its HTTPRoute has stays there, so it
// holds that ahead of all others, until it can be decoded again.
//
// All of it goes by two indexes, so that a pass looks at those that claim the same
// hostname and at nobody else.

// split returns which hostnames route holds at gateway, and who holds the others, in
// the order of the spec.
func (c *Controller) split(route *v1alpha1.ApplicationRoute, gateway cache.ObjectName) (held []string, lost []claim) {
	for _, hostname := range route.Spec.Hostnames {
		if by := c.holder(route, gateway, hostname); by != nameOf(route) {
			lost = append(lost, claim{hostname, by})
		} else {
			held = append(held, hostname)
		}
	}
	return held, lost
}

// holder returns who holds hostname, which route claims. route itself is not looked up.
func (c *Controller) holder(route *v1alpha1.ApplicationRoute, gateway cache.ObjectName, hostname string) cache.ObjectName {
	self := nameOf(route)
	if by, ok := c.frozenHolder(self, gateway, hostname); ok {
		return by
	}
	first := route
	for _, other := range c.claimants(gateway, hostname) {
		if nameOf(other) != self && older(other, first) {
			first = other
		}
	}
	return nameOf(first)
}

// claimants returns the cached routes that claim hostname at gateway.
func (c *Controller) claimants(gateway cache.ObjectName, hostname string) []*v1alpha1.ApplicationRoute {
	found, err := c.cfg.ApplicationRoutes.Indexer().ByIndex(indexHostname, hostname)
	if err != nil {
		return nil // only an index that is missing, which New has checked
	}
	routes := make([]*v1alpha1.ApplicationRoute, 0, len(found))
	for _, object := range found {
		route, ok := object.(*v1alpha1.ApplicationRoute)
		if !ok {
			continue
		}
		if at, ok := gatewayOf(route, c.cfg.DefaultGateway); ok && at == gateway {
			routes = append(routes, route)
		}
	}
	return routes
}

// older orders claimants.
func older(a, b metav1.Object) bool {
	created := a.GetCreationTimestamp()
	if order := created.Compare(b.GetCreationTimestamp().Time); order != 0 {
		return order < 0
	}
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName())) < 0
}

// frozenHolder returns the route that cannot be decoded and whose HTTPRoute has
// hostname at gateway, the one with the oldest HTTPRoute if there are several.
func (c *Controller) frozenHolder(self, gateway cache.ObjectName, hostname string) (cache.ObjectName, bool) {
	found, err := c.cfg.HTTPRoutes.Indexer().ByIndex(indexOwnHostname, hostname)
	if err != nil {
		return cache.ObjectName{}, false // as above
	}
	var first *gatewayv1.HTTPRoute
	for _, object := range found {
		httpRoute, ok := object.(*gatewayv1.HTTPRoute)
		if !ok || nameOf(httpRoute) == self || !c.ofFrozen(httpRoute) || !c.attached(httpRoute, gateway) {
			continue
		}
		if first == nil || older(httpRoute, first) {
			first = httpRoute
		}
	}
	if first == nil {
		return cache.ObjectName{}, false
	}
	return nameOf(first), true
}

// ofFrozen says whether the route that owns httpRoute cannot be decoded.
func (c *Controller) ofFrozen(httpRoute *gatewayv1.HTTPRoute) bool {
	owner := ownRoute(httpRoute)
	if owner == nil {
		return false
	}
	record, bad := c.quarantined(nameOf(httpRoute))
	return bad && record.UID == owner.UID
}

// ownRoute returns the reference to the ApplicationRoute that has httpRoute as its
// child, nil if none has.
func ownRoute(httpRoute *gatewayv1.HTTPRoute) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(httpRoute)
	if owner == nil || owner.Name != httpRoute.Name || !child.IsOf(owner, groupKind) {
		return nil
	}
	return owner
}

// attached says whether an HTTPRoute of ours hangs on gateway, through its ListenerSet
// or directly. What cannot be told counts: to share a hostname is worse than to wait.
func (c *Controller) attached(httpRoute *gatewayv1.HTTPRoute, gateway cache.ObjectName) bool {
	return slices.ContainsFunc(httpRoute.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool {
		parent := cache.NewObjectName(httpRoute.Namespace, string(ref.Name))
		if ref.Namespace != nil {
			parent.Namespace = string(*ref.Namespace)
		}
		if ref.Kind == nil || *ref.Kind == kindGateway {
			return parent == gateway
		}
		listenerSet, err := c.listenerSetLister.ListenerSets(parent.Namespace).Get(parent.Name)
		if err != nil {
			return true
		}
		up := listenerSet.Spec.ParentRef
		at := cache.NewObjectName(listenerSet.Namespace, string(up.Name))
		if up.Namespace != nil {
			at.Namespace = string(*up.Namespace)
		}
		return at == gateway
	})
}

// givenUp are those of lost that current has, nil having none.
func givenUp(current *gatewayv1.HTTPRoute, lost []claim) []claim {
	var given []claim
	for _, l := range lost {
		if current != nil && slices.Contains(current.Spec.Hostnames, gatewayv1.Hostname(l.hostname)) {
			given = append(given, l)
		}
	}
	return given
}

// confirm is asked before hostnames are given up: that others hold them is known from a
// cache, which may show a route that is gone. Whoever is said to hold one is looked up;
// an answer that differs means that the cache is behind, and nothing is taken away yet.
func (c *Controller) confirm(ctx context.Context, given []claim) error {
	asked := map[cache.ObjectName]bool{}
	for _, l := range given {
		if asked[l.by] {
			continue
		}
		asked[l.by] = true
		uid, generation := c.known(l.by)
		live, err := c.cfg.Metadata.Resource(routesResource).Namespace(l.by.Namespace).Get(ctx, l.by.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && (live.UID != uid || live.Generation != generation):
			return fmt.Errorf("give up hostname %q: ApplicationRoute %s, which holds it, has changed: %w", l.hostname, l.by, controller.ErrStale)
		case err != nil:
			return fmt.Errorf("give up hostname %q: read ApplicationRoute %s, which holds it: %w", l.hostname, l.by, err)
		}
	}
	return nil
}

// known returns of which version of a route the cache, or the record of one that
// cannot be decoded, tells.
func (c *Controller) known(key cache.ObjectName) (types.UID, int64) {
	if record, bad := c.quarantined(key); bad {
		return record.UID, record.Generation
	}
	route, err := c.routes.ApplicationRoutes(key.Namespace).Get(key.Name)
	if err != nil {
		return "", 0
	}
	return route.UID, route.Generation
}

// rivals returns the routes that hold something else, or are held off by somebody else,
// now that old has become route; nil stands for none. They are those that claim a
// hostname that has been added or dropped by the first in line for it; whoever stands
// further behind comes and goes without a word.
func (c *Controller) rivals(old, route *v1alpha1.ApplicationRoute) []cache.ObjectName {
	var woken keySet
	for _, pair := range [][2]*v1alpha1.ApplicationRoute{{old, route}, {route, old}} {
		changed, kept := pair[0], pair[1]
		if changed == nil {
			continue
		}
		gateway, ok := gatewayOf(changed, c.cfg.DefaultGateway)
		if !ok {
			continue
		}
		for _, hostname := range changed.Spec.Hostnames {
			if c.claims(kept, changed, gateway, hostname) {
				continue
			}
			others := slices.DeleteFunc(c.claimants(gateway, hostname), func(o *v1alpha1.ApplicationRoute) bool { return nameOf(o) == nameOf(changed) })
			if !slices.ContainsFunc(others, func(o *v1alpha1.ApplicationRoute) bool { return older(o, changed) }) {
				for _, other := range others {
					woken.add(nameOf(other))
				}
			}
		}
	}
	return woken.keys
}

// claims says whether route, the same object as like, has that claim too.
func (c *Controller) claims(route, like *v1alpha1.ApplicationRoute, gateway cache.ObjectName, hostname string) bool {
	if route == nil || route.UID != like.UID || !slices.Contains(route.Spec.Hostnames, hostname) {
		return false
	}
	at, ok := gatewayOf(route, c.cfg.DefaultGateway)
	return ok && at == gateway
}

// rivalsOf returns the routes that claim what the HTTPRoutes of one route have: all
// that a route which cannot be decoded holds.
func (c *Controller) rivalsOf(httpRoutes ...*gatewayv1.HTTPRoute) []cache.ObjectName {
	var woken keySet
	for _, httpRoute := range httpRoutes {
		for _, hostname := range httpRoute.Spec.Hostnames {
			found, err := c.cfg.ApplicationRoutes.Indexer().IndexKeys(indexHostname, string(hostname))
			if err != nil {
				continue
			}
			for _, key := range controller.ParseKeys(found) {
				if key != nameOf(httpRoute) {
					woken.add(key)
				}
			}
		}
	}
	return woken.keys
}

// keySet keeps each key once, in the order in which they came.
type keySet struct {
	keys []cache.ObjectName
	has  map[cache.ObjectName]bool
}

func (s *keySet) add(key cache.ObjectName) {
	if s.has[key] {
		return
	}
	if s.has == nil {
		s.has = map[cache.ObjectName]bool{}
	}
	s.has[key] = true
	s.keys = append(s.keys, key)
}
