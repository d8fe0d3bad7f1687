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

// claimants is what happens to a handful of routes, at random: they are made, edited,
// moved between Gateways, deleted, made anew under the same name, frozen and mended.
// Handlers run later than the cache changes, and passes later than they are asked for.
type claimants struct {
	*Controller
	*testing.T
	random *rand.Rand
	story  []string

	bad     map[cache.ObjectName]informer.Quarantined
	events  []func() // of handlers that have not run yet
	waiting map[cache.ObjectName]bool
	// held is what the last pass over a route came to.
	held  map[cache.ObjectName][]string
	clock int64
	uids  int
}

var (
	claimedNames     = []string{"a", "b", "c", "d"}
	claimedHostnames = []string{"x.example.com", "y.example.com", "z.example.com"}
)

func newClaimants(t *testing.T, seed uint64) *claimants {
	w := &claimants{Controller: newTestController(t), T: t, random: rand.New(rand.NewPCG(seed, 0)),
		bad: map[cache.ObjectName]informer.Quarantined{}, waiting: map[cache.ObjectName]bool{}, held: map[cache.ObjectName][]string{}}
	w.quarantined = func(key cache.ObjectName) (informer.Quarantined, bool) {
		record, bad := w.bad[key]
		return record, bad
	}
	return w
}

func (w *claimants) enqueue(_ controller.Lane, keys ...cache.ObjectName) {
	for _, key := range keys {
		w.waiting[key] = true
	}
}

func (w *claimants) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

func (w *claimants) cachedRoute(key cache.ObjectName) *v1alpha1.ApplicationRoute {
	object, exists, err := w.cfg.ApplicationRoutes.Indexer().GetByKey(key.String())
	if err != nil || !exists {
		return nil
	}
	return object.(*v1alpha1.ApplicationRoute)
}

func (w *claimants) cachedChild(key cache.ObjectName) *gatewayv1.HTTPRoute {
	object, exists, err := w.cfg.HTTPRoutes.Indexer().GetByKey(key.String())
	if err != nil || !exists {
		return nil
	}
	return object.(*gatewayv1.HTTPRoute)
}

// some are a random choice of hostnames, in random order.
func (w *claimants) some() []string {
	all := slices.Clone(claimedHostnames)
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+w.random.IntN(len(all))]
}

// step lets one thing happen.
func (w *claimants) step() {
	key := cache.NewObjectName("shop", claimedNames[w.random.IntN(len(claimedNames))])
	route := w.cachedRoute(key)
	_, bad := w.bad[key]
	switch w.random.IntN(8) {
	case 0, 1: // a handler runs
		w.runHandler()
	case 2, 3: // a pass
		w.pass()
	case 4: // made, edited or moved
		if bad {
			return // mend, below, is the one way out
		}
		w.put(key, route)
	case 5:
		if route != nil {
			w.remove(key, route)
		}
	case 6:
		if route != nil && !bad {
			w.tell("%s is frozen", key)
			w.bad[key] = informer.Quarantined{Key: key, UID: route.UID, Generation: route.Generation + 1}
			w.quarantineChanged(key)
		}
	case 7:
		if bad {
			delete(w.bad, key)
			w.quarantineChanged(key)
			if route != nil {
				w.put(key, route)
			}
		}
	}
}

func (w *claimants) put(key cache.ObjectName, old *v1alpha1.ApplicationRoute) {
	route := claiming(key.Name, w.clock, w.some()...)
	if w.random.IntN(2) == 0 {
		w.clock++ // else of the same second
	}
	switch {
	case old != nil && w.random.IntN(5) > 0:
		route.UID, route.CreationTimestamp, route.Generation = old.UID, old.CreationTimestamp, old.Generation+1
	default:
		w.uids++ // made anew, which a relist shows as an update
		route.UID = types.UID(fmt.Sprint(w.uids))
		w.child(key, nil) // by the garbage collector
	}
	if w.random.IntN(3) == 0 {
		at(route, "infra", "private")
	}
	w.tell("%s (uid %s of second %d) claims %v at %+v", key, route.UID, route.CreationTimestamp.Unix(), route.Spec.Hostnames, route.Spec.Gateway)
	if err := w.cfg.ApplicationRoutes.Indexer().Update(route); err != nil {
		w.Fatal(err)
	}
	h := w.routeHandlers(w.enqueue)
	w.events = append(w.events, func() {
		if old == nil {
			h.AddFunc(route, false)
		} else {
			h.UpdateFunc(old, route)
		}
	})
}

func (w *claimants) remove(key cache.ObjectName, route *v1alpha1.ApplicationRoute) {
	w.tell("%s is deleted", key)
	if err := w.cfg.ApplicationRoutes.Indexer().Delete(route); err != nil {
		w.Fatal(err)
	}
	if _, bad := w.bad[key]; bad {
		delete(w.bad, key)
		w.quarantineChanged(key)
	}
	h := w.routeHandlers(w.enqueue)
	w.events = append(w.events, func() {
		h.DeleteFunc(cache.DeletedObject[*v1alpha1.ApplicationRoute]{OptionalObj: route})
	})
	w.child(key, nil)
}

