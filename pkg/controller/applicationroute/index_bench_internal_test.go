package applicationroute

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// sharing is how many routes use the one Service, and claim the one hostname.
const sharing = 12

const sharedName, sharedHostname = "shared", "shared.example.com"

// filled returns a Controller whose local copies hold n routes in 10 namespaces with
// an HTTPRoute each, and those that share something: the first is the oldest, and
// holds the hostname.
func filled(b testing.TB, n int) (*Controller, []*v1alpha1.ApplicationRoute) {
	b.Helper()
	never := func(string) cache.ListerWatcherWithContext {
		return cache.ToListerWatcherWithContext(&cache.ListWatch{})
	}
	routes, err := informer.New(informer.Config[*v1alpha1.ApplicationRoute]{Resource: routesResource, ListerWatcher: never, Indexers: Indexers(testGateway)})
	if err != nil {
		b.Fatal(err)
	}
	httpRoutes, err := informer.New(informer.Config[*gatewayv1.HTTPRoute]{Resource: httpRoutesResource, ListerWatcher: never, Indexers: HTTPRouteIndexers()})
	if err != nil {
		b.Fatal(err)
	}
	c := &Controller{cfg: Config{ApplicationRoutes: routes, HTTPRoutes: httpRoutes, DefaultGateway: testGateway, Clock: clock.RealClock{}}, quarantined: routes.Quarantined}
	var shared []*v1alpha1.ApplicationRoute
	for i := range n {
		name := fmt.Sprintf("route-%05d", i)
		route := &v1alpha1.ApplicationRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%10), Name: name, UID: types.UID(name), Generation: 1,
				CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0))},
			Spec: v1alpha1.ApplicationRouteSpec{
				Hostnames: []string{name + ".example.com", "www." + name + ".example.com"},
				Backends:  []v1alpha1.Backend{{Service: name, Port: 8080}, {Service: name + "-canary", Port: 8080}},
			},
		}
		// Spread over everything, and in one namespace, since a Service has one.
		if every := n / sharing / 10 * 10; i%every == 0 && len(shared) < sharing {
			route.Spec.Backends[1].Service = sharedName
			route.Spec.Hostnames[1] = sharedHostname
			shared = append(shared, route)
		}
		httpRoute := decodeAs[gatewayv1.HTTPRoute](b, desiredHTTPRoute(route, testGateway, route.Spec.Hostnames))
		if err := routes.Indexer().Add(route); err != nil {
			b.Fatal(err)
		}
		if err := httpRoutes.Indexer().Add(httpRoute); err != nil {
			b.Fatal(err)
		}
	}
	return c, shared
}

// woken collects what handlers enqueue.
type woken []cache.ObjectName

func (w *woken) enqueue(_ controller.Lane, keys ...cache.ObjectName) { *w = append(*w, keys...) }

// scanned is how it would go without an index.
func scanned(c *Controller, concerned func(*v1alpha1.ApplicationRoute) bool) []cache.ObjectName {
	var keys []cache.ObjectName
	for _, object := range c.cfg.ApplicationRoutes.Indexer().List() {
		if route := object.(*v1alpha1.ApplicationRoute); concerned(route) {
			keys = append(keys, nameOf(route))
		}
	}
	return keys
}

// mustWake demands exactly the routes that share.
func mustWake(b testing.TB, by string, got []cache.ObjectName, shared []*v1alpha1.ApplicationRoute) {
	b.Helper()
	var want []string
	for _, route := range shared {
		want = append(want, nameOf(route).String())
	}
	var have []string
	for _, key := range got {
		have = append(have, key.String())
	}
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		b.Fatalf("by %s (-want +got):\n%s", by, diff)
	}
}

func eachSize(b *testing.B, f func(b *testing.B, c *Controller, shared []*v1alpha1.ApplicationRoute)) {
	for _, n := range []int{1000, 20000} {
		c, shared := filled(b, n)
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) { f(b, c, shared) })
	}
}

// changedService is what they share, before and after a change of its port.
func changedService() (old, changed *corev1.Service) {
	old = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-0", Name: sharedName},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}}}
	changed = old.DeepCopy()
	changed.Spec.Ports[0].Port = 8081
	return old, changed
}

// releasedBy is a route that has dropped the hostname that they share.
func releasedBy(holder *v1alpha1.ApplicationRoute) *v1alpha1.ApplicationRoute {
	released := holder.DeepCopy()
	released.Generation, released.Spec.Hostnames = 2, released.Spec.Hostnames[:1]
	return released
}

// Of 1,000 routes those that are concerned are woken, and no other.
func TestWakesNobodyElse(t *testing.T) {
	c, shared := filled(t, 1000)
	var got woken
	c.serviceHandlers(got.enqueue).UpdateFunc(changedService())
	mustWake(t, "change of a Service", got, shared)

	holder, second := shared[0], shared[1]
	got = nil
	c.routeHandlers(got.enqueue).UpdateFunc(holder, releasedBy(holder))
	mustWake(t, "release of a hostname", got, shared)

	got = nil
	c.routeHandlers(got.enqueue).UpdateFunc(second, releasedBy(second))
	mustWake(t, "release of a hostname that another holds", got, shared[1:2])
}

