package applicationroute

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

type routeHandlers = cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.ApplicationRoute]

func TestRouteLanes(t *testing.T) {
	const background, normal, urgent = "0 shop/web", "1 shop/web", "2 shop/web"
	route := claiming("web", 1, "shop.example.com")
	update := func(change func(*v1alpha1.ApplicationRoute)) func(routeHandlers) {
		return func(h routeHandlers) {
			changed := route.DeepCopy()
			change(changed)
			h.UpdateFunc(route, changed)
		}
	}
	cases := map[string]struct {
		reason string
		event  func(routeHandlers)
		want   enqueued
	}{
		"Initial": {"what was there before can wait, and so can every rival: all are added", func(h routeHandlers) { h.AddFunc(claiming("a", 0, "shop.example.com"), true) }, enqueued{"0 shop/a"}},
		"New":     {"somebody waits for it", func(h routeHandlers) { h.AddFunc(route, false) }, enqueued{urgent}},
		"Rival":   {"an older one takes a hostname", func(h routeHandlers) { h.AddFunc(claiming("a", 0, "shop.example.com"), false) }, enqueued{"2 shop/a", normal}},
		"Relist":  {"nothing has changed", update(func(*v1alpha1.ApplicationRoute) {}), enqueued{background}},
		"Status":  {"most likely our own", update(func(r *v1alpha1.ApplicationRoute) { r.ResourceVersion = "2" }), enqueued{normal}},
		"Spec":    {"a change of the spec", update(func(r *v1alpha1.ApplicationRoute) { r.ResourceVersion, r.Generation = "2", 2 }), enqueued{urgent}},
		"Gone": {"a tombstone without an object", func(h routeHandlers) {
			h.DeleteFunc(cache.DeletedObject[*v1alpha1.ApplicationRoute]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "shop/web"}})
		}, enqueued{normal}},
		"Deleted": {"a rival is next", func(h routeHandlers) {
			h.DeleteFunc(cache.DeletedObject[*v1alpha1.ApplicationRoute]{OptionalObj: claiming("a", 0, "shop.example.com")})
		}, enqueued{"1 shop/a", normal}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got enqueued
			tc.event(newTestController(t, route).routeHandlers(got.enqueue))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIndexes(t *testing.T) {
	route := testRoute(func(r *v1alpha1.ApplicationRoute) {
		r.Spec.Backends = append(r.Spec.Backends, v1alpha1.Backend{Service: "web", Port: 9090})
		r.Spec.Gateway = nil
	})
	want := map[string][]string{
		indexService: {"shop/web", "shop/web-canary"}, indexSecret: {"shop/web-tls"}, indexGateway: {"infra/public"},
		indexHostname: {"shop.example.com", "*.shop.example.com"},
	}
	got := map[string][]string{}
	for name, index := range Indexers(testGateway) {
		values, err := index(route)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = values
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, index := range Indexers(cache.ObjectName{}) {
		bare := testRoute(withoutTLS, func(r *v1alpha1.ApplicationRoute) { r.Spec.Gateway = nil })
		if values, err := index(bare); err != nil || (name == indexSecret || name == indexGateway) && len(values) > 0 {
			t.Errorf("index %s of a route that names neither Secret nor Gateway: %q, %v", name, values, err)
		}
	}
}

func TestServiceWakesForWhatMatters(t *testing.T) {
	old := testService("web", 80, 443)
	cases := map[string]struct {
		reason string
		change func(*corev1.Service)
		want   enqueued
	}{
		"Status": {"an address of a load balancer", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}
		}, nil},
		"Labels": {"not ours to read", func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} }, nil},
		"Target": {"where the port leads", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort.IntVal = 8080 }, nil},
		"Relist": {"nothing has changed", func(*corev1.Service) {}, nil},
		"Port":   {"a port that may be wanted", func(s *corev1.Service) { s.Spec.Ports[1].Port = 444 }, enqueued{"1 shop/web"}},
		"Fewer":  {"a port that has gone", func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }, enqueued{"1 shop/web"}},
		"UID":    {"another Service of that name", func(s *corev1.Service) { s.UID = "other" }, enqueued{"1 shop/web"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t, claiming("web", 1, "a.example.com"))
			changed := old.DeepCopy()
			changed.ResourceVersion = "2"
			tc.change(changed)
			var got enqueued
			c.serviceHandlers(got.enqueue).UpdateFunc(old, changed)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	var got enqueued
	h := newTestController(t, claiming("web", 1, "a.example.com")).serviceHandlers(got.enqueue)
	h.AddFunc(old, false)
	h.AddFunc(testService("unused", 80), false)
	h.DeleteFunc(cache.DeletedObject[*corev1.Service]{OptionalObj: old})
	if diff := cmp.Diff(enqueued{"1 shop/web", "1 shop/web"}, got); diff != "" {
		t.Errorf("added and deleted (-want +got):\n%s", diff)
	}
}

