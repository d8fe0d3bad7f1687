package applicationroute_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
)

// What another manager changes in a field of ours is set back by one write, and what it
// adds stays.
func TestDriftIsSetBackOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{})
	w.route("shop", "shop.example.com")
	before := w.httpRoute("shop", "rendered", exists)
	p.idle(t)
	p.requests.forget()
	if _, err := w.gateway.GatewayV1().HTTPRoutes(w.namespace).Patch(t.Context(), "shop", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"team":"checkout"}},"spec":{"hostnames":["evil.example.com"]}}`), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("shop", "set back", func(r *gatewayv1.HTTPRoute) bool {
		return r.Generation > before.Generation && serves("shop.example.com")(r)
	})
	p.idle(t)
	if diff := cmp.Diff([]string{"PATCH httproutes/shop"}, toChildren(p.requests.written())); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if now := w.httpRoute("shop", "still there", exists); now.Labels["team"] != "checkout" || now.UID != before.UID {
		t.Errorf("labels %v of %s, want the other manager's kept on %s", now.Labels, now.UID, before.UID)
	}
}

// An HTTPRoute that stands in our child's place is neither touched nor asked for again
// and again; when it goes, ours is made.
func TestForeignChildIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	client := w.gateway.GatewayV1().HTTPRoutes(w.namespace)
	foreign, err := client.Create(t.Context(), &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := w.start(options{})
	w.route("shop", "shop.example.com")
	w.condition("shop", v1alpha1.ConditionDegraded, "True ChildNotOwned")
	p.idle(t)
	p.requests.forget()
	p.idle(t)
	if len(p.requests.written())+len(p.requests.read()) > 0 || p.passesOf(controller.ClassRetry) > 0 || p.passesOf(controller.ClassTerminal) > 3 {
		t.Errorf("at rest: writes %q, reads %q, %d passes retried, %d that ended with Terminal", p.requests.written(), p.requests.read(),
			p.passesOf(controller.ClassRetry), p.passesOf(controller.ClassTerminal))
	}
	if now := w.httpRoute("shop", "still there", exists); now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("it was written to: %s, then %s", foreign.ResourceVersion, now.ResourceVersion)
	}
	if err := client.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("shop", "made", serves("shop.example.com"))
}
