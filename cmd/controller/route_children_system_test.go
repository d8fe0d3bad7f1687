package main_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// startRoutes starts a replica with the guide's route Ready.
func startRoutes(t *testing.T, o replicaOptions) (*routeWorld, *replica) {
	t.Helper()
	w := newRouteWorld(t, "a")
	w.withSecrets()
	o.args = append(o.args, "--default-gateway="+w.namespace+"/public", "--tls-secrets")
	if o.proxy == nil {
		o.proxy = w.proxy()
	}
	r := w.start("a", o)
	r.awaitLead()
	w.everything()
	w.createRoute(w.namespace, guideRoute, nil)
	w.says(w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed")
	w.idle()
	return w, r
}

// patched are the answered patches of HTTPRoutes since then, by their code.
func (w *routeWorld) patched(since time.Time) map[int]int {
	w.Helper()
	codes := map[int]int{}
	for _, e := range w.audit(controlplane.StageResponseComplete, w.users, func(e controlplane.AuditEvent) bool {
		return e.Verb == "patch" && e.Resource == "httproutes" && e.RequestReceived.After(since)
	}) {
		codes[e.Code]++
	}
	return codes
}

// Another manager's value in one of our fields is set back, once; what is its own stays.
func TestSystemRouteEditedByOthers(t *testing.T) {
	t.Parallel()
	w, _ := startRoutes(t, replicaOptions{})
	theirs := time.Now()
	httpRoutes := w.gateways.GatewayV1().HTTPRoutes(w.namespace)
	edited, err := httpRoutes.Patch(t.Context(), "checkout-api", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"theirs":"yes"}},"spec":{"hostnames":["elsewhere.example.com"]}}`), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	w.httpRoute(w.namespace, "checkout-api", "set back", offers("checkout.internal.example.com"))
	w.says(w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed")
	w.idle()
	after := w.httpRoute(w.namespace, "checkout-api", "at rest", offers("checkout.internal.example.com"))
	if after.Annotations["theirs"] != "yes" {
		t.Errorf("another manager's annotation is gone: %v", after.Annotations)
	}
	if after.Generation != edited.Generation+1 {
		t.Errorf("generation went from %d to %d, want one write", edited.Generation, after.Generation)
	}
	codes := w.patched(theirs)
	t.Logf("patches of HTTPRoutes by code: %v", codes)
	if codes[http.StatusOK] != 1 || codes[http.StatusConflict] > 1 {
		t.Errorf("patches by code %v, want one that is accepted", codes)
	}
	w.fenced()
}

// An HTTPRoute of somebody else under our name is told of with its owner, is not
// written, and nobody tries again and again; when it goes ours is made.
func TestSystemRouteForeignHTTPRoute(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, "a")
	w.start("a", replicaOptions{args: []string{"--default-gateway=" + w.namespace + "/public"}}).awaitLead()
	w.everything()
	w.createService(w.namespace, "web", 80)
	httpRoutes := w.gateways.GatewayV1().HTTPRoutes(w.namespace)
	foreign, err := httpRoutes.Create(t.Context(), &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "shop", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "example.com/v1", Kind: "Shop", Name: "the-owner", UID: "1", Controller: ptr.To(true)}}},
		Spec: gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{"theirs.example.com"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.plainRoute(w.namespace, "shop", w.namespace, "shop.example.com")
	w.says(w.namespace, "shop", v1alpha1.ConditionReady, "False ChildNotOwned", "Shop", "the-owner")
	w.says(w.namespace, "shop", v1alpha1.ConditionDegraded, "True ChildNotOwned")
	w.idle()
	began := time.Now()
	w.during(5*time.Second, func() {})
	asked := w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool {
		return e.RequestReceived.After(began) && e.Resource != "leases" && e.Verb != "watch" && e.Verb != "list"
	})
	if len(asked) > 0 {
		t.Errorf("%d requests while there is nothing to do, the first is %s %s", len(asked), asked[0].Verb, asked[0].RequestURI)
	}
	now, err := httpRoutes.Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(foreign.Spec, now.Spec); diff != "" || now.UID != foreign.UID || now.Generation != foreign.Generation {
		t.Errorf("it was written to (-before +after):\n%s", diff)
	}
	if err := httpRoutes.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.says(w.namespace, "shop", v1alpha1.ConditionReady, "True Programmed")
	w.httpRoute(w.namespace, "shop", "ours", offers("shop.example.com"))
	w.notForbidden()
	w.fenced()
}

// The HTTPRoute is deleted while a pass is about to write it: the end is one HTTPRoute,
// as the newest spec wants it.
func TestSystemRouteDeletedDuringAPass(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, "a")
	w.withSecrets()
	proxy := w.proxy()
	w.start("a", replicaOptions{proxy: proxy, args: []string{"--default-gateway=" + w.namespace + "/public", "--tls-secrets"}}).awaitLead()
	w.everything()
	w.createRoute(w.namespace, guideRoute, nil)
	w.says(w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed")
	before := w.httpRoute(w.namespace, "checkout-api", "there", nil)

	arrived, release := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(arrived) })
	held := proxy.Add(faultproxy.Rule{
		Match: faultproxy.Match{Verbs: []string{"patch"}, Resource: "httproutes", Namespace: w.namespace},
		Hold: func(ctx context.Context, _ faultproxy.Request) {
			once()
			select {
			case <-ctx.Done():
			case <-release:
			}
		},
	})
	w.patchRoute("checkout-api", `{"spec":{"hostnames":["new.example.com"]}}`)
	select {
	case <-arrived:
	case <-time.After(patience):
		t.Fatal("no pass writes the HTTPRoute")
	}
	if err := w.gateways.GatewayV1().HTTPRoutes(w.namespace).Delete(t.Context(), "checkout-api", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	close(release)
	held.Remove()
	after := w.httpRoute(w.namespace, "checkout-api", "made anew", func(r *gatewayv1.HTTPRoute) bool {
		return r.UID != before.UID && offers("new.example.com")(r)
	})
	w.says(w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed")
	w.idle()
	if now := w.httpRoute(w.namespace, "checkout-api", "there", nil); now.UID != after.UID {
		t.Errorf("it was made twice: %s, then %s", after.UID, now.UID)
	}
	t.Logf("patches of HTTPRoutes by code: %v", w.patched(released.Add(-time.Second)))
	w.fenced()
}

// What a rollout brings within a second: updates of Services, EndpointSlices, a renewed
// certificate, the gateway's counting. Nothing of it asks for a write, and it costs a
// few passes.
func TestSystemRouteEventBurst(t *testing.T) {
	t.Parallel()
	w, r := startRoutes(t, replicaOptions{})
	// The gateway reports what it likes, whenever it likes.
	w.standIn.Behave(gateway.Behavior{Silent: true})
	w.idle()
	passesBefore, writesBefore := r.passes("applicationroute"), len(w.writesSince(time.Time{}))
	began := time.Now()
	for n := range 5 {
		for _, service := range []string{"checkout", "checkout-canary"} {
			if _, err := w.kube.CoreV1().Services(w.namespace).Patch(t.Context(), service, types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{"rollout":"%d"}}}`, n), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 20 {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("checkout-%d", n), Labels: map[string]string{discoveryv1.LabelServiceName: "checkout"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.0.0.%d", n+1)}}}}
		if _, err := w.kube.DiscoveryV1().EndpointSlices(w.namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.kube.CoreV1().Secrets(w.namespace).Patch(t.Context(), "checkout-tls", types.MergePatchType, []byte(`{"stringData":{"tls.crt":"renewed"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	httpRoutes := w.gateways.GatewayV1().HTTPRoutes(w.namespace)
	for n := range 3 {
		w.eventually(patience, "a status to be written", func() (bool, string) {
			route, err := httpRoutes.Get(t.Context(), "checkout-api", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			for i := range route.Status.Parents[0].Conditions {
				route.Status.Parents[0].Conditions[i].Message = fmt.Sprintf("programmed on %d of 3 proxies", n+1)
			}
			_, err = httpRoutes.UpdateStatus(t.Context(), route, metav1.UpdateOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	events := 10 + 1 + 3 // EndpointSlices are not watched
	w.idle()
	passes, writes := r.passes("applicationroute")-passesBefore, w.writesSince(time.Time{})[writesBefore:]
	types := map[string]int{}
	for _, e := range w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool {
		return e.RequestReceived.After(began) && e.Resource != "leases"
	}) {
		types[e.Verb+" "+e.Resource]++
	}
	t.Logf("%d events that concern the route in %s: %v passes, %d writes; requests %v", events, time.Since(began).Round(time.Millisecond), passes, len(writes), types)
	if len(writes) > 0 {
		t.Errorf("written: %v", writes)
	}
	if passes > float64(events) {
		t.Errorf("%v passes for %d events", passes, events)
	}
	w.says(w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed")
	w.fenced()
}

// passes are those of a controller so far.
func (r *replica) passes(controller string) (n float64) {
	_, body := get(r.metrics, "/metrics")
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "steadwatch_reconcile_total{") && strings.Contains(line, `controller="`+controller+`"`) {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &v); err == nil {
				n += v
			}
		}
	}
	return n
}

// At rest nothing is written, and a process that starts anew writes nothing either.
func TestSystemRoutesAtRest(t *testing.T) {
	t.Parallel()
	w, r := startRoutes(t, replicaOptions{})
	w.createService(w.namespace, "web", 80)
	const n = 20
	for i := range n {
		w.plainRoute(w.namespace, fmt.Sprintf("route-%d", i), w.namespace, fmt.Sprintf("h%d.example.com", i), fmt.Sprintf("g%d.example.com", i))
	}
	w.plainRoute(w.namespace, "z-loser", w.namespace, "h0.example.com")
	w.create(w.namespace, "app")
	w.converges(patience, w.namespace, "app")
	for i := range n {
		w.says(w.namespace, fmt.Sprintf("route-%d", i), v1alpha1.ConditionReady, "True Programmed")
	}
	w.says(w.namespace, "z-loser", v1alpha1.ConditionReady, "False HostnameConflict", w.namespace+"/route-0")
	w.idle()
	settled := time.Now()
	w.during(5*time.Second, r.alive)
	if got := w.writesSince(settled); len(got) > 0 {
		t.Errorf("written at rest: %v", got)
	}
	r.Stop(patience)
	restarted := time.Now()
	again := w.start("a", replicaOptions{args: []string{"--default-gateway=" + w.namespace + "/public", "--tls-secrets"}})
	again.awaitLead()
	w.eventually(patience, "every route to have had a pass", func() (bool, string) {
		passes := again.passes("applicationroute")
		return passes >= n+2, fmt.Sprint(passes)
	})
	w.during(5*time.Second, again.alive)
	all := w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool { return mutates(e) && e.RequestReceived.After(restarted) })
	for _, e := range all {
		t.Errorf("written after a restart: %s %s", e.Verb, e.RequestURI)
	}
	reads := map[string]int{}
	for _, e := range w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool {
		return e.RequestReceived.After(restarted) && e.Resource != "leases"
	}) {
		reads[e.Verb+" "+e.Resource]++
	}
	t.Logf("requests after the restart: %v", reads)
	// WebApps and ApplicationRoutes share one copy of the Services.
	if got := reads["list services"] + reads["watch services"]; got > 2 || reads["watch services"] > 2 {
		t.Errorf("%d requests for Services, want one copy: a list or a WatchList, and a watch", got)
	}
	w.fenced()
}
