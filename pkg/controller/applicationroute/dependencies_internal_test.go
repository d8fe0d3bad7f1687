package applicationroute

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

func testService(name string, ports ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid", ResourceVersion: "1"}}
	for _, port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: port})
	}
	return s
}

func TestMissingServices(t *testing.T) {
	cases := map[string]struct {
		reason   string
		services []runtime.Object
		backends []v1alpha1.Backend
		want     []dependency
	}{
		"Found": {"", []runtime.Object{testService("a", 80), testService("b", 8080, 443)}, []v1alpha1.Backend{{Service: "a", Port: 80}, {Service: "b", Port: 443}}, nil},
		"Service": {"once, however many of its ports are wanted", nil, []v1alpha1.Backend{{Service: "a", Port: 80}, {Service: "a", Port: 81}},
			[]dependency{{reasonServiceMissing, `Service "a" does not exist in namespace "shop"`}}},
		"Port": {"it has others", []runtime.Object{testService("a", 8080, 443)}, []v1alpha1.Backend{{Service: "a", Port: 80}},
			[]dependency{{reasonPortMissing, `Service "a" has no port 80: it has 8080, 443`}}},
		"NoPorts": {"as a headless one may be", []runtime.Object{testService("a")}, []v1alpha1.Backend{{Service: "a", Port: 80}},
			[]dependency{{reasonPortMissing, `Service "a" has no port 80: it has none`}}},
		"All": {"in the order of the spec", []runtime.Object{testService("b", 1)}, []v1alpha1.Backend{{Service: "b", Port: 2}, {Service: "a", Port: 80}},
			[]dependency{{reasonPortMissing, `Service "b" has no port 2: it has 1`}, {reasonServiceMissing, `Service "a" does not exist in namespace "shop"`}}},
		"OtherNamespace": {"only the route's own counts", []runtime.Object{func() *corev1.Service { s := testService("a", 80); s.Namespace = "other"; return s }()}, []v1alpha1.Backend{{Service: "a", Port: 80}},
			[]dependency{{reasonServiceMissing, `Service "a" does not exist in namespace "shop"`}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := newTestController(t, tc.services...).missingServices(testRoute(func(r *v1alpha1.ApplicationRoute) { r.Spec.Backends = tc.backends }))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(dependency{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReadGateway(t *testing.T) {
	accepted := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue}
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "public"}, Status: gatewayv1.GatewayStatus{Conditions: []metav1.Condition{accepted}}}
	deleted := gateway.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	cases := map[string]struct {
		reason  string
		objects []runtime.Object
		state   informer.Snapshot
		want    gatewayState
	}{
		"Known":    {"", []runtime.Object{gateway}, informer.Snapshot{State: informer.StateHearing}, gatewayState{known: true, conditions: []metav1.Condition{accepted}}},
		"Missing":  {"looked for, and not there", nil, informer.Snapshot{State: informer.StateHearing}, gatewayState{missing: true}},
		"Deleting": {"it still works", []runtime.Object{deleted}, informer.Snapshot{State: informer.StateHearing}, gatewayState{known: true, conditions: []metav1.Condition{accepted}, note: "Gateway infra/public is being deleted"}},
		"Forbidden": {"not known is not missing", nil, informer.Snapshot{State: informer.StateUnlistable, Reason: informer.Forbidden},
			gatewayState{note: "Gateway infra/public has not been looked at: Gateway of gateway.networking.k8s.io/v1 must not be read: grant get, list and watch on gateways.gateway.networking.k8s.io in all namespaces (ClusterRole) to the controller's ServiceAccount"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t, tc.objects...)
			c.gatewaysKind.source.(*fakeSource).snapshot = tc.state
			got, err := c.readGateway(testGateway)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(gatewayState{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGatewayOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		gateway *v1alpha1.GatewayReference
		want    string
	}{
		"Named":   {"in its namespace", &v1alpha1.GatewayReference{Namespace: "edge", Name: "x"}, "edge/x"},
		"Own":     {"no namespace is the route's own", &v1alpha1.GatewayReference{Name: "x"}, "shop/x"},
		"Default": {"none is named", nil, "infra/public"},
	} {
		t.Run(name, func(t *testing.T) {
			route := testRoute(func(r *v1alpha1.ApplicationRoute) { r.Spec.Gateway = tc.gateway })
			if got, ok := gatewayOf(route, testGateway); !ok || got.String() != tc.want {
				t.Errorf("%s: got %s, %t, want %s", tc.reason, got, ok, tc.want)
			}
		})
	}
}

func TestMissingSecret(t *testing.T) {
	secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-tls", UID: "u", ResourceVersion: "5"}}
	hearing := informer.Snapshot{State: informer.StateHearing}
	missing := &dependency{reasonSecretMissing, `Secret "web-tls" does not exist in namespace "shop"`}
	cases := map[string]struct {
		reason    string
		objects   []runtime.Object
		answer    string
		code      int
		state     informer.Snapshot
		set       func(*Controller, *v1alpha1.ApplicationRoute)
		want      *dependency
		unchecked string
		fails     bool
	}{
		"NoTLS":   {"nothing to look at", nil, "", 0, hearing, func(_ *Controller, r *v1alpha1.ApplicationRoute) { r.Spec.TLSSecret = "" }, nil, "", false},
		"Found":   {"", []runtime.Object{secret}, row("kubernetes.io/tls", "5"), 200, hearing, nil, nil, "", false},
		"Missing": {"", nil, "", 0, hearing, nil, missing, "", false},
		"Type": {"its data is nobody's business, its type is", []runtime.Object{secret}, row("Opaque", "5"), 200, hearing, nil,
			&dependency{reasonSecretWrongType, `Secret "web-tls" is of type "Opaque": it has to be of type "kubernetes.io/tls"`}, "", false},
		"GoneNow": {"between the cache and the look at its type", []runtime.Object{secret}, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, 404, hearing, nil, missing, "", false},
		"NoGet": {"listed, but not to be read", []runtime.Object{secret}, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`, 403, hearing, nil, nil,
			`Secret "web-tls" has not been looked at: no`, false},
		"Fails": {"an error is no answer", []runtime.Object{secret}, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Internal error occurred: no","reason":"InternalError","code":500}`, 500, hearing, nil, nil,
			`Secret "web-tls" has not been looked at: Internal error occurred: no`, true},
		"NotAsked": {"without the flag nothing is read", []runtime.Object{secret}, "", 0, hearing, func(c *Controller, _ *v1alpha1.ApplicationRoute) { c.cfg.Secrets = nil }, nil,
			`Secret "web-tls" has not been looked at: this controller may not read Secrets; to have it check them add the component tls-secrets to its manifests (--tls-secrets)`, false},
		"Forbidden": {"the flag without the rule", nil, "", 0, informer.Snapshot{State: informer.StateUnlistable, Reason: informer.Forbidden}, nil, nil,
			`Secret "web-tls" has not been looked at: Secret of v1 must not be read: grant get, list and watch on secrets in all namespaces (ClusterRole) to the controller's ServiceAccount`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t, tc.objects...)
			c.secretsKind.source.(*fakeSource).snapshot = tc.state
			c.secretTypes = newTestSecretTypes(t, &answers{status: tc.code, body: tc.answer})
			route := testRoute()
			if tc.set != nil {
				tc.set(c, route)
			}
			got, unchecked, err := c.missingSecret(t.Context(), route)
			if (err != nil) != tc.fails {
				t.Fatalf("%s: error %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(dependency{})); diff != "" || unchecked != tc.unchecked {
				t.Errorf("%s: unchecked %q, want %q (-want +got):\n%s", tc.reason, unchecked, tc.unchecked, diff)
			}
		})
	}
}
