package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayversioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	"sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// flip is how soon a condition has to follow what it is about: 5 s, and three times that
// on machines that run other tests meanwhile. How long the slowest took is logged.
const flip = 15 * time.Second

// routeWorld is a world with the Gateway API and a gateway that reports.
type routeWorld struct {
	*world
	gateways gatewayversioned.Interface
	standIn  *gateway.StandIn
	mu       sync.Mutex
	slowest  time.Duration // of all flips
}

var gatewayCRDs sync.Once

func newRouteWorld(t *testing.T, replicas ...string) *routeWorld {
	t.Helper()
	w := newSilentRouteWorld(t, replicas...)
	w.standIn = w.startStandIn("", w.namespace)
	return w
}

// newSilentRouteWorld has no gateway that reports.
func newSilentRouteWorld(t *testing.T, replicas ...string) *routeWorld {
	t.Helper()
	installGatewayCRDs(t, plane.ForTest(t))
	return routeWorldOf(newWorld(t, replicas...))
}

// installGatewayCRDs installs them once for all tests.
func installGatewayCRDs(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	gatewayCRDs.Do(func() {
		if err := gateway.Install(t.Context(), cp); err != nil {
			t.Fatal(err)
		}
	})
}

// routeWorldOf has whatever Gateway API the world has, and no gateway that reports.
func routeWorldOf(w *world) *routeWorld {
	return &routeWorld{world: w, gateways: gatewayversioned.NewForConfigOrDie(w.plane.Config())}
}

func (w *routeWorld) startStandIn(name gatewayv1.GatewayController, namespaces ...string) *gateway.StandIn {
	w.Helper()
	s, err := gateway.New(gateway.Config{Client: w.plane.Config(), Name: name, Namespaces: namespaces})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("stand-in for a gateway: %v", err)
		}
	})
	return s
}

// withSecrets grants what manifests/components/tls-secrets does.
func (w *routeWorld) withSecrets() {
	w.Helper()
	data, err := os.ReadFile("../../manifests/components/tls-secrets/kustomization.yaml")
	if err != nil {
		w.Fatal(err)
	}
	var component struct {
		Patches []struct {
			Target struct{ Kind string }
			Patch  string
		}
	}
	w.decode(string(data), &component)
	for _, p := range component.Patches {
		if p.Target.Kind != "ClusterRole" {
			continue
		}
		patch, err := yaml.YAMLToJSON([]byte(p.Patch))
		if err != nil {
			w.Fatal(err)
		}
		if _, err := w.kube.RbacV1().ClusterRoles().Patch(w.Context(), w.clusterRole(), types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
		for _, user := range w.users {
			w.awaitAllowed(user, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "secrets", Namespace: w.namespace}, true)
		}
		return
	}
	w.Fatal("the component tls-secrets grants nothing")
}

// guideRoute is the route that the documentation shows.
const guideRoute = `
apiVersion: networking.tejo.dev/v1alpha1
kind: ApplicationRoute
metadata: {name: checkout-api}
spec:
  hostnames: [checkout.internal.example.com]
  backends:
  - {service: checkout, port: 8080, weight: 90}
  - {service: checkout-canary, port: 8080, weight: 10}
  tlsSecret: checkout-tls
  timeout: 2s
`

