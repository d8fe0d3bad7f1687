package applicationroute

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1ac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"
	gatewayversioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

// What is rendered comes back from a real API server, with the Gateway API's own
// CRDs, as it was sent: a second pass writes nothing.
func TestRoundTrip(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	if err := gateway.Install(t.Context(), cp, gateway.HTTPRoutes, gateway.ListenerSets); err != nil {
		t.Fatal(err)
	}
	client := gatewayversioned.NewForConfigOrDie(cp.Config()).GatewayV1()
	namespace := cp.Namespace(t)

	// long is as long as a hostname may be, by the 16 that there may be.
	var long []string
	for _, c := range "abcdefghijklmnop" {
		long = append(long, string(c)+strings.Repeat("x", 20)+"."+strings.Repeat("a234567890.", 21))
	}
	for n := range long {
		long[n] = strings.TrimSuffix(long[n], ".")
		long[n] += strings.Repeat("z", 253-len(long[n]))
	}
	long[0] = "*." + long[0][2:]
	var backends []v1alpha1.Backend
	for n := range int32(16) {
		backends = append(backends, v1alpha1.Backend{Service: "web", Port: 8080 + n})
	}
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.ApplicationRoute)
	}{
		"all": {"every field set", func(*v1alpha1.ApplicationRoute) {}},
		"least": {"no field that can be left out", func(r *v1alpha1.ApplicationRoute) {
			r.Spec = v1alpha1.ApplicationRouteSpec{Hostnames: []string{"a"}, Backends: []v1alpha1.Backend{{Service: "web", Port: 1}}}
		}},
		"most": {"as many and as long as the schema admits", func(r *v1alpha1.ApplicationRoute) {
			r.Spec.Hostnames, r.Spec.Backends = long, backends
			r.Spec.Timeout.Duration = 23*time.Hour + 59*time.Minute + 59*time.Second + 999*time.Millisecond
			r.Spec.TLSSecret = strings.Repeat("s", 253)
		}},
		"weights": {"both ends", func(r *v1alpha1.ApplicationRoute) {
			r.Spec.Backends[0].Weight, r.Spec.Backends[1].Weight = ptr.To[int32](0), ptr.To[int32](1000000)
			r.Spec.Timeout.Duration = time.Millisecond
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			route := testRoute(tc.change, func(r *v1alpha1.ApplicationRoute) { r.Namespace, r.Name = namespace, name })
			roundTrip(t, tc.reason, route, child.Kind[*gatewayv1.HTTPRoute, *gatewayv1ac.HTTPRouteApplyConfiguration]{
				Name: kindHTTPRoute,
				Client: func(namespace string) child.Client[*gatewayv1.HTTPRoute, *gatewayv1ac.HTTPRouteApplyConfiguration] {
					return client.HTTPRoutes(namespace)
				},
			}, func() *gatewayv1ac.HTTPRouteApplyConfiguration {
				return desiredHTTPRoute(route, testGateway, route.Spec.Hostnames)
			})
			if route.Spec.TLSSecret == "" {
				return
			}
			roundTrip(t, tc.reason, route, child.Kind[*gatewayv1.ListenerSet, *gatewayv1ac.ListenerSetApplyConfiguration]{
				Name: kindListenerSet, Lists: listKeys,
				Client: func(namespace string) child.Client[*gatewayv1.ListenerSet, *gatewayv1ac.ListenerSetApplyConfiguration] {
					return client.ListenerSets(namespace)
				},
			}, func() *gatewayv1ac.ListenerSetApplyConfiguration {
				return desiredListenerSet(route, testGateway, route.Spec.Hostnames)
			})
		})
	}

	t.Run("a listener of somebody else's stays and is no difference", func(t *testing.T) {
		sets := client.ListenerSets(namespace)
		theirs := gatewayv1ac.ListenerSet("all", namespace).WithSpec(gatewayv1ac.ListenerSetSpec().
			WithListeners(gatewayv1ac.ListenerEntry().WithName("theirs").WithPort(80).WithProtocol(gatewayv1.HTTPProtocolType)))
		live, err := sets.Apply(t.Context(), theirs, metav1.ApplyOptions{FieldManager: "other"})
		if err != nil || len(live.Spec.Listeners) != 3 {
			t.Fatalf("add a listener: %v, %d listeners; want 3", err, len(live.Spec.Listeners))
		}
		route := testRoute(func(r *v1alpha1.ApplicationRoute) { r.Namespace, r.Name = namespace, "all" })
		writes := 0
		kind := child.Kind[*gatewayv1.ListenerSet, *gatewayv1ac.ListenerSetApplyConfiguration]{Name: kindListenerSet, Lists: listKeys,
			Client: func(string) child.Client[*gatewayv1.ListenerSet, *gatewayv1ac.ListenerSetApplyConfiguration] {
				return sets
			}}
		if _, err := child.Ensure(t.Context(), testApplier(&writes), kind, route, live, desiredListenerSet(route, testGateway, route.Spec.Hostnames), nil); err != nil || writes != 0 {
			t.Errorf("a pass: %v, %d writes; want none", err, writes)
		}
		// One of ours goes, theirs stays.
		after, err := child.Ensure(t.Context(), testApplier(&writes), kind, route, live, desiredListenerSet(route, testGateway, route.Spec.Hostnames[1:]), nil)
		if err != nil || writes != 1 || len(after.Spec.Listeners) != 2 {
			t.Errorf("a hostname is lost: %v, %d writes, %d listeners; want 1 and 2", err, writes, len(after.Spec.Listeners))
		}
	})

	t.Run("what cannot be said is refused by name", func(t *testing.T) {
		route := testRoute(func(r *v1alpha1.ApplicationRoute) {
			r.Namespace, r.Name, r.Spec.Timeout.Duration = namespace, "fraction", 1500*time.Microsecond
		})
		_, err := client.HTTPRoutes(namespace).Apply(t.Context(), desiredHTTPRoute(route, testGateway, route.Spec.Hostnames), metav1.ApplyOptions{FieldManager: "test"})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "timeouts.request") || !strings.Contains(err.Error(), "1.5ms") {
			t.Errorf("a timeout of 1.5ms: got %v, want 422 that names timeouts.request and 1.5ms", err)
		}
	})
}

