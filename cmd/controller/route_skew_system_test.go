package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// heals is how long a kind that was missing may take to be noticed: the backoff of its
// list and watch is 30 s, stretched to twice that at most.
const heals = 90 * time.Second

// gatewayKinds are what Steadwatch reads of the Gateway API.
var gatewayKinds = []string{"httproutes", "listenersets", "gateways"}

// The Gateway API is missing at the start, is installed without ListenerSets, then whole,
// is removed, and comes back in a version that is newer than the one compiled in (R07,
// R71). Routes say what they lack and heal by themselves; a WebApp converges at every
// step, nothing restarts, and the log stays short.
func TestSystemGatewayAPIComesAndGoes(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	applyCRDs(t, cp)
	base := newWorldOn(t, cp)
	base.install("a")
	w := routeWorldOf(base)
	r := w.start("a", replicaOptions{args: []string{"--default-gateway=" + w.namespace + "/public"}})
	r.awaitReady()
	r.awaitLead()
	steps := 0
	works := func() { // whatever is missing
		t.Helper()
		steps++
		name := fmt.Sprintf("app-%d", steps)
		w.create(w.namespace, name)
		w.converges(patience, w.namespace, name)
		r.alive()
		r.healthy("/healthz")
		r.healthy("/readyz")
	}
	const ready = v1alpha1.ConditionReady

	// Missing.
	for _, service := range []string{"checkout", "checkout-canary", "web"} {
		w.createService(w.namespace, service, map[bool]int32{true: 80, false: 8080}[service == "web"])
	}
	w.createSecret("checkout-tls", corev1.SecretTypeTLS)
	w.createRoute(w.namespace, guideRoute, nil)
	w.plainRoute(w.namespace, "plain", w.namespace, "plain.example.com")
	w.says(w.namespace, "checkout-api", ready, "False GatewayAPIMissing", "HTTPRoute", "v1.5")
	w.says(w.namespace, "plain", ready, "False GatewayAPIMissing", "HTTPRoute")
	works()
	w.idle()
	span := 10 * time.Second
	if long {
		span = 2 * time.Minute
	}
	w.quietWithout(r, span)

	// All but ListenerSets.
	installed := time.Now()
	if err := gateway.Install(t.Context(), cp, gateway.Gateways, gateway.HTTPRoutes); err != nil {
		t.Fatal(err)
	}
	w.createGateway(w.namespace)
	w.saysWithin(heals, w.namespace, "plain", ready, "False WaitingForGateway")
	w.httpRoute(w.namespace, "plain", "rendered", offers("plain.example.com"))
	t.Logf("rendered %s after HTTPRoutes were installed", time.Since(installed).Round(100*time.Millisecond))
	w.says(w.namespace, "checkout-api", ready, "False GatewayAPIMissing", "ListenerSet")
	works()

	// All.
	installed = time.Now()
	if err := gateway.Install(t.Context(), cp, gateway.ListenerSets); err != nil {
		t.Fatal(err)
	}
	w.startStandIn("", w.namespace)
	w.saysWithin(heals, w.namespace, "checkout-api", ready, "True Programmed")
	t.Logf("Ready %s after ListenerSets were installed", time.Since(installed).Round(100*time.Millisecond))
	w.says(w.namespace, "plain", ready, "True Programmed")

	// Removed while running.
	removed := time.Now()
	if err := gateway.Remove(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	w.saysWithin(heals, w.namespace, "checkout-api", ready, "False GatewayAPIMissing")
	w.saysWithin(heals, w.namespace, "plain", ready, "False GatewayAPIMissing")
	t.Logf("said %s after the removal began", time.Since(removed).Round(100*time.Millisecond))
	works()

	// Back, newer.
	installed = time.Now()
	for _, resource := range gatewayKinds {
		if err := cp.Apply(t.Context(), newerCRD(w.world, resource)); err != nil {
			t.Fatal(err)
		}
	}
	foreign := w.createUnstructured(`
metadata: {name: foreign}
spec:
  parentRefs: [{name: public}]
  hostnames: [foreign.example.com]
  future: {depth: [1, {two: 2.0}]}
  rules:
  - filters: [{type: Teleport, teleport: {to: mars}}]
    backendRefs: [{name: web, port: 80}]
`)
	w.createGateway(w.namespace)
	w.startStandIn("", w.namespace)
	w.saysWithin(heals, w.namespace, "checkout-api", ready, "True Programmed")
	w.saysWithin(heals, w.namespace, "plain", ready, "True Programmed")
	t.Logf("Ready %s after a newer version was installed", time.Since(installed).Round(100*time.Millisecond))
	works()

	// What a newer controller has put into our HTTPRoute survives our writes.
	httpRoutes := w.httpRoutes()
	for name, patch := range map[string]string{
		"plain":        `{"spec":{"future":{"depth":[1,{"two":2.5}]}},"metadata":{"labels":{"theirs":"yes"}}}`,
		"checkout-api": `{"spec":{"future":{"other":"thing"}}}`,
	} {
		before, err := httpRoutes.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "newer-controller"})
		if err != nil {
			t.Fatal(err)
		}
		w.patchRoute(name, `{"spec":{"hostnames":["`+name+`.example.org"]}}`)
		w.httpRoute(w.namespace, name, "changed", offers(gatewayv1.Hostname(name+".example.org")))
		w.says(w.namespace, name, ready, "True Programmed")
		after, err := httpRoutes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(asJSON(t, before, "spec", "future"), asJSON(t, after, "spec", "future")); diff != "" {
			t.Errorf("%s: a field that we do not know (-before our write +after):\n%s", name, diff)
		}
		if diff := cmp.Diff(before.GetLabels(), after.GetLabels()); diff != "" {
			t.Errorf("%s: labels (-before our write +after):\n%s", name, diff)
		}
	}
	now, err := httpRoutes.Get(t.Context(), "foreign", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asJSON(t, foreign, "spec"), asJSON(t, now, "spec")); diff != "" {
		t.Errorf("an HTTPRoute of somebody else (-before +after):\n%s", diff)
	}
	for _, kind := range gatewayKinds {
		r.informerIs(kind+"."+gatewayv1.GroupName, "hearing")
		if n, ok := r.metric(fmt.Sprintf("steadwatch_quarantined_objects{resource=%q}", kind+"."+gatewayv1.GroupName)); n != 0 || !ok {
			t.Errorf("%v %s are set aside", n, kind)
		}
		if n := r.lines(`"`+kind+"."+gatewayv1.GroupName+`"`, "Kind is not served"); n < 1 || n > 2 {
			t.Errorf("that %s are missing is said %d times, want once each time", kind, n)
		}
		if n := r.lines(`"`+kind+"."+gatewayv1.GroupName+`"`, "Cannot list or watch"); n != 0 {
			t.Errorf("that %s are missing is an error, %d times", kind, n)
		}
	}
	for _, e := range w.audit(controlplane.StageResponseComplete, w.users, nil) {
		// To create what the removal has just deleted is forbidden while it goes on.
		if e.Code == http.StatusForbidden && (e.RequestReceived.Before(removed) || e.RequestReceived.After(installed)) {
			t.Errorf("%s %s was refused", e.Verb, e.RequestURI)
		}
	}
	w.fenced()
}

