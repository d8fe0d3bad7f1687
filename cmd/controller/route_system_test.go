package main_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// R68: the route of the guide is there before anything that it refers to. Whatever is
// created, changed, deleted or created again under the same name shows in the right
// condition within 5 s, both ways, and nobody touches the route for it. All of it under
// the rules of the manifests and of the component tls-secrets, and no value of a Secret
// ever gets into the process.
func TestSystemRouteFollowsWhatItRefersTo(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, "a")
	w.withSecrets()
	r := w.start("a", replicaOptions{args: []string{"--default-gateway=" + w.namespace + "/public", "--tls-secrets"}})
	r.awaitLead()
	created := w.createRoute(w.namespace, guideRoute, nil)
	const deps, ready = v1alpha1.ConditionDependenciesReady, v1alpha1.ConditionReady

	w.flips("nothing is there", deps, "False ServiceMissing", `Service "checkout" does`, `Service "checkout-canary" does`, `Secret "checkout-tls" does`)
	w.createService(w.namespace, "checkout", 80)
	w.flips("another port", deps, "False PortMissing", `"checkout" has no port 8080`, "it has 80")
	w.setPort("checkout", 8080)
	w.flips("the port", deps, "False ServiceMissing", `Service "checkout-canary" does`)
	w.createService(w.namespace, "checkout-canary", 8080)
	w.flips("the second Service", deps, "False SecretMissing", `"checkout-tls"`)
	w.createSecret("checkout-tls", corev1.SecretTypeOpaque)
	w.flips("a Secret of another type", deps, "False SecretWrongType", "Opaque", "kubernetes.io/tls")
	w.deleteSecret()
	w.flips("no Secret again", deps, "False SecretMissing")
	w.createSecret("checkout-tls", corev1.SecretTypeTLS)
	w.flips("the Secret", deps, "True DependenciesFound")
	w.flips("no Gateway", ready, "False GatewayMissing", w.namespace+"/public")
	w.createGateway(w.namespace)
	w.flips("the Gateway", ready, "True Programmed", "checkout.internal.example.com", "by HTTPS")
	w.flips("all is there", v1alpha1.ConditionDegraded, "False AsExpected")
	w.flips("all is there", v1alpha1.ConditionProgressing, "False Programmed")
	w.rendersTheGuide()

	for _, service := range []string{"checkout", "checkout-canary"} {
		w.setPort(service, 9090)
		w.flips(service+" has lost its port", ready, "False PortMissing", service)
		w.setPort(service, 8080)
		w.flips(service+" has its port again", ready, "True Programmed")
		if err := w.kube.CoreV1().Services(w.namespace).Delete(t.Context(), service, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.flips(service+" is deleted", ready, "False ServiceMissing", service)
		w.createService(w.namespace, service, 8080)
		w.flips(service+" is there again", ready, "True Programmed")
	}
	w.deleteSecret()
	w.flips("the Secret is deleted", ready, "False SecretMissing")
	w.createSecret("checkout-tls", corev1.SecretTypeTLS)
	w.flips("the Secret is there again", ready, "True Programmed")
	// The Gateway itself counts, not only what its controller says of the route.
	w.standIn.Behave(gateway.Behavior{Silent: true})
	if err := w.gateways.GatewayV1().Gateways(w.namespace).Delete(t.Context(), "public", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.flips("the Gateway is deleted", ready, "False GatewayMissing")
	w.createGateway(w.namespace)
	w.flips("the Gateway is there again", ready, "False WaitingForGateway", "Gateway "+w.namespace+"/public")
	w.standIn.Behave(gateway.Behavior{})
	w.flips("the Gateway is reported on", ready, "True Programmed")

	// A child that is made anew is Ready when the gateway has reported on the new one,
	// and not before.
	for kind, remove := range map[string]func() error{
		"HTTPRoute": func() error {
			return w.gateways.GatewayV1().HTTPRoutes(w.namespace).Delete(t.Context(), "checkout-api", metav1.DeleteOptions{})
		},
		"ListenerSet": func() error {
			return w.gateways.GatewayV1().ListenerSets(w.namespace).Delete(t.Context(), "checkout-api", metav1.DeleteOptions{})
		},
	} {
		w.standIn.Behave(gateway.Behavior{Silent: true})
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		w.flips(kind+" was made anew", ready, "False WaitingForGateway", kind)
		w.standIn.Behave(gateway.Behavior{})
		w.flips(kind+" is reported on", ready, "True Programmed")
	}
	w.rendersTheGuide()
	t.Logf("the slowest condition took %s", w.slowest)

	after, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Get(t.Context(), "checkout-api", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(created.Spec, after.Spec); diff != "" || after.Generation != created.Generation {
		t.Errorf("the route was touched (-before +after):\n%s", diff)
	}
	w.notForbidden()
	r.hasNotSeen(secretValue)

	// Without a tlsSecret the ListenerSet goes, after the HTTPRoute is off it.
	w.patchRoute("checkout-api", `{"spec":{"tlsSecret":null}}`)
	w.flips("HTTP now", ready, "True Programmed")
	w.httpRoute(w.namespace, "checkout-api", "on the Gateway", func(r *gatewayv1.HTTPRoute) bool {
		return ptr.Deref(r.Spec.ParentRefs[0].Kind, "Gateway") == "Gateway"
	})
	w.eventually(patience, "the ListenerSet to go", func() (bool, string) {
		_, err := w.gateways.GatewayV1().ListenerSets(w.namespace).Get(t.Context(), "checkout-api", metav1.GetOptions{})
		return err != nil, fmt.Sprint(err)
	})
	w.notForbidden()
	w.fenced()
}

// Without the component nothing is asked about Secrets: the condition says how to have
// it, and Ready follows the gateway.
func TestSystemRouteWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, "a")
	r := w.start("a", replicaOptions{args: []string{"--default-gateway=" + w.namespace + "/public"}})
	r.awaitLead()
	w.createRoute(w.namespace, guideRoute, nil)
	w.createService(w.namespace, "checkout", 8080)
	w.createService(w.namespace, "checkout-canary", 8080)
	w.createGateway(w.namespace)
	w.flips("nobody looks", v1alpha1.ConditionDependenciesReady, "Unknown SecretNotChecked", "--tls-secrets", "tls-secrets")
	w.flips("the gateway looks", v1alpha1.ConditionReady, "False InvalidCertificateRef")
	w.createSecret("checkout-tls", corev1.SecretTypeTLS)
	w.flips("the gateway has it", v1alpha1.ConditionReady, "True Programmed")
	for _, e := range w.audit("RequestReceived", w.users, nil) {
		if e.Resource == "secrets" {
			t.Errorf("%s %s: it was told not to read Secrets", e.Verb, e.RequestURI)
		}
	}
	w.notForbidden()
	w.fenced()
}

