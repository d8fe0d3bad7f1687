package applicationroute

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

const shared = "shared.example.com"

func TestWhoHoldsAHostname(t *testing.T) {
	type routes = []*v1alpha1.ApplicationRoute
	other := func(namespace, name string, created int64) *v1alpha1.ApplicationRoute {
		r := claiming(name, created, shared)
		r.Namespace = namespace
		return r
	}
	cases := map[string]struct {
		reason string
		others routes
		set    func(t *testing.T, c *Controller, others routes)
		want   string
	}{
		"Alone":         {"nobody else claims it", nil, nil, "shop/web"},
		"OlderExists":   {"made before", routes{other("shop", "z", 9)}, nil, "shop/z"},
		"YoungerExists": {"made after", routes{other("shop", "a", 11)}, nil, "shop/web"},
		"Oldest":        {"of many", routes{other("shop", "a", 9), other("a", "a", 8), other("shop", "b", 12)}, nil, "a/a"},
		"SameSecond":    {"by namespace first", routes{other("infra", "z", 10)}, nil, "infra/z"},
		"SameSecondTwo": {"then by name", routes{other("shop", "a", 10)}, nil, "shop/a"},
		"OtherGateway":  {"a hostname of another Gateway is another one", routes{at(other("shop", "a", 1), "infra", "private")}, nil, "shop/web"},
		"NamesDefault":  {"whoever names the default Gateway is at the same one", routes{at(other("shop", "a", 1), "infra", "public")}, nil, "shop/a"},
		"OwnNamespace":  {"a Gateway without a namespace is in the route's own", routes{at(other("infra", "a", 1), "", "public")}, nil, "infra/a"},
		"OtherHostname": {"a wildcard is another hostname", routes{claiming("a", 1, "*.example.com")}, nil, "shop/web"},

		"FrozenYounger": {"nobody can take from it what it has", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) {
				rendered(t, c, others[0])
				freeze(t, c, others[0], true)
			}, "shop/a"},
		"FrozenAfterRestart": {"the HTTPRoute alone tells", routes{other("shop", "a", 9)},
			func(t *testing.T, c *Controller, others routes) {
				rendered(t, c, others[0])
				freeze(t, c, others[0], false)
			}, "shop/a"},
		"FrozenUnrendered": {"its last good version counts by age", routes{other("shop", "a", 9)},
			func(t *testing.T, c *Controller, others routes) { freeze(t, c, others[0], true) }, "shop/a"},
		"FrozenYoungerUnrendered": {"as any other", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) { freeze(t, c, others[0], true) }, "shop/web"},
		"FrozenTwo": {"the older HTTPRoute", routes{other("shop", "a", 12), other("shop", "b", 11)},
			func(t *testing.T, c *Controller, others routes) {
				for _, o := range others {
					rendered(t, c, o)
					freeze(t, c, o, false)
				}
			}, "shop/b"},
		"FrozenElsewhere": {"at another Gateway", routes{at(other("shop", "a", 9), "infra", "private")},
			func(t *testing.T, c *Controller, others routes) {
				rendered(t, c, others[0])
				freeze(t, c, others[0], false)
			}, "shop/web"},
		"FrozenRecreated": {"the HTTPRoute of an earlier one is not what the frozen one has", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) {
				before := others[0].DeepCopy()
				before.UID = "earlier"
				rendered(t, c, before)
				freeze(t, c, others[0], false)
			}, "shop/web"},
		"NotFrozen": {"a younger one has to let go first", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) { rendered(t, c, others[0]) }, "shop/a"},
		"NoClaim": {"and so has one that has dropped it", routes{other("shop", "a", 9)},
			func(t *testing.T, c *Controller, others routes) {
				rendered(t, c, others[0].DeepCopy())
				others[0].Spec.Hostnames = nil
				if err := c.cfg.ApplicationRoutes.Indexer().Update(others[0]); err != nil {
					t.Fatal(err)
				}
			}, "shop/a"},
		"Both": {"nothing is given up for what has to be let go", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) {
				rendered(t, c, others[0])
				rendered(t, c, claiming("web", 10, shared))
			}, "shop/web"},
		"BothElsewhere": {"what it has at another Gateway is not this", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) {
				rendered(t, c, others[0])
				rendered(t, c, at(claiming("web", 10, shared), "infra", "private"))
			}, "shop/a"},
		"Gone": {"the garbage collector is not waited for", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) {
				rendered(t, c, others[0])
				if err := c.cfg.ApplicationRoutes.Indexer().Delete(others[0]); err != nil {
					t.Fatal(err)
				}
			}, "shop/web"},
		"NoGateway": {"it keeps what it has", routes{other("shop", "a", 11)},
			func(t *testing.T, c *Controller, others routes) {
				c.cfg.DefaultGateway = cache.ObjectName{}
				rendered(t, c, at(others[0].DeepCopy(), testGateway.Namespace, testGateway.Name))
				rendered(t, c, at(claiming("web", 10, shared), testGateway.Namespace, testGateway.Name))
			}, "shop/a"},
		"Foreign": {"an HTTPRoute that no route owns decides nothing", nil,
			func(t *testing.T, c *Controller, _ routes) {
				httpRoute := rendered(t, c, claiming("a", 1, shared))
				httpRoute = httpRoute.DeepCopy()
				httpRoute.OwnerReferences = nil
				if err := c.cfg.HTTPRoutes.Indexer().Update(httpRoute); err != nil {
					t.Fatal(err)
				}
			}, "shop/web"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			route := claiming("web", 10, shared)
			c := newTestController(t, route)
			for _, o := range tc.others {
				if err := c.cfg.ApplicationRoutes.Indexer().Add(o); err != nil {
					t.Fatal(err)
				}
			}
			if tc.set != nil {
				tc.set(t, c, tc.others)
			}
			if got := c.holder(route, testGateway, shared).by.String(); got != tc.want {
				t.Errorf("%s: held by %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// A route that serves HTTPS hangs on its Gateway through its ListenerSet.
func TestHeldThroughAListenerSet(t *testing.T) {
	listenerSets := func(s informer.Snapshot) func(*Controller) {
		return func(c *Controller) { c.listenerSetsKind.source.(*fakeSource).snapshot = s }
	}
	for name, tc := range map[string]struct {
		reason   string
		gateway  cache.ObjectName // the ListenerSet's; zero: there is none
		set      func(*Controller)
		attached bool
	}{
		"SameGateway":  {"", testGateway, nil, true},
		"OtherGateway": {"a hostname of another Gateway is another one", cache.NewObjectName("infra", "private"), nil, false},
		"None":         {"it hangs on nothing", cache.ObjectName{}, nil, false},
		"NotServed":    {"there are none", cache.ObjectName{}, listenerSets(informer.Snapshot{State: informer.StateUnlistable, Reason: informer.NotFound}), false},
		"NotListed":    {"to share a hostname is worse than to wait", cache.ObjectName{}, listenerSets(informer.Snapshot{State: informer.StateStarting}), true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, frozen := range []bool{true, false} {
				other := claiming("a", 11, shared)
				other.Spec.TLSSecret = "tls"
				route := claiming("web", 10, shared)
				c := newTestController(t, route, other)
				rendered(t, c, other)
				if frozen {
					freeze(t, c, other, false)
				}
				if tc.gateway.Name != "" {
					set := decodeAs[gatewayv1.ListenerSet](t, desiredListenerSet(other, tc.gateway, other.Spec.Hostnames))
					if err := c.cfg.ListenerSets.Indexer().Add(set); err != nil {
						t.Fatal(err)
					}
				}
				if tc.set != nil {
					tc.set(c)
				}
				want := nameOf(route)
				if tc.attached {
					want = nameOf(other)
				}
				if got := c.holder(route, testGateway, shared).by; got != want {
					t.Errorf("%s (frozen %t): held by %s, want %s", tc.reason, frozen, got, want)
				}
			}
		})
	}
}

func TestSplitKeepsTheOrderOfTheSpec(t *testing.T) {
	first, route := claiming("first", 1, "b.example.com", "d.example.com"), claiming("web", 10, "d.example.com", "c.example.com", "b.example.com", "a.example.com")
	c := newTestController(t, first, route)
	held, lost := c.split(route, testGateway)
	if diff := cmp.Diff([]string{"c.example.com", "a.example.com"}, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	want := []claim{{hostname: "d.example.com", by: nameOf(first)}, {hostname: "b.example.com", by: nameOf(first)}}
	if diff := cmp.Diff(want, lost, cmp.AllowUnexported(claim{})); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
}

// What is rendered is given up on the API server's word alone.
func TestConfirm(t *testing.T) {
	holder := claiming("a", 1, shared)
	live := func(change func(*metav1.ObjectMeta)) *metav1.PartialObjectMetadata {
		m := &metav1.PartialObjectMetadata{ObjectMeta: *holder.ObjectMeta.DeepCopy()}
		change(&m.ObjectMeta)
		return m
	}
	cases := map[string]struct {
		reason   string
		live     *metav1.PartialObjectMetadata // nil: gone
		rendered bool
		stale    bool
		asked    int
	}{
		"There":       {"as cached", live(func(*metav1.ObjectMeta) {}), true, false, 1},
		"Gone":        {"the cache shows a route that is gone", nil, true, true, 1},
		"Changed":     {"it may have given the hostname up", live(func(m *metav1.ObjectMeta) { m.Generation++ }), true, true, 1},
		"Replaced":    {"another one of that name", live(func(m *metav1.ObjectMeta) { m.UID = "x" }), true, true, 1},
		"Status":      {"its controller writes all the time", live(func(m *metav1.ObjectMeta) { m.ResourceVersion = "99" }), true, false, 1},
		"NotRendered": {"nothing is given up, nothing is asked", nil, false, false, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			route := claiming("web", 10, shared, "also."+shared)
			c := newTestController(t, holder, route)
			asked := 0
			c.cfg.Metadata.(*metadatafake.FakeMetadataClient).PrependReactor("get", "applicationroutes", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				if tc.live == nil {
					return true, nil, apierrors.NewNotFound(routesResource.GroupResource(), holder.Name)
				}
				return true, tc.live, nil
			})
			current := rendered(t, c, route).DeepCopy()
			if !tc.rendered {
				current.Spec.Hostnames = []gatewayv1.Hostname{"also." + shared}
			}
			err := c.confirm(t.Context(), givenUp(current, []claim{{hostname: shared, by: nameOf(holder)}}))
			if errors.Is(err, controller.ErrStale) != tc.stale || (err != nil) != tc.stale {
				t.Errorf("%s: got %v, want stale %t", tc.reason, err, tc.stale)
			}
			if asked != tc.asked {
				t.Errorf("%s: asked %d times, want %d", tc.reason, asked, tc.asked)
			}
		})
	}
	if given := givenUp(nil, []claim{{hostname: shared, by: nameOf(holder)}}); len(given) > 0 {
		t.Errorf("without an HTTPRoute there is nothing to give up: %v", given)
	}
}

func TestRivals(t *testing.T) {
	with := func(r *v1alpha1.ApplicationRoute, hostnames ...string) *v1alpha1.ApplicationRoute {
		r = r.DeepCopy()
		r.Generation, r.Spec.Hostnames = r.Generation+1, hostnames
		return r
	}
	first, second, third := claiming("first", 1, shared), claiming("second", 2, shared), claiming("third", 3, shared, "x.example.com")
	elsewhere := at(claiming("elsewhere", 4, shared), "infra", "private")
	recreated := func(r *v1alpha1.ApplicationRoute, created int64) *v1alpha1.ApplicationRoute {
		r = r.DeepCopy()
		r.UID, r.CreationTimestamp = "another", claiming("", created).CreationTimestamp
		return r
	}
	moved := at(first.DeepCopy(), "infra", "private")
	cases := map[string]struct {
		reason     string
		old, route *v1alpha1.ApplicationRoute
		want       []string
	}{
		"HolderDrops":   {"the next in line, and those who say that it holds", first, with(first), []string{"shop/second", "shop/third"}},
		"HolderDeleted": {"the same", first, nil, []string{"shop/second", "shop/third"}},
		"HolderReturns": {"it takes its hostname back", with(first), first, []string{"shop/second", "shop/third"}},
		"HolderAdds":    {"nobody claims the other one", first, with(first, shared, "new.example.com"), nil},
		"LoserDrops":    {"nothing changes for anybody else", second, with(second), nil},
		"LoserNew":      {"nor when it comes", nil, third, nil},
		"Status":        {"no claim has changed", first, first, nil},
		"Recreated":     {"it is the youngest now", first, recreated(first, 99), []string{"shop/second", "shop/third"}},
		"Moved":         {"to another Gateway: there it is the first, here the next in line holds", first, moved, []string{"shop/second", "shop/third", "shop/elsewhere"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t, first, second, third, elsewhere)
			indexer := c.cfg.ApplicationRoutes.Indexer()
			if tc.old != nil {
				_ = indexer.Delete(tc.old)
			}
			if tc.route != nil {
				_ = indexer.Add(tc.route) // handlers run when the store has it
			}
			var got []string
			for _, key := range c.rivals(tc.old, tc.route) {
				got = append(got, key.String())
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
