package main_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// twoNamespaces is a world whose replica works in two namespaces, with one Gateway in
// the first and the Service "web" in both.
func twoNamespaces(t *testing.T) (w *routeWorld, other string, start func() *replica) {
	t.Helper()
	w = newSilentRouteWorld(t, "a")
	other = w.plane.Namespace(t)
	w.standIn = w.startStandIn("", w.namespace, other)
	w.createGateway(w.namespace)
	w.createService(w.namespace, "web", 80)
	w.createService(other, "web", 80)
	return w, other, func() *replica {
		t.Helper()
		r := w.start("a", replicaOptions{args: []string{"--namespaces=" + w.namespace + "," + other}})
		r.awaitLead()
		return r
	}
}

// nextSecond waits until what is created now is younger than all that is there: the
// API server notes whole seconds.
func (w *routeWorld) nextSecond() {
	w.Helper()
	w.during(time.Until(time.Now().Truncate(time.Second).Add(1100*time.Millisecond)), func() {})
}

func (w *routeWorld) deleteRoute(namespace, name string) {
	w.Helper()
	if err := w.platform.NetworkingV1alpha1().ApplicationRoutes(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// Two routes in two namespaces claim one hostname of one Gateway: the older one has it,
// the other one says who, and takes it over when that one goes. Of two from the same
// second the order of their names decides.
func TestSystemRouteHostnameClaimedTwice(t *testing.T) {
	t.Parallel()
	w, other, start := twoNamespaces(t)
	r := start()
	const ready = v1alpha1.ConditionReady
	w.plainRoute(other, "first", w.namespace, "shop.example.com")
	w.nextSecond()
	// Older wins over the order of names, in which this one may come first.
	w.plainRoute(w.namespace, "second", w.namespace, "shop.example.com")
	w.says(other, "first", ready, "True Programmed")
	w.says(w.namespace, "second", ready, "False HostnameConflict", "shop.example.com", other+"/first")
	w.says(w.namespace, "second", v1alpha1.ConditionDegraded, "True HostnameConflict")
	w.noHTTPRoute(w.namespace, "second")
	w.deleteRoute(other, "first")
	took := w.says(w.namespace, "second", ready, "True Programmed")
	t.Logf("taken over %s after the delete", took)
	w.httpRoute(w.namespace, "second", "taken over", offers("shop.example.com"))

	for try := 0; ; try++ {
		if try == 20 {
			t.Fatal("no two routes were created within the same second")
		}
		name, hostname := fmt.Sprintf("same-%d", try), fmt.Sprintf("same-%d.example.com", try)
		winner, loser := min(w.namespace, other), max(w.namespace, other)
		a := w.plainRoute(loser, name, w.namespace, hostname) // the one that comes second is created first
		b := w.plainRoute(winner, name, w.namespace, hostname)
		if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
			continue
		}
		w.says(winner, name, ready, "True Programmed")
		w.says(loser, name, ready, "False HostnameConflict", winner+"/"+name)
		w.noHTTPRoute(loser, name)
		break
	}
	r.alive()
	w.notForbidden()
	w.fenced()
}

// The holder of a hostname turns undecodable: it keeps what it has, in the process that
// has seen it whole and in one that has not, until it is deleted.
func TestSystemRouteHolderUndecodable(t *testing.T) {
	t.Parallel()
	w, other, start := twoNamespaces(t)
	r := start()
	const ready = v1alpha1.ConditionReady
	w.createRoute(other, guideRoute, func(route *v1alpha1.ApplicationRoute) {
		route.Name, route.Spec.Hostnames, route.Spec.TLSSecret = "holder", []string{"shop.example.com"}, ""
		route.Spec.Backends = []v1alpha1.Backend{{Service: "web", Port: 80}}
		route.Spec.Gateway = &v1alpha1.GatewayReference{Namespace: w.namespace, Name: "public"}
	})
	w.says(other, "holder", ready, "True Programmed")
	w.nextSecond()
	w.plainRoute(w.namespace, "next", w.namespace, "shop.example.com")
	w.says(w.namespace, "next", ready, "False HostnameConflict", other+"/holder")
	holders := w.httpRoute(other, "holder", "there", offers("shop.example.com"))

	resource := v1alpha1.SchemeGroupVersion.WithResource("applicationroutes")
	key := path.Join("/registry", resource.Group, resource.Resource, other, "holder")
	raw, err := w.plane.EtcdGet(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	worse := strings.Replace(string(raw), `"timeout":"2s"`, `"timeout":"2"`, 1)
	if worse == string(raw) {
		t.Fatalf("no timeout in %s", raw)
	}
	if _, err := w.plane.EtcdPut(t.Context(), key, []byte(worse)); err != nil {
		t.Fatal(err)
	}
	w.undecodable(other, "holder")
	keeps := func(when string) {
		t.Helper()
		// A pass over the other one, begun after all that.
		w.annotate(w.namespace, "next", when)
		w.during(3*time.Second, r.alive)
		w.says(w.namespace, "next", ready, "False HostnameConflict", other+"/holder")
		w.noHTTPRoute(w.namespace, "next")
		now := w.httpRoute(other, "holder", "there", nil)
		if now.UID != holders.UID || now.Generation != holders.Generation {
			t.Errorf("%s: the holder's HTTPRoute was written to", when)
		}
	}
	keeps("undecodable")
	r.Stop(patience)
	r = start()
	w.eventually(patience, "both to have had a pass", func() (bool, string) {
		passes := r.passes("applicationroute")
		return passes >= 2, fmt.Sprint(passes)
	})
	keeps("restarted")

	w.deleteRoute(other, "holder")
	took := w.says(w.namespace, "next", ready, "True Programmed")
	t.Logf("taken over %s after the delete", took)
	r.alive()
	w.notForbidden()
	w.fenced()
}

func (w *routeWorld) annotate(namespace, name, value string) {
	w.Helper()
	if _, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(namespace).Patch(w.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"touched":%q}}}`, value), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// undecodable waits until a route is said to be.
func (w *routeWorld) undecodable(namespace, name string) {
	w.Helper()
	routes := dynamic.NewForConfigOrDie(w.plane.Config()).Resource(v1alpha1.SchemeGroupVersion.WithResource("applicationroutes")).Namespace(namespace)
	w.eventually(patience, "the condition Decodable of "+name, func() (bool, string) {
		o, err := routes.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range all {
			if c := c.(map[string]any); c["type"] == "Decodable" {
				return c["status"] == "False", fmt.Sprint(c)
			}
		}
		return false, fmt.Sprint(all)
	})
}