// testApplier counts writes.
func testApplier(writes *int) *child.Applier {
	return &child.Applier{FieldManager: "steadwatch-applicationroute", Annotation: "networking.tejo.dev/applied-hash",
		Owner: v1alpha1.SchemeGroupVersion.WithKind(kind).GroupKind(),
		Wrote: func(context.Context, metav1.Object, schema.GroupVersionResource, metav1.Object) { *writes++ }}
}

// roundTrip applies a child, reads it, and demands that it is as it was sent and is
// not applied again.
func roundTrip[T child.Object, A child.Configuration[A]](t *testing.T, reason string, route *v1alpha1.ApplicationRoute,
	kind child.Kind[T, A], desired func() A) {
	t.Helper()
	writes := 0
	applier := testApplier(&writes)
	var none T
	if _, err := child.Ensure(t.Context(), applier, kind, route, none, desired(), nil); err != nil {
		t.Fatalf("%s: %v", reason, err)
	}
	live, err := kind.Client(route.Namespace).Get(t.Context(), route.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type withSpec struct{ Spec any }
	sent, back := decodeAs[withSpec](t, desired()), decodeAs[withSpec](t, live)
	if diff := cmp.Diff(sent.Spec, back.Spec); diff != "" {
		t.Errorf("%s: the API server has filled in or changed something (-sent +stored):\n%s", reason, diff)
	}
	again, err := child.Ensure(t.Context(), applier, kind, route, live, desired(), nil)
	if err != nil || writes != 1 || again.GetResourceVersion() != live.GetResourceVersion() {
		t.Errorf("%s: a second pass: %v, %d writes, resourceVersion %s; want 1 and %s", reason, err, writes, again.GetResourceVersion(), live.GetResourceVersion())
	}
	// Whoever writes first to a ListenerSet that has been created makes the API server
	// store the defaults of its status. The write after that must change nothing.
	apply := func() T {
		applied, err := kind.Client(route.Namespace).Apply(t.Context(), desired().WithUID(live.GetUID()).WithAnnotations(live.GetAnnotations()),
			metav1.ApplyOptions{FieldManager: applier.FieldManager, Force: true})
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}
	first, second := apply(), apply()
	if second.GetResourceVersion() != first.GetResourceVersion() || second.GetGeneration() != live.GetGeneration() {
		t.Errorf("%s: applied all the same: resourceVersion %s, then %s, generation %d; want the same, %d", reason,
			first.GetResourceVersion(), second.GetResourceVersion(), second.GetGeneration(), live.GetGeneration())
	}
}
