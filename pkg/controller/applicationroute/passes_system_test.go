package applicationroute_test

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
)

// toChildren are the writes to children, in their order.
func toChildren(writes []string) []string {
	return slices.DeleteFunc(writes, func(w string) bool { return strings.HasSuffix(w, "/status") })
}

// Nothing refers to what is not there: the ListenerSet comes first and goes last.
func TestOrderOfChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{})
	w.route("shop", "shop.example.com")
	w.httpRoute("shop", "on the Gateway", exists)
	p.idle(t)

	p.requests.forget()
	w.change("shop", func(r *v1alpha1.ApplicationRoute) { r.Spec.TLSSecret = "shop-tls" })
	w.httpRoute("shop", "on the ListenerSet", hangsOn("ListenerSet"))
	p.idle(t)
	if diff := cmp.Diff([]string{"PATCH listenersets/shop", "PATCH httproutes/shop"}, toChildren(p.requests.written())); diff != "" {
		t.Errorf("with a Secret (-want +got):\n%s", diff)
	}
	w.condition("shop", v1alpha1.ConditionDependenciesReady, "Unknown SecretNotChecked")

	p.requests.forget()
	w.change("shop", func(r *v1alpha1.ApplicationRoute) { r.Spec.TLSSecret = "" })
	w.httpRoute("shop", "on the Gateway again", hangsOn("Gateway"))
	p.idle(t)
	if diff := cmp.Diff([]string{"PATCH httproutes/shop", "DELETE listenersets/shop"}, toChildren(p.requests.written())); diff != "" {
		t.Errorf("without it (-want +got):\n%s", diff)
	}
}

func hangsOn(kind gatewayv1.Kind) func(*gatewayv1.HTTPRoute) bool {
	return func(r *gatewayv1.HTTPRoute) bool {
		return len(r.Spec.ParentRefs) == 1 && r.Spec.ParentRefs[0].Kind != nil && *r.Spec.ParentRefs[0].Kind == kind
	}
}

// R61, R92: the cache shows an HTTPRoute that somebody has deleted. The pass that meets
// it must neither end there nor make a second one.
func TestChildDeletedBehindTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{lag: map[string]time.Duration{"httproutes": 2 * time.Second}})
	w.route("shop", "shop.example.com")
	before := w.httpRoute("shop", "rendered", exists)
	p.idle(t)

	p.requests.forget()
	if err := w.gateway.GatewayV1().HTTPRoutes(w.namespace).Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.change("shop", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"www.example.com"} })
	after := w.httpRoute("shop", "made anew", func(r *gatewayv1.HTTPRoute) bool {
		return r.UID != before.UID && serves("www.example.com")(r)
	})
	p.idle(t)
	if now := w.httpRoute("shop", "still there", exists); now.UID != after.UID || now.ResourceVersion != after.ResourceVersion {
		t.Errorf("it was written again: %s/%s, then %s/%s", after.UID, after.ResourceVersion, now.UID, now.ResourceVersion)
	}
}

// The cache shows a claim that has been taken back. What is rendered is not given up
// for it.
func TestNothingIsGivenUpForAnOldClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{lag: map[string]time.Duration{"applicationroutes": 1500 * time.Millisecond}})
	w.route("a", "a.example.com")
	w.httpRoute("a", "rendered", exists)
	// Its creation is later by the second, which is what counts.
	w.nextSecond()
	w.route("b", "shop.example.com")
	before := w.httpRoute("b", "rendered", exists)
	p.idle(t)

	p.requests.forget()
	stale := p.passesOf(controller.ClassStale)
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"a.example.com", "shop.example.com"} })
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"a.example.com"} })
	eventually(t, "the old claim to be looked at", func() (bool, string) {
		n := p.passesOf(controller.ClassStale)
		return n > stale && slices.Contains(p.requests.read(), "applicationroutes/a"), fmt.Sprintf("%d passes, %q", n, p.requests.read())
	})
	p.idle(t)
	if now := w.httpRoute("b", "still there", exists); now.UID != before.UID || now.Generation != before.Generation {
		t.Errorf("given up: generation %d of %s, now %d of %s", before.Generation, before.UID, now.Generation, now.UID)
	}
}

// A route that cannot be decoded keeps its hostname, for a process too that has never
// seen it otherwise, and gives it up when it can be.
func TestFrozenRouteKeepsItsHostname(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	p := w.start(options{})
	w.route("a", "shop.example.com")
	w.httpRoute("a", "rendered", exists)
	w.route("b", "shop.example.com")
	w.condition("b", v1alpha1.ConditionReady, "False HostnameConflict")
	w.corrupt("a", "timeout", "soon")
	p.idle(t)
	p.stop()

	p = w.start(options{})
	p.idle(t)
	w.condition("b", v1alpha1.ConditionReady, "False HostnameConflict")
	if writes := toChildren(p.requests.written()); len(writes) > 0 {
		t.Errorf("writes %q", writes)
	}
	if _, err := w.routes.NetworkingV1alpha1().RESTClient().Patch("application/merge-patch+json").Namespace(w.namespace).Resource("applicationroutes").Name("a").
		Body([]byte(`{"spec":{"timeout":null,"hostnames":["a.example.com"]}}`)).DoRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("a", "mended", serves("a.example.com"))
	w.httpRoute("b", "taken over", serves("shop.example.com"))

	// Deleted while it is frozen, the next has it at once.
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"a.example.com", "last.example.com"} })
	w.httpRoute("a", "one more", serves("a.example.com", "last.example.com"))
	w.change("b", func(r *v1alpha1.ApplicationRoute) {
		r.Spec.Hostnames = []string{"shop.example.com", "last.example.com"}
	})
	w.condition("b", v1alpha1.ConditionReady, "False HostnameConflict")
	w.corrupt("a", "timeout", "soon")
	p.idle(t)
	if err := w.routes.NetworkingV1alpha1().RESTClient().Delete().Namespace(w.namespace).Resource("applicationroutes").Name("a").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("b", "inherited", serves("shop.example.com", "last.example.com"))
}

// corrupt changes a field of the spec in etcd, past all validation.
func (w *world) corrupt(name, field string, value any) {
	w.Helper()
	w.corruptObject("applicationroutes", name, func(object map[string]any) bool {
		spec, metadata := object["spec"].(map[string]any), object["metadata"].(map[string]any)
		if spec[field] == value {
			return false
		}
		spec[field] = value
		metadata["generation"] = metadata["generation"].(float64) + 1
		return true
	})
}

// corruptObject changes an object in etcd, past all validation, until change finds
// nothing to change: it may be overtaken by a write of the controller's.
func (w *world) corruptObject(resource, name string, change func(map[string]any) bool) {
	w.Helper()
	key := path.Join("/registry", groups[resource], resource, w.namespace, name)
	eventually(w.T, "the bad value to be stored", func() (bool, string) {
		raw, err := w.plane.EtcdGet(w.Context(), key)
		if err != nil {
			return false, err.Error()
		}
		var object map[string]any
		if err := json.Unmarshal(raw, &object); err != nil {
			w.Fatal(err)
		}
		if !change(object) {
			return true, ""
		}
		if raw, err = json.Marshal(object); err != nil {
			w.Fatal(err)
		}
		_, err = w.plane.EtcdPut(w.Context(), key, raw)
		return false, fmt.Sprintf("just written: %v", err)
	})
}
