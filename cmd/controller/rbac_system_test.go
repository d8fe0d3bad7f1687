package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// watchFor is how long a missing rule is looked at: enough for the retries to show
// whether they flood the log.
const watchFor = 20 * time.Second

// Each rule of the manifests, taken away alone: one clear message that names it,
// quiet retries, and healed without a restart once it is granted.
func TestSystemMissingRule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason   string
		resource string
		verbs    []string
		lease    bool
		// words are in the line that names the rule; at most lines of them, for two objects.
		words []string
		lines int
		// state is where else it can be seen. Nil: nowhere.
		state func(r *replica) string
		// meanwhile checks what goes on without the rule. Nil: nothing is promised.
		meanwhile func(w *world)
	}{
		"list configmaps": {
			reason:   "one local copy cannot be filled: it says so, and the others are; the controller that needs it waits",
			resource: "configmaps", verbs: []string{"list", "watch"},
			words: []string{"Cannot list or watch", "configmaps", "forbidden", "grant list and watch on configmaps"}, lines: 1,
			state: func(r *replica) string {
				r.informerIs("configmaps", "unlistable")
				for _, other := range []string{"webapps.platform.tejo.dev", "deployments.apps", "services"} {
					r.informerIs(other, "hearing")
				}
				_, body := get(r.debug, "/debug/informers")
				return body
			},
			meanwhile: func(w *world) {
				if got := w.writes(w.users...); len(got) != 0 {
					w.Errorf("%s %s was written although a cache is missing", got[0].Verb, got[0].RequestURI)
				}
			},
		},
		"patch services": {
			reason:   "the Deployment is made all the same, the condition and the queue name the rule",
			resource: "services", verbs: []string{"create", "patch"},
			words: []string{"Reconcile failed", "cannot", "services"}, lines: 10,
			meanwhile: func(w *world) { w.hasDeployment("app") },
			state: func(r *replica) string {
				_, body := get(r.debug, "/debug/queue")
				return body
			},
		},
		"patch webapps/status": {
			reason:   "the children are made all the same, the queue names the rule",
			resource: "webapps/status", verbs: []string{"patch"},
			words: []string{"Reconcile failed", "cannot patch", "webapps/status"}, lines: 10,
			meanwhile: func(w *world) {
				w.hasDeployment("app")
				if _, err := w.kube.CoreV1().Services(w.namespace).Get(w.Context(), "app", metav1.GetOptions{}); err != nil {
					w.Error(err)
				}
			},
			state: func(r *replica) string {
				_, body := get(r.debug, "/debug/queue")
				return body
			},
		},
		"create events": {
			reason:   "an Event is worth no failure",
			resource: "events", verbs: []string{"create", "patch"},
			words: []string{"Event not written", "cannot create", "events"}, lines: 2,
			meanwhile: func(w *world) { w.converges(patience, w.namespace, "app") },
		},
		"update leases": {
			reason:   "nobody can lead: the log names the rule, and the process stays up",
			resource: "leases", verbs: []string{"update"}, lease: true,
			words: []string{"Cannot get or renew the lease", "cannot update", "grant create on leases, and get and update"}, lines: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "steadwatch")
			whole := w.getRules(c.lease)
			lacking := w.without(whole, c.resource, c.verbs...)
			w.setRules(lacking, c.lease)
			rule := authorizationv1.ResourceAttributes{Verb: c.verbs[0], Resource: c.resource, Namespace: w.namespace}
			if c.lease {
				rule.Group, rule.Namespace, rule.Name = "coordination.k8s.io", w.system, "steadwatch"
			}
			if resource, sub, found := strings.Cut(c.resource, "/"); found {
				rule.Group, rule.Resource, rule.Subresource = "platform.tejo.dev", resource, sub
			}
			w.awaitAllowed(w.user("steadwatch"), rule, false)

			r := w.start("steadwatch", replicaOptions{})
			w.create(w.namespace, "app")
			w.createReferring(w.namespace, "refers", "absent") // which is worth an Event
			w.eventually(patience, "the missing rule to be named", func() (bool, string) { return r.lines(c.words...) > 0, end(r.Log(), 3000) })
			w.during(watchFor, func() {})
			n := r.lines(c.words...)
			t.Logf("%s: %d lines in %s", name, n, watchFor)
			if n > c.lines {
				t.Errorf("%s: named %d times in %s, want at most %d:\n%s", c.reason, n, watchFor, c.lines, end(r.Log(), 3000))
			}
			if forbidden := w.audit(controlplane.StageResponseComplete, w.users, func(e controlplane.AuditEvent) bool { return e.Code == http.StatusForbidden }); len(forbidden) == 0 {
				t.Errorf("nothing was refused: this shows nothing")
			} else {
				t.Logf("%d requests refused", len(forbidden))
			}
			r.healthy("/healthz")
			r.healthy("/readyz")
			if c.state != nil {
				if got := c.state(r); !strings.Contains(got, "cannot") || !strings.Contains(got, strings.Split(c.resource, "/")[0]) {
					t.Errorf("%s: the debug page does not name it:\n%s", c.reason, got)
				}
			}
			if c.meanwhile != nil {
				c.meanwhile(w)
			}
			r.alive()

			w.setRules(whole, c.lease)
			w.awaitAllowed(w.user("steadwatch"), rule, true)
			w.converges(patience+30*time.Second, w.namespace, "app")
			w.create(w.namespace, "later")
			w.converges(patience, w.namespace, "later")
			r.alive()
			w.fenced()
		})
	}
}

func (w *world) hasDeployment(name string) {
	w.Helper()
	if _, err := w.kube.AppsV1().Deployments(w.namespace).Get(w.Context(), name, metav1.GetOptions{}); err != nil {
		w.Error(err)
	}
}

// informerIs waits for an informer's state in the metrics.
func (r *replica) informerIs(resource, state string) {
	r.w.Helper()
	series := fmt.Sprintf(`steadwatch_informer_state{resource=%q,state=%q}`, resource, state)
	r.w.eventually(patience, series, func() (bool, string) {
		v, ok := r.metric(series)
		return v == 1, fmt.Sprint(v, ok)
	})
}
