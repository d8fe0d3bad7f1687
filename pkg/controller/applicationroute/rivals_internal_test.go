package applicationroute

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

type setHandlers = cache.TypedResourceEventHandlerDetailedFuncs[*gatewayv1.ListenerSet]

// Whatever makes an HTTPRoute one that has to be given way to, or no longer one that has
// to be waited for, is told to those who claim what it has.
func TestRivalsHearOfIt(t *testing.T) {
	const own, rival = "1 shop/web", "1 shop/rival"
	tls := func(r *v1alpha1.ApplicationRoute) *v1alpha1.ApplicationRoute {
		r.Spec.TLSSecret = "tls"
		return r
	}
	none := func(r *v1alpha1.ApplicationRoute) *v1alpha1.ApplicationRoute {
		r.Spec.Gateway, r.Spec.Hostnames = nil, []string{"b.example.com"}
		return r
	}
	web := at(claiming("web", 1, "a.example.com"), "infra", "public")
	set := func(gateway string) *gatewayv1.ListenerSet {
		return decodeAs[gatewayv1.ListenerSet](t, desiredListenerSet(web, cache.NewObjectName("infra", gateway), web.Spec.Hostnames))
	}
	next := func(r *v1alpha1.ApplicationRoute) *v1alpha1.ApplicationRoute {
		r = r.DeepCopy()
		r.Generation++
		return r
	}
	listenerSets := func(event func(setHandlers)) func(*Controller, enqueue) {
		return func(c *Controller, e enqueue) { event(c.listenerSetHandlers(e)) }
	}
	for name, tc := range map[string]struct {
		reason string
		route  *v1alpha1.ApplicationRoute // as cached; nil: gone
		event  func(*Controller, enqueue)
		want   enqueued
	}{
		"SetAdded": {"its HTTPRoute hangs somewhere now", tls(web.DeepCopy()), listenerSets(func(h setHandlers) {
			h.AddFunc(set("public"), false)
		}), enqueued{own, rival}},
		"SetMoved": {"there it is another hostname", tls(web.DeepCopy()), listenerSets(func(h setHandlers) {
			h.UpdateFunc(set("public"), set("private"))
		}), enqueued{"0 shop/web", rival}},
		"SetReported": {"it hangs where it hung", tls(web.DeepCopy()), listenerSets(func(h setHandlers) {
			h.UpdateFunc(set("public"), set("public"))
		}), enqueued{"0 shop/web"}},
		"SetGone": {"its HTTPRoute hangs nowhere", tls(web.DeepCopy()), listenerSets(func(h setHandlers) {
			h.DeleteFunc(cache.DeletedObject[*gatewayv1.ListenerSet]{OptionalObj: set("public")})
		}), enqueued{own, rival}},
		"HTTPRouteAdded": {"others have to give way to what keeps it", none(web.DeepCopy()), func(c *Controller, e enqueue) {
			c.httpRouteHandlers(e).AddFunc(cached[*gatewayv1.HTTPRoute](c.cfg.HTTPRoutes.Indexer(), nameOf(web)), false)
		}, enqueued{own, rival}},
		"HTTPRouteAddedByOne": {"who has a Gateway does not keep it", web, func(c *Controller, e enqueue) {
			c.httpRouteHandlers(e).AddFunc(cached[*gatewayv1.HTTPRoute](c.cfg.HTTPRoutes.Indexer(), nameOf(web)), false)
		}, enqueued{own}},
		"NamesNone": {"it keeps what it has", none(next(web)), func(c *Controller, e enqueue) {
			before := web.DeepCopy()
			before.Spec.Hostnames = []string{"b.example.com"} // dropped before, and not let go
			c.routeHandlers(e).UpdateFunc(before, none(next(web)))
		}, enqueued{"2 shop/web", rival}},
		"Gone": {"nobody waits for the garbage collector", nil, func(c *Controller, e enqueue) {
			c.routeHandlers(e).DeleteFunc(cache.DeletedObject[*v1alpha1.ApplicationRoute]{OptionalObj: none(web.DeepCopy())})
		}, enqueued{own, rival}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t, at(claiming("rival", 2, "a.example.com"), "infra", "public"))
			c.cfg.DefaultGateway = cache.ObjectName{}
			before := web
			if tc.route != nil {
				if err := c.cfg.ApplicationRoutes.Indexer().Add(tc.route); err != nil {
					t.Fatal(err)
				}
				before = web.DeepCopy()
				before.Spec.TLSSecret = tc.route.Spec.TLSSecret
			}
			rendered(t, c, before)
			var got enqueued
			tc.event(c, got.enqueue)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
