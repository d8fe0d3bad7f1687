package applicationroute

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// story is what happens to a handful of routes, at random: they are made, edited, moved
// between Gateways and away from any, given a Secret, deleted, made anew under the same
// name, frozen and mended; their applies are refused and accepted again, their
// ListenerSets deleted by somebody, and their HTTPRoutes orphaned with them. What passes write shows in the caches late, handlers
// run later than that, and passes later than they are asked for.
type story struct {
	*Controller
	*testing.T
	random *rand.Rand
	told   []string

	bad     map[cache.ObjectName]informer.Quarantined
	refused map[cache.ObjectName]bool // applies are

	// The children as the API server has them.
	httpRoutes   map[cache.ObjectName]*gatewayv1.HTTPRoute
	listenerSets map[cache.ObjectName]*gatewayv1.ListenerSet
	// What has not got to the cache of either kind, in the order in which it was done;
	// and how much of it each route has written itself, which keeps its key back.
	arrivals [2][]func()
	pending  map[cache.ObjectName]int
	// prompt: everything gets to the caches at once.
	prompt bool

	handlers []func() // that have not run yet
	waiting  map[cache.ObjectName]bool
	// held is what the last pass over a route came to.
	held  map[cache.ObjectName][]string
	clock int64
	uids  int
}

var (
	claimedNames     = []string{"a", "b", "c", "d"}
	claimedHostnames = []string{"x.example.com", "y.example.com", "z.example.com"}
)

func newStory(t *testing.T, seed uint64, prompt bool) *story {
	w := &story{Controller: newTestController(t), T: t, random: rand.New(rand.NewPCG(seed, 0)), prompt: prompt,
		bad: map[cache.ObjectName]informer.Quarantined{}, refused: map[cache.ObjectName]bool{},
		httpRoutes: map[cache.ObjectName]*gatewayv1.HTTPRoute{}, listenerSets: map[cache.ObjectName]*gatewayv1.ListenerSet{},
		pending: map[cache.ObjectName]int{}, waiting: map[cache.ObjectName]bool{}, held: map[cache.ObjectName][]string{}}
	w.cfg.DefaultGateway = cache.ObjectName{}
	w.quarantined = func(key cache.ObjectName) (informer.Quarantined, bool) {
		record, bad := w.bad[key]
		return record, bad
	}
	return w
}

func (w *story) enqueue(_ controller.Lane, keys ...cache.ObjectName) {
	for _, key := range keys {
		w.waiting[key] = true
	}
}

