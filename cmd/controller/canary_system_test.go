package main_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

const aCanaryState = `steadwatch_canary_state{state="`

// canaryIs waits for a state of the canary in the metrics.
func (r *replica) canaryIs(state string) {
	r.w.Helper()
	r.w.eventually(patience, "the canary to be "+state, func() (bool, string) {
		v, _ := r.metric(aCanaryState + state + `"}`)
		_, body := get(r.debug, "/debug/canary")
		return v == 1, body
	})
}

// The canary of the installed product, under the manifests' rules: the leader's
// hears, a standby's stands by, and each of its rules is needed.
func TestSystemCanary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch", "second")
	flags := replicaOptions{args: []string{"--watch-canary-interval=1s", "--watch-canary-fail-after=5s"}}
	leader := w.start("steadwatch", flags)
	leader.awaitLead()
	standby := w.start("second", flags)
	leader.canaryIs("hearing")
	standby.canaryIs("standby")
	for _, r := range []*replica{leader, standby} {
		if code, body := get(r.health, "/healthz?verbose"); code != http.StatusOK || !strings.Contains(body, "[+]canary ok\n") {
			t.Errorf("/healthz of %s: %d %s", r.name, code, body)
		}
		if code, body := get(r.health, "/healthz/canary"); code != http.StatusOK || body != "ok" {
			t.Errorf("/healthz/canary of %s: %d %s", r.name, code, body)
		}
		if code, _ := get(r.health, "/readyz/canary"); code != http.StatusNotFound {
			t.Errorf("/readyz knows the canary: %d", code)
		}
	}
	if v, ok := leader.metric(`steadwatch_canary_writes_total{result="acknowledged"}`); !ok || v == 0 {
		t.Errorf("%v writes counted, %t", v, ok)
	}
	if v, ok := leader.metric("steadwatch_canary_round_trip_seconds_count"); !ok || v == 0 {
		t.Errorf("%v round trips counted, %t", v, ok)
	}

	leases := w.kube.CoordinationV1().Leases(w.system)
	var holders []string
	for _, name := range []string{"steadwatch", "steadwatch-canary"} {
		lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		holders = append(holders, *lease.Spec.HolderIdentity)
	}
	if holders[0] != holders[1] {
		t.Errorf("one process holds its Leases as %q", holders)
	}

	// Each rule taken away: named, never a failing liveness. Granted: heard.
	whole := w.getRules(true)
	for _, verb := range []string{"get", "update", "list", "watch", "create"} {
		rules := whole
		name := "steadwatch-canary"
		if verb == "create" {
			name = ""
		}
		for i := range rules {
			r := rules[i].DeepCopy()
			if verb == "create" && len(r.ResourceNames) == 0 || len(r.ResourceNames) == 1 && r.ResourceNames[0] == name {
				r.Verbs = without(r.Verbs, verb)
				rules = append(append(rules[:i:i], *r), rules[i+1:]...)
			}
		}
		rule := authorizationv1.ResourceAttributes{Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: w.system, Name: name}
		w.setRules(rules, true)
		w.awaitAllowed(leader.user, rule, false)
		switch verb {
		case "create":
			if err := leases.Delete(t.Context(), "steadwatch-canary", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		case "list", "watch":
			// An open watch goes on. Nothing ends it here but a new leader.
			leader.Stop(20 * time.Second)
			leader = w.start("steadwatch", flags)
			standby.Stop(20 * time.Second)
			leader.awaitLead()
			standby = w.start("second", flags)
		}
		leader.canaryIs("forbidden")
		_, body := get(leader.debug, "/debug/canary")
		for _, word := range []string{"may not " + verb + " leases", "kubectl -n " + w.system + " create role", "--serviceaccount=" + w.system + ":steadwatch"} {
			if !strings.Contains(body, word) {
				t.Errorf("without %s: %q is not in %s", verb, word, body)
			}
		}
		w.eventually(patience, "it to be named in the log", func() (bool, string) { // after the state has changed
			return leader.lines("The canary lacks a permission", "may not "+verb) > 0, end(leader.Log(), 3000)
		})
		if n := leader.lines("The canary lacks a permission", "may not "+verb); n != 1 {
			t.Errorf("without %s: named %d times, want once:\n%s", verb, n, end(leader.Log(), 3000))
		}
		for range 5 {
			leader.healthy("/healthz")
		}
		w.setRules(whole, true)
		w.awaitAllowed(leader.user, rule, true)
		allowed := time.Now()
		leader.canaryIs("hearing")
		t.Logf("without %s: heard %s after it was granted", verb, time.Since(allowed).Round(time.Millisecond))
		leader.alive()
	}
	// With the manifests' rules nothing was refused, and the canary asked for no more
	// than the one Lease.
	for _, e := range w.audit(controlplane.StageResponseComplete, []string{leader.user}, func(e controlplane.AuditEvent) bool {
		return e.Resource == "leases" && (e.Verb == "list" || e.Verb == "watch")
	}) {
		if e.Namespace != w.system || e.Name != "steadwatch-canary" {
			t.Errorf("%s %s is about more than the canary's Lease", e.Verb, e.RequestURI)
		}
	}
}

func without(verbs []string, verb string) []string {
	var out []string
	for _, v := range verbs {
		if v != verb {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		return []string{"deletecollection"} // no rule may be empty, and nothing uses this one
	}
	return out
}
