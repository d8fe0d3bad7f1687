package applicationroute

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

var testGateway = cache.NewObjectName("infra", "public")

// testRoute has every field set.
func testRoute(change ...func(*v1alpha1.ApplicationRoute)) *v1alpha1.ApplicationRoute {
	route := &v1alpha1.ApplicationRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1", Generation: 3},
		Spec: v1alpha1.ApplicationRouteSpec{
			Hostnames: []string{"shop.example.com", "*.shop.example.com"},
			Backends: []v1alpha1.Backend{
				{Service: "web", Port: 8080, Weight: ptr.To[int32](90)},
				{Service: "web-canary", Port: 8081, Weight: ptr.To[int32](10)},
			},
			TLSSecret: "web-tls",
			Timeout:   &metav1.Duration{Duration: 90 * time.Second},
			Gateway:   &v1alpha1.GatewayReference{Namespace: "infra", Name: "public"},
		},
	}
	for _, f := range change {
		f(route)
	}
	return route
}

func withoutTLS(r *v1alpha1.ApplicationRoute) { r.Spec.TLSSecret = "" }

// decodeAs is the object that an apply configuration describes.
func decodeAs[T any](t testing.TB, config any) *T {
	t.Helper()
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	object := new(T)
	if err := json.Unmarshal(data, object); err != nil {
		t.Fatal(err)
	}
	return object
}

func childMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web",
		Labels: map[string]string{"app.kubernetes.io/managed-by": "steadwatch"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "networking.tejo.dev/v1alpha1", Kind: "ApplicationRoute", Name: "web", UID: "uid-1",
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}}}
}

