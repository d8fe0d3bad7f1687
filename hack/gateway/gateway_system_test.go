package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
)

const objects = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: NS}
spec:
  gatewayClassName: example
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  allowedListeners: {namespaces: {from: Same}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: shop, namespace: NS}
spec:
  parentRef: {name: public}
  listeners:
  - name: shop
    hostname: shop.example.com
    port: 443
    protocol: HTTPS
    tls: {certificateRefs: [{name: shop-tls}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: plain, namespace: NS}
spec:
  parentRefs: [{name: public}]
  hostnames: [plain.example.com]
  rules: [{backendRefs: [{name: shop, port: 8080}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: secure, namespace: NS}
spec:
  parentRefs: [{kind: ListenerSet, name: shop}]
  hostnames: [shop.example.com]
  rules: [{backendRefs: [{name: shop, port: 8080}]}]
`

// world is a namespace with these objects, and what is said of them.
type world struct {
	*testing.T
	namespace string
	kube      kubernetes.Interface
	clients   versioned.Interface
}

// says waits until the conditions of an object are those in want, as Type=Status/Reason.
func (w *world) says(what string, conditions func() ([]metav1.Condition, int64, error), want ...string) {
	w.Helper()
	controlplane.Eventually(w, 30*time.Second, what, func() (bool, string) {
		got, generation, err := conditions()
		if err != nil {
			return false, err.Error()
		}
		var have []string
		for _, c := range got {
			if c.ObservedGeneration != generation {
				return false, fmt.Sprintf("%s is of generation %d, want %d", c.Type, c.ObservedGeneration, generation)
			}
			have = append(have, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
		}
		return strings.Join(have, " ") == strings.Join(want, " "), strings.Join(have, " ")
	})
}

func (w *world) route(name string, controller gatewayv1.GatewayController) func() ([]metav1.Condition, int64, error) {
	return func() ([]metav1.Condition, int64, error) {
		r, err := w.clients.GatewayV1().HTTPRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil, 0, err
		}
		for _, p := range r.Status.Parents {
			if p.ControllerName == controller {
				return p.Conditions, r.Generation, nil
			}
		}
		return nil, 0, nil
	}
}

func (w *world) set() ([]metav1.Condition, int64, error) {
	l, err := w.clients.GatewayV1().ListenerSets(w.namespace).Get(w.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		return nil, 0, err
	}
	return l.Status.Conditions, l.Generation, nil
}

func (w *world) gateway() ([]metav1.Condition, int64, error) {
	g, err := w.clients.GatewayV1().Gateways(w.namespace).Get(w.Context(), "public", metav1.GetOptions{})
	if err != nil {
		return nil, 0, err
	}
	return g.Status.Conditions, g.Generation, nil
}

func (w *world) start(c gateway.Config) *gateway.StandIn {
	w.Helper()
	s, err := gateway.New(c)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	return s
}

const (
	first  gatewayv1.GatewayController = "example.com/stand-in"
	second gatewayv1.GatewayController = "example.com/second"
)

func TestSystemStandIn(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	if err := gateway.Install(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, namespace: cp.Namespace(t), kube: kubernetes.NewForConfigOrDie(cp.Config()), clients: versioned.NewForConfigOrDie(cp.Config())}
	s := w.start(gateway.Config{Client: cp.Config()})
	if err := cp.Apply(t.Context(), []byte(strings.ReplaceAll(objects, "NS", w.namespace))); err != nil {
		t.Fatal(err)
	}

	w.says("nothing to refer to", w.route("plain", first), "Accepted=True/Accepted", "ResolvedRefs=False/BackendNotFound")
	w.says("no certificate", w.set, "Accepted=False/ListenersNotValid", "Programmed=False/Invalid")
	w.says("on a ListenerSet that is not accepted", w.route("secure", first), "Accepted=False/NoMatchingParent", "ResolvedRefs=False/BackendNotFound")
	w.says("the Gateway is well", w.gateway, "Accepted=True/Accepted", "Programmed=True/Programmed")

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}}}
	if _, err := w.kube.CoreV1().Services(w.namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-tls"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": {}, "tls.key": {}}}
	if _, err := w.kube.CoreV1().Secrets(w.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.says("all is there", w.route("plain", first), "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	w.says("all is there", w.set, "Accepted=True/Accepted", "Programmed=True/Programmed")
	w.says("all is there", w.route("secure", first), "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	w.attached(1, 1, 1)

	s.Behave(gateway.Behavior{
		Refuse: func(kind string, o metav1.Object) (string, string) {
			if kind == "HTTPRoute" && o.GetName() == "plain" {
				return "NotOnMondays", "no"
			}
			return "", ""
		},
		Unprogrammed: func(string, metav1.Object) (string, string) { return "NoResources", "none" },
		Conditions:   []metav1.Condition{{Type: "example.com/Shiny", Status: metav1.ConditionUnknown, Reason: "NobodyKnows"}},
	})
	w.says("refused", w.route("plain", first), "Accepted=False/NotOnMondays", "ResolvedRefs=True/ResolvedRefs", "example.com/Shiny=Unknown/NobodyKnows")
	w.says("unprogrammed", w.set, "Accepted=True/Accepted", "Programmed=False/NoResources", "example.com/Shiny=Unknown/NobodyKnows")
	w.says("unprogrammed", w.gateway, "Accepted=True/Accepted", "Programmed=False/NoResources", "example.com/Shiny=Unknown/NobodyKnows")
	w.attached(0, 1, 1)

	s.Behave(gateway.Behavior{})
	w.says("well again", w.route("plain", first), "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	w.start(gateway.Config{Client: cp.Config(), Name: second})
	w.says("by a second one", w.route("plain", second), "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	w.says("and by the first", w.route("plain", first), "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")

	if err := gateway.Remove(t.Context(), cp, gateway.ListenerSets); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.set(); !apierrors.IsNotFound(err) {
		t.Errorf("after its CRD was removed: %v", err)
	}
	if _, _, err := w.gateway(); err != nil {
		t.Errorf("another CRD was removed too: %v", err)
	}
}

// attached waits for the numbers of routes on the Gateway's listener and on the
// ListenerSet's, and of ListenerSets on the Gateway.
func (w *world) attached(onGateway, onSet, sets int32) {
	w.Helper()
	controlplane.Eventually(w, 30*time.Second, "the numbers of attached objects", func() (bool, string) {
		g, err := w.clients.GatewayV1().Gateways(w.namespace).Get(w.Context(), "public", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		l, err := w.clients.GatewayV1().ListenerSets(w.namespace).Get(w.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if len(g.Status.Listeners) != 1 || len(l.Status.Listeners) != 1 || g.Status.AttachedListenerSets == nil {
			return false, "not reported"
		}
		a, b, c := g.Status.Listeners[0].AttachedRoutes, l.Status.Listeners[0].AttachedRoutes, *g.Status.AttachedListenerSets
		return a == onGateway && b == onSet && c == sets, fmt.Sprint(a, b, c)
	})
}
