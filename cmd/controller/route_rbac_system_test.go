package main_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// Each rule that is there for ApplicationRoutes, taken away alone: WebApps do not notice,
// the condition of the route names what is missing, or the log where there can be none,
// and it heals without a restart once the rule is granted.
func TestSystemRouteMissingRule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason          string
		group, resource string
		verbs           []string
		// condition says what is missing. Empty: the log does, in a line with these words.
		condition, want string
		words           []string
	}{
		"list httproutes": {
			reason: "nothing is written where nothing can be seen", group: "gateway.networking.k8s.io", resource: "httproutes", verbs: []string{"list", "watch"},
			condition: v1alpha1.ConditionReady, want: "False GatewayAPIForbidden", words: []string{"httproutes", "grant"},
		},
		"patch httproutes": {
			reason: "seen and not writable", group: "gateway.networking.k8s.io", resource: "httproutes", verbs: []string{"create", "patch"},
			condition: v1alpha1.ConditionReady, want: "False Forbidden", words: []string{"cannot", "httproutes"},
		},
		"list listenersets": {
			reason: "the same for what a tlsSecret needs", group: "gateway.networking.k8s.io", resource: "listenersets", verbs: []string{"list", "watch"},
			condition: v1alpha1.ConditionReady, want: "False GatewayAPIForbidden", words: []string{"listenersets", "grant"},
		},
		"list gateways": {
			reason: "only what is said of the Gateway itself is lost", group: "gateway.networking.k8s.io", resource: "gateways", verbs: []string{"list", "watch"},
			condition: v1alpha1.ConditionReady, want: "True Programmed", words: []string{"gateways", "grant"},
		},
		"list applicationroutes": {
			reason: "there is no status then", group: "networking.tejo.dev", resource: "applicationroutes", verbs: []string{"list", "watch"},
			words: []string{"Cannot list or watch", "applicationroutes.networking.tejo.dev", "grant list and watch on applicationroutes"},
		},
		"patch applicationroutes/status": {
			reason: "there is no status then", group: "networking.tejo.dev", resource: "applicationroutes/status", verbs: []string{"patch"},
			words: []string{"Reconcile failed", "cannot patch", "applicationroutes/status"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRouteWorld(t, "a")
			whole := w.getRules(false)
			w.setRules(w.without(whole, c.resource, c.verbs...), false)
			rule := authorizationv1.ResourceAttributes{Verb: c.verbs[0], Group: c.group, Resource: c.resource, Namespace: w.namespace}
			if c.resource == "applicationroutes/status" {
				rule.Resource, rule.Subresource = "applicationroutes", "status"
			}
			w.awaitAllowed(w.user("a"), rule, false)
			r := w.start("a", replicaOptions{args: []string{"--default-gateway=" + w.namespace + "/public"}})
			r.awaitLead()
			w.everything()
			w.createRoute(w.namespace, guideRoute, nil)
			w.create(w.namespace, "app")
			w.converges(patience, w.namespace, "app")
			if c.condition != "" {
				w.says(w.namespace, "checkout-api", c.condition, c.want, c.words...)
			} else {
				w.eventually(patience, "the log to name it", func() (bool, string) { return r.lines(c.words...) > 0, end(r.Log(), 3000) })
			}
			if c.resource == "applicationroutes/status" {
				w.httpRoute(w.namespace, "checkout-api", "rendered although the status cannot be written", nil)
			}
			before, began := r.lines("cannot"), time.Now()
			w.during(5*time.Second, r.alive)
			refused := len(w.audit(controlplane.StageResponseComplete, w.users, func(e controlplane.AuditEvent) bool {
				return e.Code == http.StatusForbidden && e.RequestReceived.After(began)
			}))
			lines := r.lines("cannot") - before
			t.Logf("%s: in 5 s %d lines and %d requests that are refused", name, lines, refused)
			if lines > 6 || refused > 30 {
				t.Errorf("%s: in 5 s %d lines and %d requests that are refused, want 6 and 30 at most", c.reason, lines, refused)
			}
			r.healthy("/healthz")
			r.healthy("/readyz")

			w.setRules(whole, false)
			rule.Namespace = w.namespace
			w.awaitAllowed(w.user("a"), rule, true)
			took := w.saysWithin(heals, w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed", "by HTTPS")
			t.Logf("%s: healed %s after it was granted", name, took.Round(100*time.Millisecond))
			if c.resource == "gateways" {
				w.eventually(heals, "the Gateway to count again", func() (bool, string) {
					route, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Get(t.Context(), "checkout-api", metav1.GetOptions{})
					if err != nil {
						return false, err.Error()
					}
					said := describe(route.Status.Conditions)
					ok, _ := w.saysNow(w.namespace, "checkout-api", v1alpha1.ConditionReady, "True Programmed", "grant")
					return !ok, fmt.Sprint(said)
				})
			}
			r.alive()
			w.fenced()
		})
	}
}