// A Gateway changes with each route that hangs on it, and may have all routes there
// are. They are woken for what their status shows of it, and for nothing else.
func TestGatewayWakesForWhatIsShown(t *testing.T) {
	c, _ := filled(t, 1000)
	gateway := func(texts ...string) *gatewayv1.Gateway {
		return &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: testGateway.Namespace, Name: testGateway.Name},
			Status: gatewayv1.GatewayStatus{Conditions: all(texts...)}}
	}
	const accepted, waits = "Accepted=True Accepted", "Programmed=False AddressNotAssigned none"
	cases := map[string]struct {
		reason string
		old    *gatewayv1.Gateway
		change func(*gatewayv1.Gateway)
		want   int
	}{
		"Attached": {"counts of attached routes", gateway(accepted), func(g *gatewayv1.Gateway) {
			g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", AttachedRoutes: 7}}
		}, 0},
		"Spec":      {"its own generation", gateway(accepted), func(g *gatewayv1.Gateway) { g.Generation++ }, 0},
		"OtherType": {"a condition that is not shown", gateway(accepted), func(g *gatewayv1.Gateway) { g.Status.Conditions = all(accepted, "Happy=False x") }, 0},
		"Words":     {"what goes with True", gateway("Programmed=True Programmed 1 of 1"), func(g *gatewayv1.Gateway) { g.Status.Conditions = all("Programmed=True Programmed 2 of 2") }, 0},
		"WhyNot":    {"what goes with False", gateway(waits), func(g *gatewayv1.Gateway) { g.Status.Conditions[0].Message = "two of none" }, 1000},
		"Status":    {"it is programmed", gateway(waits), func(g *gatewayv1.Gateway) { g.Status.Conditions = all("Programmed=True Programmed") }, 1000},
		"Gone":      {"the condition has gone", gateway(accepted), func(g *gatewayv1.Gateway) { g.Status.Conditions = nil }, 1000},
		"Replaced":  {"another Gateway of that name", gateway(accepted), func(g *gatewayv1.Gateway) { g.UID = "other" }, 1000},
		"Deleted":   {"its deletion has begun", gateway(accepted), func(g *gatewayv1.Gateway) { g.DeletionTimestamp = ptr.To(metav1.Now()) }, 1000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got woken
			changed := tc.old.DeepCopy()
			tc.change(changed)
			c.gatewayHandlers(got.enqueue).UpdateFunc(tc.old, changed)
			if len(got) != tc.want {
				t.Errorf("%s: %d routes are woken, want %d", tc.reason, len(got), tc.want)
			}
		})
	}
}

// BenchmarkServiceChanged is what a change of a Service costs that 12 routes use, from
// the event to the keys.
func BenchmarkServiceChanged(b *testing.B) {
	eachSize(b, func(b *testing.B, c *Controller, shared []*v1alpha1.ApplicationRoute) {
		old, changed := changedService()
		var got woken
		handlers := c.serviceHandlers(got.enqueue)
		b.Run("by=index", func(b *testing.B) {
			for b.Loop() {
				got = got[:0]
				handlers.UpdateFunc(old, changed)
			}
			mustWake(b, "index", got, shared)
		})
		b.Run("by=scan", func(b *testing.B) {
			var keys []cache.ObjectName
			for b.Loop() {
				keys = scanned(c, func(route *v1alpha1.ApplicationRoute) bool {
					return route.Namespace == old.Namespace &&
						slices.ContainsFunc(route.Spec.Backends, func(b v1alpha1.Backend) bool { return b.Service == old.Name })
				})
			}
			mustWake(b, "scan", keys, shared)
		})
	})
}

// BenchmarkHostnameReleased is what it costs to find out who is concerned when the
// holder of a hostname that 12 routes claim lets go of it.
func BenchmarkHostnameReleased(b *testing.B) {
	eachSize(b, func(b *testing.B, c *Controller, shared []*v1alpha1.ApplicationRoute) {
		holder, released := shared[0], releasedBy(shared[0])
		var got woken
		handlers := c.routeHandlers(got.enqueue)
		b.Run("by=index", func(b *testing.B) {
			for b.Loop() {
				got = got[:0]
				handlers.UpdateFunc(holder, released)
			}
			mustWake(b, "index", got, shared) // the holder itself, and the other eleven
		})
		b.Run("by=scan", func(b *testing.B) {
			var keys []cache.ObjectName
			for b.Loop() {
				keys = scanned(c, func(route *v1alpha1.ApplicationRoute) bool {
					gateway, ok := gatewayOf(route, c.cfg.DefaultGateway)
					return ok && gateway == testGateway && slices.Contains(route.Spec.Hostnames, sharedHostname)
				})
			}
			mustWake(b, "scan", keys, shared)
		})
	})
}

// BenchmarkHostnamesHeld is what each pass pays to know which of two hostnames its
// route holds, one of which 12 routes claim.
func BenchmarkHostnamesHeld(b *testing.B) {
	eachSize(b, func(b *testing.B, c *Controller, shared []*v1alpha1.ApplicationRoute) {
		route := shared[sharing-1]
		want := []claim{{hostname: sharedHostname, by: nameOf(shared[0])}}
		b.Run("by=index", func(b *testing.B) {
			var held []string
			var lost []claim
			for b.Loop() {
				held, lost = c.split(route, testGateway)
			}
			if len(held) != 1 || !slices.Equal(lost, want) {
				b.Fatalf("holds %v, lost %v; want one and %v", held, lost, want)
			}
		})
		b.Run("by=scan", func(b *testing.B) {
			var lost []claim
			for b.Loop() {
				lost = nil
				for _, hostname := range route.Spec.Hostnames {
					first := route
					for _, object := range c.cfg.ApplicationRoutes.Indexer().List() {
						other := object.(*v1alpha1.ApplicationRoute)
						if gateway, ok := gatewayOf(other, c.cfg.DefaultGateway); ok && gateway == testGateway &&
							slices.Contains(other.Spec.Hostnames, hostname) && older(other, first) {
							first = other
						}
					}
					if first != route {
						lost = append(lost, claim{hostname: hostname, by: nameOf(first)})
					}
				}
			}
			if !slices.Equal(lost, want) {
				b.Fatalf("lost %v; want %v", lost, want)
			}
		})
	})
}
