package applicationroute

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// Where the caches show everything at once, no two HTTPRoutes ever have a hostname of a
// Gateway, whatever happens and in whatever order; and when nothing happens any more,
// everybody knows what it holds. Nothing but the indexes says whom to wake.
func TestClaimsAreExclusive(t *testing.T) {
	for seed := range uint64(2000) {
		w := newStory(t, seed, true)
		for range 80 {
			w.step()
			w.exclusive(seed)
		}
		w.rest()
		w.exclusive(seed)
		w.settled(seed)
		w.mended(seed)
	}
}

// Where the caches lag, two may have one for a while. When everything has arrived one of
// them lets go of it, if it can.
func TestClaimsConverge(t *testing.T) {
	for seed := range uint64(2000) {
		w := newStory(t, seed, false)
		for range 120 {
			w.step()
		}
		w.rest()
		w.givenUp(seed)
		w.settled(seed)
		w.mended(seed)
	}
}

// rest lets everything come to an end.
func (w *story) rest() {
	for n := 0; w.arrive() || w.runHandler() || w.pass(); n++ {
		if n > 10000 {
			w.fail(0, "no end to it")
		}
	}
}

// exclusive checks that no two HTTPRoutes have a hostname of a Gateway.
func (w *story) exclusive(seed uint64) {
	w.Helper()
	for what, by := range w.rendered() {
		if len(by) > 1 {
			w.fail(seed, "%s is rendered by %v", what, by)
		}
	}
}

// givenUp checks the same, except for those that had it before they became unable to let
// go of it: what stays as it is has it alone, and what is refused beside one at most.
func (w *story) givenUp(seed uint64) {
	w.Helper()
	for what, by := range w.rendered() {
		able, staying := 0, 0
		for _, key := range by {
			switch {
			case w.isStaying(w.httpRoutes[key]):
				staying++
			case !w.refused[key]:
				able++
			}
		}
		if able > 1 || able > 0 && staying > 0 {
			w.fail(seed, "%s is rendered by %v", what, by)
		}
	}
}

// settled checks that another pass over any route would come to the same result.
func (w *story) settled(seed uint64) {
	w.Helper()
	for _, name := range claimedNames {
		key := cache.NewObjectName("shop", name)
		route := w.cachedRoute(key)
		if _, bad := w.bad[key]; route == nil || bad {
			continue
		}
		gateway, ok := gatewayOf(route, w.cfg.DefaultGateway)
		if !ok {
			continue
		}
		if want, _ := w.split(route, gateway); !slices.Equal(want, w.held[key]) {
			w.fail(seed, "%s holds %v and has been left with %v", key, want, w.held[key])
		}
	}
}

// mended takes everything out of the way that keeps routes from letting go, and checks
// that nobody goes on waiting: each hostname is had by the one that claims it and comes
// first.
func (w *story) mended(seed uint64) {
	w.Helper()
	for _, name := range claimedNames {
		key := cache.NewObjectName("shop", name)
		if w.httpRoutes[key] != nil && ownRoute(w.httpRoutes[key]) == nil {
			w.collect(key)
		}
		route := w.someRoute(key)
		if route.Spec.Gateway == nil {
			at(route, "infra", "public")
		}
		if _, bad := w.bad[key]; bad {
			w.mend(key, route)
		} else if old := w.cachedRoute(key); old != nil && old.Spec.Gateway == nil {
			w.put(key, old, route)
		}
		w.refuse(key, false)
	}
	w.rest()
	w.exclusive(seed)
	for _, name := range claimedNames {
		key := cache.NewObjectName("shop", name)
		route := w.cachedRoute(key)
		if route == nil {
			continue
		}
		gateway, _ := gatewayOf(route, w.cfg.DefaultGateway)
		for _, hostname := range route.Spec.Hostnames {
			first := route
			for _, other := range w.claimants(gateway, hostname) {
				if older(other, first) {
					first = other
				}
			}
			what := hostname + " at " + gateway.String()
			if by := w.rendered()[what]; !slices.Equal(by, []cache.ObjectName{nameOf(first)}) {
				w.fail(seed, "at the end %s is rendered by %v, want %s", what, by, nameOf(first))
			}
		}
	}
}

func (w *story) fail(seed uint64, format string, args ...any) {
	w.Helper()
	w.Errorf("seed %d: "+format, append([]any{seed}, args...)...)
	w.Fatalf("what happened:\n%s", strings.Join(w.told, "\n"))
}