// createRoute creates an ApplicationRoute after change has changed it.
func (w *routeWorld) createRoute(namespace, manifest string, change func(*v1alpha1.ApplicationRoute)) *v1alpha1.ApplicationRoute {
	w.Helper()
	route := &v1alpha1.ApplicationRoute{}
	w.decode(manifest, route)
	if change != nil {
		change(route)
	}
	created, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(namespace).Create(w.Context(), route, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

// plainRoute is one without a Secret, with the one backend "web".
func (w *routeWorld) plainRoute(namespace, name, gatewayNamespace string, hostnames ...string) *v1alpha1.ApplicationRoute {
	w.Helper()
	return w.createRoute(namespace, guideRoute, func(r *v1alpha1.ApplicationRoute) {
		r.Name, r.Spec.Hostnames, r.Spec.TLSSecret, r.Spec.Timeout = name, hostnames, "", nil
		r.Spec.Backends = []v1alpha1.Backend{{Service: "web", Port: 80}}
		r.Spec.Gateway = &v1alpha1.GatewayReference{Namespace: gatewayNamespace, Name: "public"}
	})
}

func (w *routeWorld) createService(namespace, name string, port int32) {
	w.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}}}
	if _, err := w.kube.CoreV1().Services(namespace).Create(w.Context(), service, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// secretValue is in every Secret of these tests: it must be nowhere else.
const secretValue = "this must not be seen by a controller"

func (w *routeWorld) createSecret(name string, kind corev1.SecretType) {
	w.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name},
		Type: kind, StringData: map[string]string{"tls.crt": secretValue, "tls.key": secretValue}}
	if _, err := w.kube.CoreV1().Secrets(w.namespace).Create(w.Context(), secret, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *routeWorld) createGateway(namespace string) {
	w.Helper()
	g := &gatewayv1.Gateway{}
	w.decode(`
metadata: {name: public}
spec:
  gatewayClassName: example
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  allowedListeners: {namespaces: {from: Same}}
`, g)
	if _, err := w.gateways.GatewayV1().Gateways(namespace).Create(w.Context(), g, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// everything creates all that the guide's route refers to.
func (w *routeWorld) everything() {
	w.Helper()
	w.createService(w.namespace, "checkout", 8080)
	w.createService(w.namespace, "checkout-canary", 8080)
	w.createSecret("checkout-tls", corev1.SecretTypeTLS)
	w.createGateway(w.namespace)
}

// says waits until a condition of the current generation is "Status Reason", and its
// message has all the words. It returns how long that took, which is logged if that is
// longer than a flip.
func (w *routeWorld) says(namespace, name, conditionType, want string, words ...string) time.Duration {
	w.Helper()
	return w.saysWithin(patience, namespace, name, conditionType, want, words...)
}

func (w *routeWorld) saysWithin(within time.Duration, namespace, name, conditionType, want string, words ...string) time.Duration {
	w.Helper()
	began := time.Now()
	w.eventually(within, fmt.Sprintf("%s of ApplicationRoute %s/%s to be %s", conditionType, namespace, name, want), func() (bool, string) {
		return w.saysNow(namespace, name, conditionType, want, words...)
	})
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slowest = max(w.slowest, took)
	return took
}

func (w *routeWorld) saysNow(namespace, name, conditionType, want string, words ...string) (bool, string) {
	route, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return false, err.Error()
	}
	state := describe(route.Status.Conditions)
	c := meta.FindStatusCondition(route.Status.Conditions, conditionType)
	if c == nil || c.ObservedGeneration != route.Generation || route.Status.ObservedGeneration != route.Generation {
		return false, fmt.Sprintf("generation %d: %s", route.Generation, state)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			return false, state
		}
	}
	return string(c.Status)+" "+c.Reason == want, state
}

func describe(conditions []metav1.Condition) string {
	var all []string
	for _, c := range conditions {
		all = append(all, fmt.Sprintf("%s=%s %s of %d (%s)", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message))
	}
	return strings.Join(all, "\n")
}

// flips is says, with the bound that the product is held to; what is over it fails.
func (w *routeWorld) flips(what, conditionType, want string, words ...string) {
	w.Helper()
	if took := w.says(w.namespace, "checkout-api", conditionType, want, words...); took > flip {
		w.Errorf("%s: %s became %s after %s, want %s", what, conditionType, want, took, flip)
	}
}

// httpRoute waits for an HTTPRoute that f likes; a nil f likes any.
func (w *routeWorld) httpRoute(namespace, name, what string, f func(*gatewayv1.HTTPRoute) bool) *gatewayv1.HTTPRoute {
	w.Helper()
	var last *gatewayv1.HTTPRoute
	w.eventually(patience, fmt.Sprintf("HTTPRoute %s/%s: %s", namespace, name, what), func() (bool, string) {
		r, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		last = r
		spec, _ := json.Marshal(r.Spec)
		return f == nil || f(r), string(spec)
	})
	return last
}

func offers(hostnames ...gatewayv1.Hostname) func(*gatewayv1.HTTPRoute) bool {
	return func(r *gatewayv1.HTTPRoute) bool { return slices.Equal(r.Spec.Hostnames, hostnames) }
}

func (w *routeWorld) noHTTPRoute(namespace, name string) {
	w.Helper()
	w.eventually(patience, fmt.Sprintf("HTTPRoute %s/%s to go", namespace, name), func() (bool, string) {
		_, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Get(w.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// writesOf are the mutating requests of the replicas on a resource since then, Events
// left out.
func (w *routeWorld) writesSince(since time.Time) []string {
	w.Helper()
	var all []string
	for _, e := range w.writes(w.users...) {
		if e.Resource == "events" || e.RequestReceived.Before(since) {
			continue
		}
		resource := e.Resource
		if e.Subresource != "" {
			resource += "/" + e.Subresource
		}
		all = append(all, fmt.Sprintf("%s %s %s/%s", e.Verb, resource, e.Namespace, e.Name))
	}
	return all
}

// idle waits until a replica has written nothing for a while.
func (w *routeWorld) idle() {
	w.Helper()
	last, since := -1, time.Now()
	w.eventually(patience, "the controllers to write nothing any more", func() (bool, string) {
		w.during(500*time.Millisecond, func() {}) // the audit log is long
		now := w.writesSince(time.Time{})
		if len(now) != last {
			last, since = len(now), time.Now()
		}
		return time.Since(since) > 3*time.Second, strings.Join(now[max(0, len(now)-5):], ", ")
	})
}

// notForbidden fails if a request of the replicas was refused.
func (w *routeWorld) notForbidden() {
	w.Helper()
	for _, e := range w.audit(controlplane.StageResponseComplete, w.users, nil) {
		if e.Code == 401 || e.Code == 403 {
			w.Errorf("%s %s was refused: %d", e.Verb, e.RequestURI, e.Code)
		}
	}
}