// quietWithout counts what three kinds that are not there cost over a span.
func (w *routeWorld) quietWithout(r *replica, span time.Duration) {
	w.Helper()
	before, began := strings.Count(r.Log(), "\n"), time.Now()
	w.during(span, r.alive)
	said := strings.Count(r.Log(), "\n") - before
	asked := w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool {
		return e.Group == gatewayv1.GroupName && e.RequestReceived.After(began)
	})
	written := w.writesSince(began)
	w.Logf("three kinds are not served: in %s %d lines of log, %d requests for them, %d writes", span, said, len(asked), len(written))
	// Each kind: two requests a try, tries 0.8 s apart at first, then up to 30 s.
	if said > 1 || len(asked) > 60 || len(written) != 0 {
		w.Errorf("want a line at most, 60 requests and no write; written: %v\n%s", written, end(r.Log(), 2000))
	}
	if n := r.lines("Kind is not served, going on without it"); n != len(gatewayKinds) {
		w.Errorf("%d kinds are said to be missing, want %d:\n%s", n, len(gatewayKinds), end(r.Log(), 3000))
	}
}

// newerCRD is a CRD of the Gateway API as a later release may have it: spec.future, and
// for HTTPRoutes another type of filter with its own field.
func newerCRD(w *world, resource string) []byte {
	w.Helper()
	manifest, err := gateway.CRD(w.Context(), resource)
	if err != nil {
		w.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(manifest, &crd); err != nil {
		w.Fatal(err)
	}
	free := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	for _, v := range versions {
		spec := at(w, v, "schema", "openAPIV3Schema", "properties", "spec", "properties")
		spec["future"] = free
		if resource != gateway.HTTPRoutes {
			continue
		}
		filter := at(w, spec, "rules", "items", "properties", "filters", "items", "properties")
		filter["teleport"] = free
		filterType := at(w, filter, "type")
		filterType["enum"] = append(filterType["enum"].([]any), "Teleport")
	}
	if err := unstructured.SetNestedSlice(crd, versions, "spec", "versions"); err != nil {
		w.Fatal(err)
	}
	annotations := at(w, crd, "metadata", "annotations")
	annotations["gateway.networking.k8s.io/bundle-version"] = "v1.99.0"
	newer, err := yaml.Marshal(crd)
	if err != nil {
		w.Fatal(err)
	}
	return newer
}

// at goes down into a JSON object.
func at(w *world, in any, path ...string) map[string]any {
	w.Helper()
	m, _ := in.(map[string]any)
	for _, p := range path {
		m, _ = m[p].(map[string]any)
	}
	if m == nil {
		w.Fatalf("the CRD has no %s", strings.Join(path, "."))
	}
	return m
}

func (w *routeWorld) httpRoutes() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.plane.Config()).Resource(schema.GroupVersion(gatewayv1.GroupVersion).WithResource("httproutes")).Namespace(w.namespace)
}

// createUnstructured creates an HTTPRoute with fields that the types do not have.
func (w *routeWorld) createUnstructured(manifest string) *unstructured.Unstructured {
	w.Helper()
	o := &unstructured.Unstructured{}
	w.decode(manifest, &o.Object)
	o.SetAPIVersion(gatewayv1.GroupVersion.String())
	o.SetKind("HTTPRoute")
	created, err := w.httpRoutes().Create(w.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

func asJSON(t *testing.T, o *unstructured.Unstructured, path ...string) string {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil || !found {
		t.Fatalf("%s has no %v", o.GetName(), path)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
