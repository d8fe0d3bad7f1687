package applicationroute_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// A route that names no Gateway any more goes on serving what it served, and is the only
// one that does, until it names one again or is deleted.
func TestRouteWithoutGatewayKeepsItsHostname(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{})
	w.route("a", "shop.example.com")
	before := w.httpRoute("a", "rendered", exists)
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Gateway = nil })
	w.condition("a", v1alpha1.ConditionReady, "False NoGateway")

	w.route("b", "shop.example.com")
	w.condition("b", v1alpha1.ConditionDegraded, "True HostnameConflict")
	p.idle(t)
	w.noHTTPRoute("b")
	if now := w.httpRoute("a", "still there", exists); now.UID != before.UID || now.Generation != before.Generation {
		t.Errorf("it was written to: generation %d of %s, now %d of %s", before.Generation, before.UID, now.Generation, now.UID)
	}

	// It moves: b has the hostname where it was.
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Gateway = &v1alpha1.GatewayReference{Name: "private"} })
	w.httpRoute("b", "taken over", serves("shop.example.com"))
	w.condition("a", v1alpha1.ConditionDegraded, "True GatewayMissing")
	w.change("b", func(r *v1alpha1.ApplicationRoute) { r.Spec.Gateway = nil })
	w.condition("b", v1alpha1.ConditionReady, "False NoGateway")
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Gateway = &v1alpha1.GatewayReference{Name: "public"} })
	w.condition("a", v1alpha1.ConditionDegraded, "True HostnameConflict")
	w.noHTTPRoute("a")
	if err := w.routes.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("a", "back", serves("shop.example.com"))
}

// An admission policy refuses what would let go of a hostname: the next in line waits,
// also where the HTTPRoute hangs on a ListenerSet.
func TestRefusedRouteKeepsItsHostname(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{})
	w.route("a", "shop.example.com")
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.TLSSecret = "shop-tls" })
	w.httpRoute("a", "on the ListenerSet", hangsOn("ListenerSet"))
	p.idle(t)
	// A quantity that the schema of HTTPRoutes refuses and that of routes does not: see
	// duration.
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"a.example.com"} })
	w.httpRoute("a", "given up", serves("a.example.com"))
	w.corruptObject("applicationroutes", "a", func(o map[string]any) bool {
		spec := o["spec"].(map[string]any)
		if spec["timeout"] == "100000h1ns" {
			return false
		}
		spec["timeout"], spec["hostnames"] = "100000h1ns", []any{"b.example.com"}
		metadata := o["metadata"].(map[string]any)
		metadata["generation"] = metadata["generation"].(float64) + 1
		return true
	})
	w.condition("a", v1alpha1.ConditionDegraded, "True Invalid")

	w.route("b", "a.example.com")
	w.condition("b", v1alpha1.ConditionProgressing, "True HostnameConflict")
	p.idle(t)
	w.noHTTPRoute("b")
	if _, err := w.routes.NetworkingV1alpha1().RESTClient().Patch("application/merge-patch+json").Namespace(w.namespace).Resource("applicationroutes").Name("a").
		Body([]byte(`{"spec":{"timeout":null}}`)).DoRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("a", "let go", serves("b.example.com"))
	w.httpRoute("b", "taken over", serves("a.example.com"))
}

// Two routes want each other's hostname: both get it.
func TestHostnamesAreSwapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{})
	w.route("a", "a.example.com")
	w.route("b", "b.example.com")
	w.httpRoute("a", "rendered", exists)
	w.httpRoute("b", "rendered", exists)
	p.idle(t)
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"b.example.com"} })
	w.change("b", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"a.example.com"} })
	w.httpRoute("a", "swapped", serves("b.example.com"))
	w.httpRoute("b", "swapped", serves("a.example.com"))
}