func (w *story) tell(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func cached[T any](indexer cache.Indexer, key cache.ObjectName) (none T) {
	object, exists, err := indexer.GetByKey(key.String())
	if err != nil || !exists {
		return none
	}
	return object.(T)
}

func (w *story) cachedRoute(key cache.ObjectName) *v1alpha1.ApplicationRoute {
	return cached[*v1alpha1.ApplicationRoute](w.cfg.ApplicationRoutes.Indexer(), key)
}

// step lets one thing happen.
func (w *story) step() {
	key := cache.NewObjectName("shop", claimedNames[w.random.IntN(len(claimedNames))])
	route := w.cachedRoute(key)
	_, bad := w.bad[key]
	switch w.random.IntN(14) {
	case 0, 1:
		w.runHandler()
	case 2, 3:
		w.arrive()
	case 4, 5, 6:
		w.pass()
	case 7, 8: // made, edited or moved
		if !bad { // mend, below, is the one way out
			w.put(key, route, w.someRoute(key))
		}
	case 9:
		if route != nil {
			w.remove(key, route)
		}
	case 10:
		if route != nil && !bad {
			w.tell("%s is frozen", key)
			w.bad[key] = informer.Quarantined{Key: key, UID: route.UID, Generation: route.Generation + 1}
			w.quarantineChanged(key)
		}
	case 11:
		if bad {
			w.mend(key, w.someRoute(key))
		}
	case 12:
		w.refuse(key, !w.refused[key])
	case 13:
		if w.listenerSets[key] != nil {
			w.tell("somebody deletes ListenerSet %s", key)
			w.setListenerSet(key, nil, false)
		}
	}
}

// someRoute claims some hostnames, in some order, somewhere or nowhere.
func (w *story) someRoute(key cache.ObjectName) *v1alpha1.ApplicationRoute {
	hostnames := slices.Clone(claimedHostnames)
	w.random.Shuffle(len(hostnames), func(i, j int) { hostnames[i], hostnames[j] = hostnames[j], hostnames[i] })
	route := claiming(key.Name, w.clock, hostnames[:1+w.random.IntN(len(hostnames))]...)
	switch w.random.IntN(8) {
	case 0: // it names none, and there is no default
	case 1, 2:
		at(route, "infra", "private")
	default:
		at(route, "infra", "public")
	}
	if w.random.IntN(2) == 0 {
		route.Spec.TLSSecret = "tls"
	}
	return route
}

func (w *story) put(key cache.ObjectName, old, route *v1alpha1.ApplicationRoute) {
	if w.random.IntN(2) == 0 {
		w.clock++ // else of the same second
	}
	switch {
	case old != nil && w.random.IntN(5) > 0:
		route.UID, route.CreationTimestamp, route.Generation = old.UID, old.CreationTimestamp, old.Generation+1
	default:
		w.uids++ // made anew, which a relist shows as an update
		route.UID = types.UID(fmt.Sprint(w.uids))
		w.collect(key)
	}
	w.tell("%s (uid %s of second %d) claims %v at %+v with Secret %q", key, route.UID, route.CreationTimestamp.Unix(),
		route.Spec.Hostnames, route.Spec.Gateway, route.Spec.TLSSecret)
	if err := w.cfg.ApplicationRoutes.Indexer().Update(route); err != nil {
		w.Fatal(err)
	}
	h := w.routeHandlers(w.enqueue)
	w.handlers = append(w.handlers, func() {
		if old == nil {
			h.AddFunc(route, false)
		} else {
			h.UpdateFunc(old, route)
		}
	})
}

func (w *story) remove(key cache.ObjectName, route *v1alpha1.ApplicationRoute) {
	w.tell("%s is deleted", key)
	if err := w.cfg.ApplicationRoutes.Indexer().Delete(route); err != nil {
		w.Fatal(err)
	}
	if _, bad := w.bad[key]; bad {
		delete(w.bad, key)
		w.quarantineChanged(key)
	}
	h := w.routeHandlers(w.enqueue)
	w.handlers = append(w.handlers, func() {
		h.DeleteFunc(cache.DeletedObject[*v1alpha1.ApplicationRoute]{OptionalObj: route})
	})
	if w.httpRoutes[key] == nil || w.random.IntN(4) > 0 {
		w.collect(key)
		return
	}
	w.tell("with --cascade=orphan")
	orphan := w.httpRoutes[key].DeepCopy()
	orphan.OwnerReferences = nil
	w.setHTTPRoute(key, orphan, false)
}

// mend makes a frozen route one that can be decoded.
func (w *story) mend(key cache.ObjectName, route *v1alpha1.ApplicationRoute) {
	w.tell("%s is mended", key)
	delete(w.bad, key)
	w.quarantineChanged(key)
	w.put(key, w.cachedRoute(key), route)
}

// quarantineChanged does what is registered with OnQuarantine.
func (w *story) quarantineChanged(key cache.ObjectName) {
	w.handlers = append(w.handlers, func() {
		w.enqueue(controller.Urgent, key)
		w.enqueue(controller.Normal, w.rivalsAt(key)...)
	})
}

// refuse says whether the API server takes what is applied for a route. A refused apply
// is tried again.
func (w *story) refuse(key cache.ObjectName, refused bool) {
	w.tell("applies of %s are refused: %t", key, refused)
	w.refused[key] = refused
	w.enqueue(controller.Normal, key)
}

// collect is the garbage collector, which takes orphans too here.
func (w *story) collect(key cache.ObjectName) {
	w.setHTTPRoute(key, nil, false)
	w.setListenerSet(key, nil, false)
}

func (w *story) setHTTPRoute(key cache.ObjectName, object *gatewayv1.HTTPRoute, own bool) {
	w.httpRoutes[key] = object
	w.later(0, key, own, func() { show(w, w.cfg.HTTPRoutes.Indexer(), w.httpRouteHandlers(w.enqueue), key, object) })
}

func (w *story) setListenerSet(key cache.ObjectName, object *gatewayv1.ListenerSet, own bool) {
	w.listenerSets[key] = object
	w.later(1, key, own, func() { show(w, w.cfg.ListenerSets.Indexer(), w.listenerSetHandlers(w.enqueue), key, object) })
}

// later lets something get to a cache. own: the route of that key has done it.
func (w *story) later(kind int, key cache.ObjectName, own bool, arrive func()) {
	if w.prompt {
		arrive()
		return
	}
	if own {
		w.pending[key]++
	}
	w.arrivals[kind] = append(w.arrivals[kind], func() {
		if own {
			w.pending[key]--
		}
		arrive()
	})
}

// show puts an object into its cache, nil deletes it.
func show[T interface {
	comparable
	cache.Object
}](w *story, indexer cache.Indexer, h cache.TypedResourceEventHandlerDetailedFuncs[T], key cache.ObjectName, object T) {
	var none T
	old := cached[T](indexer, key)
	switch {
	case object != none:
		_ = indexer.Update(object)
		w.handlers = append(w.handlers, func() {
			if old == none {
				h.AddFunc(object, false)
			} else {
				h.UpdateFunc(old, object)
			}
		})
	case old != none:
		_ = indexer.Delete(old)
		w.handlers = append(w.handlers, func() { h.DeleteFunc(cache.DeletedObject[T]{OptionalObj: old}) })
	}
}

func (w *story) arrive() bool {
	first := w.random.IntN(2)
	for _, kind := range []int{first, 1 - first} {
		if queue := w.arrivals[kind]; len(queue) > 0 {
			w.arrivals[kind] = queue[1:]
			queue[0]()
			return true
		}
	}
	return false
}

func (w *story) runHandler() bool {
	if len(w.handlers) == 0 {
		return false
	}
	next := w.handlers[0]
	w.handlers = w.handlers[1:]
	next()
	return true
}

// pass does what a pass does about hostnames, with the caches as they are.
func (w *story) pass() bool {
	keys := slices.SortedFunc(maps.Keys(w.waiting), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	keys = slices.DeleteFunc(keys, func(key cache.ObjectName) bool { return w.pending[key] > 0 }) // the gate
	if len(keys) == 0 {
		return false
	}
	key := keys[w.random.IntN(len(keys))]
	delete(w.waiting, key)
	route := w.cachedRoute(key)
	if route == nil {
		delete(w.held, key)
		return true
	}
	if _, bad := w.bad[key]; bad {
		return true // the gate too
	}
	gateway, ok := gatewayOf(route, w.cfg.DefaultGateway)
	if !ok {
		delete(w.held, key)
		return true // what was rendered stays
	}
	var lost []claim
	w.held[key], lost = w.split(route, gateway)
	w.tell("pass over %s: holds %v, not %v", key, w.held[key], lost)
	switch {
	case len(w.held[key]) == 0:
		w.apply(key, nil, nil)
	case !w.refused[key]:
		var set *gatewayv1.ListenerSet
		if route.Spec.TLSSecret != "" {
			set = decodeAs[gatewayv1.ListenerSet](w.T, desiredListenerSet(route, gateway, w.held[key]))
		}
		httpRoute := decodeAs[gatewayv1.HTTPRoute](w.T, desiredHTTPRoute(route, gateway, w.held[key]))
		httpRoute.CreationTimestamp = route.CreationTimestamp
		w.apply(key, httpRoute, set)
	}
	return true
}

// apply writes both children, nil deletes one. Nothing is written that is there already.
func (w *story) apply(key cache.ObjectName, httpRoute *gatewayv1.HTTPRoute, set *gatewayv1.ListenerSet) {
	oldRoute, oldSet := w.httpRoutes[key], w.listenerSets[key]
	if oldRoute != nil && ownRoute(oldRoute) == nil {
		return
	}
	if set != nil && (oldSet == nil || oldSet.OwnerReferences[0].UID != set.OwnerReferences[0].UID || gatewayOfSet(oldSet) != gatewayOfSet(set)) {
		w.setListenerSet(key, set, true)
	}
	switch {
	case httpRoute == nil:
		if oldRoute != nil {
			w.setHTTPRoute(key, nil, true)
		}
	case oldRoute == nil || !slices.Equal(oldRoute.Spec.Hostnames, httpRoute.Spec.Hostnames) || oldRoute.OwnerReferences[0].UID != httpRoute.OwnerReferences[0].UID ||
		w.hangsOn(oldRoute) != w.hangsOn(httpRoute) || *oldRoute.Spec.ParentRefs[0].Kind != *httpRoute.Spec.ParentRefs[0].Kind:
		if oldRoute != nil {
			httpRoute.Generation = oldRoute.Generation + 1
		}
		w.setHTTPRoute(key, httpRoute, true)
	}
	if set == nil && oldSet != nil {
		w.setListenerSet(key, nil, true)
	}
}

// hangsOn is the Gateway of an HTTPRoute as the API server has it, "" for none.
func (w *story) hangsOn(httpRoute *gatewayv1.HTTPRoute) string {
	ref := httpRoute.Spec.ParentRefs[0]
	if *ref.Kind == kindGateway {
		return cache.NewObjectName(string(*ref.Namespace), string(ref.Name)).String()
	}
	set := w.listenerSets[nameOf(httpRoute)]
	if set == nil {
		return ""
	}
	return gatewayOfSet(set).String()
}

// rendered is who has each hostname of each Gateway.
func (w *story) rendered() map[string][]cache.ObjectName {
	holders := map[string][]cache.ObjectName{}
	for _, name := range claimedNames {
		key := cache.NewObjectName("shop", name)
		httpRoute := w.httpRoutes[key]
		if httpRoute == nil || ownRoute(httpRoute) == nil || w.hangsOn(httpRoute) == "" {
			continue
		}
		for _, h := range httpRoute.Spec.Hostnames {
			what := fmt.Sprintf("%s at %s", h, w.hangsOn(httpRoute))
			holders[what] = append(holders[what], key)
		}
	}
	return holders
}
