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
// Claims are what specs say; what is served is what HTTPRoutes have. The two differ
// until a pass has written, and longer where one cannot. Hence two rules more:
//
//   - A route that stays as it is, whatever anybody claims, holds what its HTTPRoute has
//     ahead of all others: one that cannot be decoded, or that names no Gateway.
//   - Who holds a hostname that its own HTTPRoute has not takes it once no other has it.
//     To let go waits for nothing, so that two that want each other's both get it.
//
// An HTTPRoute whose route is gone is the garbage collector's, and nobody waits for it.
//
// All of it goes by two indexes, so that a pass looks at those that claim or have the
// same hostname and at nobody else.

// split returns which hostnames route holds at gateway, and who holds the others, in
// the order of the spec.
func (c *Controller) split(route *v1alpha1.ApplicationRoute, gateway cache.ObjectName) (held []string, lost []claim) {
	for _, hostname := range route.Spec.Hostnames {
		if holds := c.holder(route, gateway, hostname); holds.by != nameOf(route) {
			lost = append(lost, holds)
		} else {
			held = append(held, hostname)
		}
	}
	return held, lost
}

// holder returns who holds hostname, which route claims. route itself is not looked up.
func (c *Controller) holder(route *v1alpha1.ApplicationRoute, gateway cache.ObjectName, hostname string) claim {
	self := nameOf(route)
	has := false
	var staying, leaving *gatewayv1.HTTPRoute
	var whyStaying string
	for _, httpRoute := range c.serving(gateway, hostname) {
		switch why, there := c.stays(httpRoute); {
		case nameOf(httpRoute) == self:
			has = has || metav1.IsControlledBy(httpRoute, route)
		case !there:
		case why != "":
			if staying = olderOf(staying, httpRoute); staying == httpRoute {
				whyStaying = why
			}
		default:
			leaving = olderOf(leaving, httpRoute)
		}
	}
	if staying != nil {
		return claim{hostname: hostname, by: nameOf(staying), why: whyStaying}
	}
	first := route
	for _, other := range c.claimants(gateway, hostname) {
		if nameOf(other) != self && older(other, first) {
			first = other
		}
	}
	if first == route && !has && leaving != nil {
		return claim{hostname: hostname, by: nameOf(leaving), leaving: true,
			why: "which has to let go of it and serves it still: its own status says what it waits for"}
	}
	return claim{hostname: hostname, by: nameOf(first)}
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

// olderOf returns the older one; a may be nil.
func olderOf(a, b *gatewayv1.HTTPRoute) *gatewayv1.HTTPRoute {
	if a != nil && older(a, b) {
		return a
	}
	return b
}

// serving returns the HTTPRoutes of ours that have hostname at gateway.
func (c *Controller) serving(gateway cache.ObjectName, hostname string) []*gatewayv1.HTTPRoute {
	found, err := c.cfg.HTTPRoutes.Indexer().ByIndex(indexOwnHostname, hostname)
	if err != nil {
		return nil // as above
	}
	httpRoutes := make([]*gatewayv1.HTTPRoute, 0, len(found))
	for _, object := range found {
		if httpRoute, ok := object.(*gatewayv1.HTTPRoute); ok && c.attached(httpRoute, gateway) {
			httpRoutes = append(httpRoutes, httpRoute)
		}
	}
	return httpRoutes
}

// stays returns why the route that owns httpRoute leaves it as it is, whatever anybody
// claims, "" if it does not, and whether that route is there at all.
func (c *Controller) stays(httpRoute *gatewayv1.HTTPRoute) (why string, there bool) {
	owner := ownRoute(httpRoute)
	if owner == nil {
		return "", false
	}
	if record, bad := c.quarantined(nameOf(httpRoute)); bad {
		return "which cannot be decoded", record.UID == owner.UID
	}
	route, err := c.routes.ApplicationRoutes(httpRoute.Namespace).Get(httpRoute.Name)
	if err != nil || route.UID != owner.UID {
		return "", false
	}
	if _, ok := gatewayOf(route, c.cfg.DefaultGateway); !ok {
		return "which names no Gateway and so keeps what it has: name one there, or delete it", true
	}
	return "", true
}

// isStaying says whether others have to give way to what httpRoute has.
func (c *Controller) isStaying(httpRoute *gatewayv1.HTTPRoute) bool {
	why, there := c.stays(httpRoute)
	return there && why != ""
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
// or directly. A ListenerSet that is not there hangs on nothing. One that cannot be read
// counts: to share a hostname is worse than to wait.
func (c *Controller) attached(httpRoute *gatewayv1.HTTPRoute, gateway cache.ObjectName) bool {
	return slices.ContainsFunc(httpRoute.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool {
		parent := cache.NewObjectName(or(ref.Namespace, gatewayv1.Namespace(httpRoute.Namespace)), string(ref.Name))
		if ref.Kind == nil || *ref.Kind == kindGateway {
			return parent == gateway
		}
		listenerSet, err := c.listenerSetLister.ListenerSets(parent.Namespace).Get(parent.Name)
		if err != nil {
			_, bad := c.cfg.ListenerSets.Quarantined(parent)
			return bad || c.listenerSetsKind.unknown(parent.Namespace)
		}
		return gatewayOfSet(listenerSet) == gateway
	})
}

// gatewayOfSet is what a ListenerSet hangs on.
func gatewayOfSet(set *gatewayv1.ListenerSet) cache.ObjectName {
	return cache.NewObjectName(or(set.Spec.ParentRef.Namespace, gatewayv1.Namespace(set.Namespace)), string(set.Spec.ParentRef.Name))
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
// further behind comes and goes without a word. And those that claim what its HTTPRoute
// has, if that has become what stays as it is or is no longer that, or is nobody's now.
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
	if old != nil && (route == nil || route.UID != old.UID || c.namesNone(route) != c.namesNone(old)) {
		for _, key := range c.rivalsAt(nameOf(old)) {
			woken.add(key)
		}
	}
	return woken.keys
}

// namesNone says whether there is no Gateway that route attaches to.
func (c *Controller) namesNone(route *v1alpha1.ApplicationRoute) bool {
	_, ok := gatewayOf(route, c.cfg.DefaultGateway)
	return !ok
}

// claims says whether route, the same object as like, has that claim too.
func (c *Controller) claims(route, like *v1alpha1.ApplicationRoute, gateway cache.ObjectName, hostname string) bool {
	if route == nil || route.UID != like.UID || !slices.Contains(route.Spec.Hostnames, hostname) {
		return false
	}
	at, ok := gatewayOf(route, c.cfg.DefaultGateway)
	return ok && at == gateway
}

// rivalsAt returns the routes that claim what the HTTPRoute of that route has, as far as
// the cache shows one.
func (c *Controller) rivalsAt(key cache.ObjectName) []cache.ObjectName {
	httpRoute, err := c.httpRoutes.Cached(key.Namespace, key.Name)
	if err != nil {
		return nil
	}
	return c.rivalsOf(httpRoute)
}

// rivalsOf returns the routes that claim what the HTTPRoutes of one route have.
func (c *Controller) rivalsOf(httpRoutes ...*gatewayv1.HTTPRoute) []cache.ObjectName {
	var woken keySet
	for _, httpRoute := range httpRoutes {
		for _, hostname := range httpRoute.Spec.Hostnames {
			for _, key := range c.cfg.ApplicationRoutes.ByIndex(indexHostname, string(hostname)) {
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
