package main_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// With rights in one namespace only, routes there attach to Gateways in another: all is
// rendered, Ready follows what the Gateway's controller says of the children, and its
// message says that the Gateway itself has not been looked at.
func TestSystemRouteGatewayOutsideNamespaces(t *testing.T) {
	t.Parallel()
	cp := plane.ForTest(t)
	crds.Do(func() { applyCRDs(t, cp) })
	installGatewayCRDs(t, cp)
	w := routeWorldOf(newWorldOn(t, cp))
	gateways, nowhere := cp.Namespace(t), cp.Namespace(t)
	w.standIn = w.startStandIn("", w.namespace, gateways)
	w.installScoped(false, "steadwatch")
	w.bindIn(w.namespace)
	w.createGateway(gateways)
	w.createService(w.namespace, "web", 80)
	w.createService(w.namespace, "checkout", 8080)
	w.createService(w.namespace, "checkout-canary", 8080)
	r := w.start("steadwatch", replicaOptions{args: []string{"--default-gateway=" + gateways + "/public"}})
	r.awaitReady()
	r.awaitLead()
	unseen := func(namespace string) string { return "Gateway " + namespace + "/public has not been looked at" }
	hangsOn := func(namespace string) func(*gatewayv1.HTTPRoute) bool {
		return func(h *gatewayv1.HTTPRoute) bool {
			refs := h.Spec.ParentRefs
			return len(refs) == 1 && refs[0].Namespace != nil && string(*refs[0].Namespace) == namespace
		}
	}

	// Named in the spec, and by default.
	w.plainRoute(w.namespace, "named", gateways, "named.example.com")
	w.createRoute(w.namespace, guideRoute, func(r *v1alpha1.ApplicationRoute) { r.Name, r.Spec.TLSSecret = "standard", "" })
	for _, name := range []string{"named", "standard"} {
		w.httpRoute(w.namespace, name, "to hang on the Gateway elsewhere", hangsOn(gateways))
		w.says(w.namespace, name, v1alpha1.ConditionReady, "True Programmed", unseen(gateways), "--namespaces")
		w.says(w.namespace, name, v1alpha1.ConditionDegraded, "False AsExpected")
	}

	// One that is not there cannot be told from one that says nothing; it is not said to
	// be missing.
	w.plainRoute(w.namespace, "lost", nowhere, "lost.example.com")
	w.httpRoute(w.namespace, "lost", "to hang on a Gateway that is not there", hangsOn(nowhere))
	w.says(w.namespace, "lost", v1alpha1.ConditionReady, "False WaitingForGateway", unseen(nowhere))

	// What the Gateway's controller refuses is told in its words, and what it then
	// accepts too: no event of the Gateway leads here, those of the children do.
	w.createRoute(w.namespace, guideRoute, func(r *v1alpha1.ApplicationRoute) {
		r.Name, r.Spec.Hostnames = "tls", []string{"tls.example.com"}
	})
	w.says(w.namespace, "tls", v1alpha1.ConditionReady, "False NotAllowed")
	w.createSecret("checkout-tls", "kubernetes.io/tls")
	if _, err := w.gateways.GatewayV1().Gateways(gateways).Patch(t.Context(), "public", types.MergePatchType,
		[]byte(`{"spec":{"allowedListeners":{"namespaces":{"from":"All"}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.says(w.namespace, "tls", v1alpha1.ConditionReady, "True Programmed", "by HTTPS", unseen(gateways))

	// Hostnames are kept apart there as anywhere.
	w.plainRoute(w.namespace, "rival", gateways, "named.example.com")
	w.says(w.namespace, "rival", v1alpha1.ConditionDegraded, "True HostnameConflict", w.namespace+"/named")

	for _, e := range w.audit(controlplane.StageRequestReceived, w.users, nil) {
		if !slices.Contains([]string{w.namespace, w.system}, e.Namespace) {
			t.Errorf("%s %s is outside its namespaces", e.Verb, e.RequestURI)
		}
	}
	w.notForbidden()
	if log := r.Log(); strings.Contains(log, "Reconcile failed") {
		t.Errorf("passes have failed: %s", end(log, 3000))
	}
	r.alive()
	w.fenced()
}