func TestDesiredHTTPRoute(t *testing.T) {
	backend := func(name string, port, weight int32) gatewayv1.HTTPBackendRef {
		return gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{
				Group: ptr.To[gatewayv1.Group](""), Kind: ptr.To[gatewayv1.Kind]("Service"),
				Name: gatewayv1.ObjectName(name), Port: ptr.To(port)},
			Weight: ptr.To(weight)}}
	}
	want := func(change func(*gatewayv1.HTTPRouteSpec)) *gatewayv1.HTTPRoute {
		r := &gatewayv1.HTTPRoute{
			TypeMeta:   metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1", Kind: "HTTPRoute"},
			ObjectMeta: childMeta(),
			Spec: gatewayv1.HTTPRouteSpec{
				CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
					Group: ptr.To[gatewayv1.Group]("gateway.networking.k8s.io"), Kind: ptr.To[gatewayv1.Kind]("ListenerSet"),
					Namespace: ptr.To[gatewayv1.Namespace]("shop"), Name: "web"}}},
				Hostnames: []gatewayv1.Hostname{"shop.example.com", "*.shop.example.com"},
				Rules: []gatewayv1.HTTPRouteRule{{
					Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{
						Type: ptr.To(gatewayv1.PathMatchPathPrefix), Value: ptr.To("/")}}},
					BackendRefs: []gatewayv1.HTTPBackendRef{backend("web", 8080, 90), backend("web-canary", 8081, 10)},
					Timeouts:    &gatewayv1.HTTPRouteTimeouts{Request: ptr.To[gatewayv1.Duration]("1m30s")},
				}},
			},
		}
		change(&r.Spec)
		return r
	}
	cases := map[string]struct {
		reason    string
		route     *v1alpha1.ApplicationRoute
		hostnames []string
		want      *gatewayv1.HTTPRoute
	}{
		"All": {"every field of the spec shows, and the ListenerSet alone is the parent", testRoute(), []string{"shop.example.com", "*.shop.example.com"},
			want(func(*gatewayv1.HTTPRouteSpec) {})},
		"NoTLS": {"the Gateway is the parent", testRoute(withoutTLS), []string{"shop.example.com", "*.shop.example.com"}, want(func(s *gatewayv1.HTTPRouteSpec) {
			s.ParentRefs[0].Kind, s.ParentRefs[0].Namespace, s.ParentRefs[0].Name = ptr.To[gatewayv1.Kind]("Gateway"), ptr.To[gatewayv1.Namespace]("infra"), "public"
		})},
		"OneHeld": {"what another holds is not rendered", testRoute(), []string{"*.shop.example.com"}, want(func(s *gatewayv1.HTTPRouteSpec) {
			s.Hostnames = s.Hostnames[1:]
		})},
		"NoTimeout": {"left out: the gateway's own default", testRoute(func(r *v1alpha1.ApplicationRoute) { r.Spec.Timeout = nil }),
			[]string{"shop.example.com", "*.shop.example.com"}, want(func(s *gatewayv1.HTTPRouteSpec) { s.Rules[0].Timeouts = nil })},
		"Weights": {"no weight is 1, and 0 is a number", testRoute(func(r *v1alpha1.ApplicationRoute) {
			r.Spec.Backends[0].Weight, r.Spec.Backends[1].Weight = nil, ptr.To[int32](0)
		}), []string{"shop.example.com", "*.shop.example.com"}, want(func(s *gatewayv1.HTTPRouteSpec) {
			s.Rules[0].BackendRefs = []gatewayv1.HTTPBackendRef{backend("web", 8080, 1), backend("web-canary", 8081, 0)}
		})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decodeAs[gatewayv1.HTTPRoute](t, desiredHTTPRoute(tc.route, testGateway, tc.hostnames))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDesiredListenerSet(t *testing.T) {
	listener := func(name, hostname string) gatewayv1.ListenerEntry {
		return gatewayv1.ListenerEntry{
			Name: gatewayv1.SectionName(name), Hostname: ptr.To(gatewayv1.Hostname(hostname)), Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
			TLS: &gatewayv1.ListenerTLSConfig{Mode: ptr.To(gatewayv1.TLSModeTerminate), CertificateRefs: []gatewayv1.SecretObjectReference{{
				Group: ptr.To[gatewayv1.Group](""), Kind: ptr.To[gatewayv1.Kind]("Secret"), Name: "web-tls"}}},
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromSame)}},
		}
	}
	want := &gatewayv1.ListenerSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1", Kind: "ListenerSet"},
		ObjectMeta: childMeta(),
		Spec: gatewayv1.ListenerSetSpec{
			ParentRef: gatewayv1.ParentGatewayReference{
				Group: ptr.To[gatewayv1.Group]("gateway.networking.k8s.io"), Kind: ptr.To[gatewayv1.Kind]("Gateway"),
				Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: "public"},
			Listeners: []gatewayv1.ListenerEntry{
				listener("exact.shop.example.com", "shop.example.com"),
				listener("wildcard.shop.example.com", "*.shop.example.com"),
			},
		},
	}
	route := testRoute()
	if diff := cmp.Diff(want, decodeAs[gatewayv1.ListenerSet](t, desiredListenerSet(route, testGateway, route.Spec.Hostnames))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Spec.Listeners = want.Spec.Listeners[1:]
	if diff := cmp.Diff(want, decodeAs[gatewayv1.ListenerSet](t, desiredListenerSet(route, testGateway, route.Spec.Hostnames[1:]))); diff != "" {
		t.Errorf("a listener changes with the others of the list (-want +got):\n%s", diff)
	}
}

