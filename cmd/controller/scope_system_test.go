package main_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// R82: with rights in two namespaces only, it works there, and never asks for
// anything that spans namespaces.
func TestSystemNamespaces(t *testing.T) {
	t.Parallel()
	cp := plane.ForTest(t)
	crds.Do(func() { applyCRDs(t, cp) })
	w := newWorldOn(t, cp)
	other, foreign := cp.Namespace(t), cp.Namespace(t)
	w.installScoped(false, "steadwatch")
	w.bindIn(w.namespace)
	w.bindIn(other)

	w.create(foreign, "app")
	w.create(w.namespace, "app")
	r := w.start("steadwatch", replicaOptions{args: []string{"--namespaces=" + other + "," + w.namespace}})
	r.awaitReady()
	r.awaitLead()
	w.create(other, "app")
	w.converges(patience, w.namespace, "app")
	w.converges(patience, other, "app")
	// A pass begun after all that, so that one in the third namespace would have had
	// its turn.
	w.create(w.namespace, "last")
	w.converges(patience, w.namespace, "last")

	all := w.audit(controlplane.StageRequestReceived, w.users, nil)
	seen := map[string]bool{}
	for _, e := range all {
		seen[e.Verb+" "+e.Namespace] = true
		switch e.Namespace {
		case w.namespace, other:
		case w.system:
			if e.Resource != "leases" {
				t.Errorf("%s %s: in its own namespace it needs its Lease and nothing else", e.Verb, e.RequestURI)
			}
		case "":
			t.Errorf("%s %s spans namespaces", e.Verb, e.RequestURI)
		default:
			t.Errorf("%s %s is outside its namespaces", e.Verb, e.RequestURI)
		}
	}
	for _, e := range w.audit(controlplane.StageResponseComplete, w.users, nil) {
		if e.Code == 401 || e.Code == 403 {
			t.Errorf("%s %s was refused: %d", e.Verb, e.RequestURI, e.Code)
		}
	}
	if !seen["watch "+w.namespace] || !seen["watch "+other] || !seen["patch "+other] {
		t.Errorf("requests seen: %v: too few to show anything", seen)
	}
	if ok, state := w.converged(foreign, "app"); ok {
		t.Errorf("the WebApp of a third namespace converged: %s", state)
	}
	w.fenced()
}

// R19: probes and metrics are served before any cache is filled, and a kind whose
// requests hang delays no other.
func TestSystemOneKindHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch")
	proxy := w.proxy()
	frozen := proxy.Add(faultproxy.Rule{
		Match:  faultproxy.Match{Verbs: []string{"list", "watch"}, Resource: "configmaps"},
		Freeze: faultproxy.FreezeStream,
	})
	r := w.start("steadwatch", replicaOptions{proxy: proxy})
	for _, other := range []string{webAppsResource, "deployments.apps", "services"} {
		r.informerIs(other, "hearing")
	}
	r.informerIs("configmaps", "starting")
	r.awaitLead()
	r.healthy("/healthz")
	if code, body := get(r.health, "/readyz?verbose"); code != http.StatusServiceUnavailable || !strings.Contains(body, "configmaps") {
		t.Errorf("/readyz: %d %s, want one that names what it waits for", code, body)
	}
	w.create(w.namespace, "app")
	frozen.Remove()
	w.converges(patience, w.namespace, "app")
	r.awaitReady()
	r.alive()
	w.fenced()
}