// The HTTPRoute of a route that is frozen says what that one holds; any other one what
// there is to be waited for.
func TestHTTPRouteWakesRivals(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		frozen bool
		change func(*gatewayv1.HTTPRoute)
		want   enqueued
	}{
		"Hostnames": {"somebody has changed what it has", true, func(r *gatewayv1.HTTPRoute) { r.Generation, r.Spec.Hostnames = 2, nil }, enqueued{"1 shop/frozen", "1 shop/rival"}},
		"Status":    {"a gateway reports", true, func(*gatewayv1.HTTPRoute) {}, enqueued{"1 shop/frozen"}},
		"NotFrozen": {"it may have been when the hostname was claimed", false, func(r *gatewayv1.HTTPRoute) { r.Generation, r.Spec.Hostnames = 2, nil }, enqueued{"1 shop/frozen", "1 shop/rival"}},
		"Moved":     {"a hostname of another Gateway is another one", false, func(r *gatewayv1.HTTPRoute) { r.Generation, r.Spec.ParentRefs = 2, nil }, enqueued{"1 shop/frozen", "1 shop/rival"}},
		"Same":      {"nothing is let go", false, func(r *gatewayv1.HTTPRoute) { r.Generation, r.Spec.Rules = 2, nil }, enqueued{"1 shop/frozen"}},
		"More": {"somebody gives it what another has", true, func(r *gatewayv1.HTTPRoute) {
			r.Generation, r.Spec.Hostnames = 2, []gatewayv1.Hostname{"a.example.com", "b.example.com"}
		}, enqueued{"1 shop/frozen", "1 shop/rival", "1 shop/other"}},
		"Adopted": {"its own pass sees to that", false, func(r *gatewayv1.HTTPRoute) {
			r.Generation, r.Spec.Hostnames = 2, []gatewayv1.Hostname{"a.example.com", "b.example.com"}
		}, enqueued{"1 shop/frozen"}},
		"Orphaned": {"by --cascade=orphan, which changes no generation", false, func(r *gatewayv1.HTTPRoute) { r.OwnerReferences = nil }, enqueued{"1 shop/frozen", "1 shop/rival"}},
	} {
		t.Run(name, func(t *testing.T) {
			frozen := claiming("frozen", 1, "a.example.com")
			c := newTestController(t, frozen, claiming("rival", 2, "a.example.com"), claiming("other", 3, "b.example.com"))
			old := rendered(t, c, frozen)
			if tc.frozen {
				freeze(t, c, frozen, false)
			}
			old.Generation, old.ResourceVersion = 1, "1"
			changed := old.DeepCopy()
			changed.ResourceVersion = "2"
			tc.change(changed)
			var got enqueued
			c.httpRouteHandlers(got.enqueue).UpdateFunc(old, changed)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestChildWakesItsRoute(t *testing.T) {
	owned := func(uid types.UID, owner string) *gatewayv1.ListenerSet {
		return &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "networking.tejo.dev/v1alpha1", Kind: kind, Name: owner, UID: uid, Controller: ptr.To(true)}}}}
	}
	c := newTestController(t, claiming("web", 1, "a.example.com"))
	for name, tc := range map[string]struct {
		reason string
		child  *gatewayv1.ListenerSet
		want   []string
	}{
		"Own":      {"by controller owner", owned("uid of web", "web"), []string{"shop/web"}},
		"InTheWay": {"in our child's place", &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, []string{"shop/web"}},
		"Nobodys":  {"no route has that name", &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, key := range c.owners().Of(tc.child) {
				got = append(got, key.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	if _, err := New(Config{}); err == nil || err.Error() != "applicationroute controller: Config.Kube is nil: it is required" {
		t.Errorf("got %v", err)
	}
	cfg := newTestController(t).cfg
	cfg.ApplicationRoutes = copyOf[*v1alpha1.ApplicationRoute](t, routesResource, nil)
	if _, err := New(cfg); err == nil {
		t.Error("an informer without the indexes was accepted")
	}
	cfg = newTestController(t).cfg
	cfg.HTTPRoutes = copyOf[*gatewayv1.HTTPRoute](t, httpRoutesResource, nil)
	if _, err := New(cfg); err == nil {
		t.Error("an informer of HTTPRoutes without the index was accepted")
	}
}