// sectionName is the pattern of the Gateway API's CRDs.
var sectionName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func TestListenerName(t *testing.T) {
	long := strings.Repeat("a234567890.", 22) + "a234567890x" // 253
	hyphens := "b" + strings.Repeat("-", 251) + "b"
	cases := map[string]struct{ reason, hostname, want string }{
		"Exact":        {"the hostname can be read in it", "shop.example.com", "exact.shop.example.com"},
		"Wildcard":     {"no * in a name", "*.shop.example.com", "wildcard.shop.example.com"},
		"Lookalike":    {"a hostname that begins as the name of another", "wildcard.shop.example.com", "exact.wildcard.shop.example.com"},
		"Limit":        {"as long as may be", long[6:], "exact." + long[6:]},
		"OverLimit":    {"one character more", long[5:], ""},
		"Long":         {"253 characters", long, ""},
		"LongWildcard": {"253 characters with the *", "*." + long[2:], ""},
		"LongOther":    {"different at the end that is cut off", "b" + long[1:], ""},
		"Hyphens":      {"a cut in the middle of a label", hyphens, ""},
		"LongTail":     {"the name of one that was cut, as a hostname", string(listenerName(long)), ""},
	}
	seen := map[gatewayv1.SectionName]string{}
	for name, tc := range cases {
		got := listenerName(tc.hostname)
		if len(tc.hostname)+len("exact.") <= maxListenerName && string(got) != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
		if len(got) > maxListenerName || !sectionName.MatchString(string(got)) {
			t.Errorf("%s: %s: %q (%d characters) is no SectionName", name, tc.reason, got, len(got))
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s: %s: %q and %q have the same name", name, tc.reason, other, tc.hostname)
		}
		seen[got] = tc.hostname
		if again := listenerName(tc.hostname); again != got {
			t.Errorf("%s: %s: first %s, then %s", name, tc.reason, got, again)
		}
	}
}

// gep2257 is what the Gateway API's CRDs demand; each unit once is GEP-2257's.
var gep2257 = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

func TestDuration(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     time.Duration
		want   gatewayv1.Duration
		valid  bool
	}{
		"Millisecond":  {"the shortest that the schema admits", time.Millisecond, "1ms", true},
		"Day":          {"the longest", 24 * time.Hour, "24h", true},
		"Mixed":        {"every unit once", time.Hour + 2*time.Minute + 3*time.Second + 4*time.Millisecond, "1h2m3s4ms", true},
		"NoZeros":      {"a unit that is 0 is left out", time.Hour + 5*time.Millisecond, "1h5ms", true},
		"Fraction":     {"Go would write 1.5s", 1500 * time.Millisecond, "1s500ms", true},
		"Zero":         {"0 switches a gateway's timeout off", 0, "0s", true},
		"FiveDigits":   {"the most hours that can be said", 99999*time.Hour + time.Millisecond, "99999h1ms", true},
		"SixDigits":    {"refused by the server rather than cut", 100000 * time.Hour, "100000h0m0s", false},
		"Microseconds": {"refused rather than rounded", 1500 * time.Microsecond, "1.5ms", false},
		"Negative":     {"refused", -time.Second, "-1s", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := duration(tc.in)
			if got != tc.want || gep2257.MatchString(string(got)) != tc.valid {
				t.Errorf("%s: got %s, want %s, valid %t", tc.reason, got, tc.want, tc.valid)
			}
		})
	}
}

// Every whole number of milliseconds up to 24h with STEADWATCH_LONG=1; otherwise
// those next to a change of unit, and a sample of all others.
func TestDurationRoundTrip(t *testing.T) {
	const last = 24 * time.Hour
	check := func(d time.Duration) {
		text := string(duration(d))
		if back, err := time.ParseDuration(text); err != nil || back != d {
			t.Fatalf("%s is rendered as %q, which is %s (%v)", d, text, back, err)
		}
	}
	for edge := time.Duration(0); edge < last; edge += time.Minute {
		for d := max(edge-2*time.Millisecond, time.Millisecond); d <= edge+2*time.Millisecond; d += time.Millisecond {
			check(d)
			if text := string(duration(d)); !gep2257.MatchString(text) {
				t.Fatalf("%s: %q is no duration of GEP-2257", d, text)
			}
		}
	}
	step := 997 * time.Millisecond // a prime
	if os.Getenv("STEADWATCH_LONG") != "" {
		step = time.Millisecond
	}
	for d := time.Millisecond; d <= last; d += step {
		check(d)
	}
	check(last)
}