// quarantineChanged does what is registered with OnQuarantine.
func (w *claimants) quarantineChanged(key cache.ObjectName) {
	w.events = append(w.events, func() {
		w.enqueue(controller.Urgent, key)
		if httpRoute := w.cachedChild(key); httpRoute != nil {
			w.enqueue(controller.Normal, w.rivalsOf(httpRoute)...)
		}
	})
}

// child puts the HTTPRoute of a route into the cache, nil deletes it.
func (w *claimants) child(key cache.ObjectName, httpRoute *gatewayv1.HTTPRoute) {
	old := w.cachedChild(key)
	h, indexer := w.httpRouteHandlers(w.enqueue), w.cfg.HTTPRoutes.Indexer()
	switch {
	case httpRoute != nil:
		_ = indexer.Update(httpRoute)
		w.events = append(w.events, func() {
			if old == nil {
				h.AddFunc(httpRoute, false)
			} else {
				h.UpdateFunc(old, httpRoute)
			}
		})
	case old != nil:
		_ = indexer.Delete(old)
		w.events = append(w.events, func() {
			h.DeleteFunc(cache.DeletedObject[*gatewayv1.HTTPRoute]{OptionalObj: old})
		})
	}
}

func (w *claimants) runHandler() bool {
	if len(w.events) == 0 {
		return false
	}
	next := w.events[0]
	w.events = w.events[1:]
	next()
	return true
}

// pass does what a pass does about hostnames, with the cache as it is.
func (w *claimants) pass() bool {
	keys := slices.SortedFunc(maps.Keys(w.waiting), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
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
		return true // the gate
	}
	gateway, _ := gatewayOf(route, w.cfg.DefaultGateway)
	w.held[key], _ = w.split(route, gateway)
	w.tell("pass over %s: holds %v", key, w.held[key])
	if len(w.held[key]) == 0 {
		w.child(key, nil)
		return true
	}
	httpRoute := decodeAs[gatewayv1.HTTPRoute](w.T, desiredHTTPRoute(route, gateway, w.held[key]))
	httpRoute.CreationTimestamp, httpRoute.Generation = route.CreationTimestamp, 1
	if old := w.cachedChild(key); old != nil {
		httpRoute.Generation = old.Generation + 1
		if slices.Equal(old.Spec.Hostnames, httpRoute.Spec.Hostnames) && old.OwnerReferences[0].UID == route.UID &&
			old.Spec.ParentRefs[0].Name == httpRoute.Spec.ParentRefs[0].Name {
			return true
		}
	}
	w.child(key, httpRoute)
	return true
}

// frozenToo says whether a frozen rival has something that httpRoute has.
func (w *claimants) frozenToo(key cache.ObjectName, httpRoute *gatewayv1.HTTPRoute) bool {
	parent := httpRoute.Spec.ParentRefs[0]
	gateway := cache.NewObjectName(string(*parent.Namespace), string(parent.Name))
	return slices.ContainsFunc(httpRoute.Spec.Hostnames, func(h gatewayv1.Hostname) bool {
		_, frozen := w.frozenHolder(key, gateway, string(h))
		return frozen
	})
}

// Whatever happens in whatever order: once all handlers have run and all who were woken
// have been looked at, each hostname of a Gateway is held by one route, and everybody
// knows it. Nothing but the indexes says whom to wake.
func TestClaimsConverge(t *testing.T) {
	for seed := range uint64(3000) {
		w := newClaimants(t, seed)
		for range 60 {
			w.step()
		}
		for w.runHandler() || w.pass() {
		}
		holders := map[string][]string{}
		for _, name := range claimedNames {
			key := cache.NewObjectName("shop", name)
			route := w.cachedRoute(key)
			if route == nil {
				continue
			}
			gateway, _ := gatewayOf(route, w.cfg.DefaultGateway)
			if _, bad := w.bad[key]; !bad {
				if want, _ := w.split(route, gateway); !slices.Equal(want, w.held[key]) {
					t.Errorf("seed %d: %s holds %v and has been left with %v", seed, key, want, w.held[key])
				}
			}
			httpRoute := w.cachedChild(key)
			if _, bad := w.bad[key]; httpRoute != nil && bad && w.frozenToo(key, httpRoute) {
				continue // two that were frozen before one could let go of what both had
			}
			if httpRoute != nil {
				at := fmt.Sprint(*httpRoute.Spec.ParentRefs[0].Namespace, httpRoute.Spec.ParentRefs[0].Name)
				for _, h := range httpRoute.Spec.Hostnames {
					holders[at+" "+string(h)] = append(holders[at+" "+string(h)], name)
				}
			}
		}
		for what, by := range holders {
			if len(by) > 1 {
				t.Errorf("seed %d: %s is rendered by %v", seed, what, by)
			}
		}
		if t.Failed() {
			t.Fatalf("what happened:\n%s", strings.Join(w.story, "\n"))
		}
	}
}
