package applicationroute_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

func (w *world) service(name string, ports ...int32) {
	w.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, port := range ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", port), Port: port})
	}
	if _, err := w.kube.CoreV1().Services(w.namespace).Create(w.Context(), service, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// nextSecond waits until what is created has a later creationTimestamp than all before.
func (w *world) nextSecond() {
	w.Helper()
	since := time.Now()
	eventually(w.T, "the next second", func() (bool, string) { return time.Since(since) > 1100*time.Millisecond, "not yet" })
}

// route creates one that attaches to the Gateway "public" of its namespace.
func (w *world) route(name string, hostnames ...string) *v1alpha1.ApplicationRoute {
	w.Helper()
	route, err := w.routes.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Create(w.Context(), &v1alpha1.ApplicationRoute{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ApplicationRouteSpec{
			Hostnames: hostnames,
			Backends:  []v1alpha1.Backend{{Service: "web", Port: 80}},
			Gateway:   &v1alpha1.GatewayReference{Name: "public"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return route
}

// change updates an object's spec until it is not overtaken.
func (w *world) change(name string, f func(*v1alpha1.ApplicationRoute)) {
	w.Helper()
	client := w.routes.NetworkingV1alpha1().ApplicationRoutes(w.namespace)
	eventually(w.T, "an update to be accepted", func() (bool, string) {
		route, err := client.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		f(route)
		_, err = client.Update(w.Context(), route, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// httpRoute waits for one that f likes.
func (w *world) httpRoute(name, what string, f func(*gatewayv1.HTTPRoute) bool) *gatewayv1.HTTPRoute {
	w.Helper()
	var last *gatewayv1.HTTPRoute
	eventually(w.T, "HTTPRoute "+name+": "+what, func() (bool, string) {
		r, err := w.gateway.GatewayV1().HTTPRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		last = r
		return f(r), fmt.Sprintf("%+v", r.Spec)
	})
	return last
}

func exists(*gatewayv1.HTTPRoute) bool { return true }

func serves(hostnames ...gatewayv1.Hostname) func(*gatewayv1.HTTPRoute) bool {
	return func(r *gatewayv1.HTTPRoute) bool { return slices.Equal(r.Spec.Hostnames, hostnames) }
}

func (w *world) noHTTPRoute(name string) {
	w.Helper()
	eventually(w.T, "HTTPRoute "+name+" to go", func() (bool, string) {
		_, err := w.gateway.GatewayV1().HTTPRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// accept does what a gateway does with an HTTPRoute as it is.
func (w *world) accept(name string) {
	w.Helper()
	eventually(w.T, "HTTPRoute "+name+" to be accepted", func() (bool, string) {
		client := w.gateway.GatewayV1().HTTPRoutes(w.namespace)
		r, err := client.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		r.Status.Parents = nil
		for _, ref := range r.Spec.ParentRefs {
			yes := func(conditionType gatewayv1.RouteConditionType) metav1.Condition {
				return metav1.Condition{Type: string(conditionType), Status: metav1.ConditionTrue, Reason: string(conditionType),
					ObservedGeneration: r.Generation, LastTransitionTime: metav1.Now()}
			}
			r.Status.Parents = append(r.Status.Parents, gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: "example.com/gateway",
				Conditions: []metav1.Condition{yes(gatewayv1.RouteConditionAccepted), yes(gatewayv1.RouteConditionResolvedRefs)}})
		}
		_, err = client.UpdateStatus(w.Context(), r, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// gatewayObject creates the Gateway "public", accepted and programmed.
func (w *world) gatewayObject() {
	w.Helper()
	client := w.gateway.GatewayV1().Gateways(w.namespace)
	g, err := client.Create(w.Context(), &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "public"},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "example",
			Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, conditionType := range []gatewayv1.GatewayConditionType{gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed} {
		i := slices.IndexFunc(g.Status.Conditions, func(c metav1.Condition) bool { return c.Type == string(conditionType) })
		c := metav1.Condition{Type: string(conditionType), Status: metav1.ConditionTrue, Reason: string(conditionType), LastTransitionTime: metav1.Now()}
		if i < 0 {
			g.Status.Conditions = append(g.Status.Conditions, c)
		} else {
			g.Status.Conditions[i] = c
		}
	}
	if _, err := client.UpdateStatus(w.Context(), g, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func TestConvergence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayObject()
	p := w.start(options{})
	w.route("shop", "shop.example.com", "www.example.com")
	w.condition("shop", v1alpha1.ConditionDependenciesReady, "False ServiceMissing")
	httpRoute := w.httpRoute("shop", "rendered although the Service is missing", exists)
	w.accept("shop")
	w.service("web", 8080)
	w.condition("shop", v1alpha1.ConditionReady, "False PortMissing")
	service, err := w.kube.CoreV1().Services(w.namespace).Patch(t.Context(), "web", "application/merge-patch+json",
		[]byte(`{"spec":{"ports":[{"port":80}]}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(service, err)
	}
	w.condition("shop", v1alpha1.ConditionReady, "True Programmed")
	if owner := metav1.GetControllerOf(httpRoute); owner == nil || owner.Kind != "ApplicationRoute" {
		t.Errorf("owner is %v", owner)
	}

	// At rest nothing is written, by a process that starts neither.
	p.idle(t)
	p.stop()
	p = w.start(options{})
	p.idle(t)
	if diff := cmp.Diff([]string(nil), p.requests.written()); diff != "" {
		t.Errorf("a process that finds everything in place writes (-want +got):\n%s", diff)
	}

	// Deleted or changed by somebody else: made anew, set back.
	client := w.gateway.GatewayV1().HTTPRoutes(w.namespace)
	if err := client.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("shop", "made anew", func(r *gatewayv1.HTTPRoute) bool { return r.UID != httpRoute.UID })
	if _, err := client.Patch(t.Context(), "shop", "application/merge-patch+json", []byte(`{"spec":{"hostnames":["evil.example.com"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.httpRoute("shop", "set back", serves("shop.example.com", "www.example.com"))

	w.change("shop", func(r *v1alpha1.ApplicationRoute) {
		r.Spec.Hostnames, r.Spec.Timeout = []string{"shop.example.com"}, &metav1.Duration{Duration: 90 * time.Second}
	})
	w.httpRoute("shop", "changed", func(r *gatewayv1.HTTPRoute) bool {
		return serves("shop.example.com")(r) && r.Spec.Rules[0].Timeouts != nil && ptr.Deref(r.Spec.Rules[0].Timeouts.Request, "") == "1m30s"
	})
}

func TestHostnameIsHeldByTheOldest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", 80)
	w.start(options{})
	w.route("a", "shop.example.com")
	w.httpRoute("a", "rendered", serves("shop.example.com"))
	w.route("b", "shop.example.com", "b.example.com")
	w.httpRoute("b", "what is left", serves("b.example.com"))
	w.condition("b", v1alpha1.ConditionDegraded, "True HostnameConflict")

	// b gives up what it holds: an HTTPRoute without hostnames would match all.
	w.change("b", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"shop.example.com"} })
	w.noHTTPRoute("b")

	// a gives up the one, and b takes it over.
	w.change("a", func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = []string{"a.example.com"} })
	w.httpRoute("b", "taken over", serves("shop.example.com"))
	w.httpRoute("a", "given up", serves("a.example.com"))

	if err := w.routes.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