// With the flag and without the rule: Secrets alone are not looked at, with the rule
// named in the condition; granted later, it heals by itself.
func TestSystemRouteSecretsForbidden(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, "a")
	r := w.start("a", replicaOptions{args: []string{"--default-gateway=" + w.namespace + "/public", "--tls-secrets"}})
	r.awaitLead()
	w.everything()
	w.createRoute(w.namespace, guideRoute, nil)
	w.says(w.namespace, "checkout-api", v1alpha1.ConditionDependenciesReady, "Unknown SecretNotChecked", "secrets")
	w.says(w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed")
	if n := r.lines("Cannot list or watch", `"secrets"`, "grant list and watch on secrets"); n != 1 {
		t.Errorf("the missing rule is named %d times in the log, want once:\n%s", n, end(r.Log(), 3000))
	}
	w.create(w.namespace, "app")
	w.converges(patience, w.namespace, "app")
	w.withSecrets()
	healed := w.saysWithin(2*time.Minute, w.namespace, "checkout-api", v1alpha1.ConditionDependenciesReady, "True DependenciesFound")
	t.Logf("healed %s after the rule was granted", healed)
	r.alive()
	w.fenced()
}

func (w *routeWorld) setPort(service string, port int) {
	w.Helper()
	if _, err := w.kube.CoreV1().Services(w.namespace).Patch(w.Context(), service, types.JSONPatchType,
		fmt.Appendf(nil, `[{"op":"replace","path":"/spec/ports/0/port","value":%d}]`, port), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *routeWorld) deleteSecret() {
	w.Helper()
	if err := w.kube.CoreV1().Secrets(w.namespace).Delete(w.Context(), "checkout-tls", metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *routeWorld) patchRoute(name, patch string) {
	w.Helper()
	if _, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// rendersTheGuide compares the children with what the guide's route asks for.
func (w *routeWorld) rendersTheGuide() {
	w.Helper()
	httpRoute, err := w.gateways.GatewayV1().HTTPRoutes(w.namespace).Get(w.Context(), "checkout-api", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	set, err := w.gateways.GatewayV1().ListenerSets(w.namespace).Get(w.Context(), "checkout-api", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	type backend struct {
		name         gatewayv1.ObjectName
		port, weight int32
	}
	type rendered struct {
		hostnames, listeners []gatewayv1.Hostname
		parent               string
		backends             []backend
		timeout              gatewayv1.Duration
		listener             string
	}
	got := rendered{hostnames: httpRoute.Spec.Hostnames}
	for _, p := range httpRoute.Spec.ParentRefs {
		got.parent += fmt.Sprint(ptr.Deref(p.Kind, ""), " ", p.Name)
	}
	for _, rule := range httpRoute.Spec.Rules {
		for _, b := range rule.BackendRefs {
			got.backends = append(got.backends, backend{b.Name, ptr.Deref(b.Port, 0), ptr.Deref(b.Weight, 0)})
		}
		if rule.Timeouts != nil {
			got.timeout = ptr.Deref(rule.Timeouts.Request, "")
		}
	}
	for _, l := range set.Spec.Listeners {
		got.listeners = append(got.listeners, ptr.Deref(l.Hostname, ""))
		got.listener = fmt.Sprint(l.Protocol, " ", l.Port, " ", ptr.Deref(l.TLS.Mode, ""), " ", l.TLS.CertificateRefs[0].Name)
	}
	want := rendered{
		hostnames: []gatewayv1.Hostname{"checkout.internal.example.com"}, listeners: []gatewayv1.Hostname{"checkout.internal.example.com"},
		parent: "ListenerSet checkout-api", backends: []backend{{"checkout", 8080, 90}, {"checkout-canary", 8080, 10}}, timeout: "2s",
		listener: "HTTPS 443 Terminate checkout-tls",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(rendered{}, backend{})); diff != "" {
		w.Errorf("rendered (-want +got):\n%s", diff)
	}
}

var mapping = regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) rw.. `)

// hasNotSeen looks for a value in all of a process's memory, as it is and in base64.
func (r *replica) hasNotSeen(value string) {
	r.w.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", r.PID()))
	if err != nil {
		r.w.Logf("its memory cannot be looked at: %v", err)
		return
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", r.PID()))
	if err != nil {
		r.w.Logf("its memory cannot be looked at: %v", err)
		return
	}
	defer memory.Close()
	looked, control := 0, false
	for _, m := range mapping.FindAllStringSubmatch(string(maps), -1) {
		from, _ := strconv.ParseUint(m[1], 16, 64)
		to, _ := strconv.ParseUint(m[2], 16, 64)
		if to-from > 1<<30 || strings.HasPrefix(m[1], "ffff") {
			continue
		}
		page := make([]byte, to-from)
		n, _ := memory.ReadAt(page, int64(from))
		looked += n
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value))} {
			if bytes.Contains(page[:n], []byte(form)) {
				r.w.Errorf("the value of a Secret is in the memory of the process, at %s", m[1])
			}
		}
		control = control || bytes.Contains(page[:n], []byte("checkout.internal.example.com"))
	}
	if !control {
		r.w.Errorf("%d bytes of its memory do not have what must be there: this shows nothing", looked)
	}
}
