package main_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// The API server is away for longer than the lease. Nobody restarts, one leads
// again, and work goes on.
func TestSystemAPIServerAway(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	applyCRDs(t, cp)
	w := newWorldOn(t, cp)
	w.install("steadwatch", "second", "third")
	var replicas []*replica
	for _, name := range []string{"steadwatch", "second", "third"} {
		r := w.start(name, replicaOptions{brief: true})
		r.awaitReady()
		replicas = append(replicas, r)
	}
	w.create(w.namespace, "before")
	w.converges(patience, w.namespace, "before")

	cp.StopAPIServer()
	w.eventually(patience, "the lead to be lost", func() (bool, string) {
		return leaders(replicas) == 0 && time.Now().After(w.lease.last().expires().Add(leaseDuration)), fmt.Sprintf("%d lead", leaders(replicas))
	})
	for _, r := range replicas {
		r.alive()
		r.healthy("/healthz")
		r.healthy("/readyz")
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually(patience, "one to lead again", func() (bool, string) {
		return leaders(replicas) == 1, fmt.Sprintf("%d lead", leaders(replicas))
	})
	w.create(w.namespace, "after")
	w.converges(patience, w.namespace, "after")
	if n := leaders(replicas); n != 1 {
		t.Errorf("%d replicas lead, want 1", n)
	}
	for _, r := range replicas {
		r.alive()
		// Each of the four kinds, and the Lease, says once that it cannot be reached.
		// (An API server that is coming up may then have another reason.)
		for _, resource := range []string{"webapps.platform.tejo.dev", "deployments.apps", "services", "configmaps"} {
			if n := r.lines("Cannot list or watch", `resource="`+resource+`"`, `reason="unreachable"`); n != 1 {
				t.Errorf("%s says %d times that %s cannot be reached, want once", r.name, n, resource)
			}
		}
		if n := r.lines("Cannot get or renew the lease", `reason="unreachable"`); n != 1 {
			t.Errorf("%s says %d times that the lease cannot be reached, want once", r.name, n)
		}
	}
	w.fenced()

	// One that starts while the API server is away.
	cp.StopAPIServer()
	for _, r := range replicas {
		r.Stop(0)
	}
	w.startsAlone(cp)
}

func (w *world) startsAlone(cp *controlplane.ControlPlane) {
	w.Helper()
	if err := cp.StartAPIServer(w.Context()); err != nil {
		w.Fatal(err)
	}
	cfg, err := cp.ServiceAccountConfig(w.Context(), w.system, "steadwatch")
	if err != nil {
		w.Fatal(err)
	}
	cp.StopAPIServer()
	r := w.startWith("steadwatch", cfg, replicaOptions{brief: true})
	log := func() int { return r.lines("Cannot list or watch", "unreachable") }
	w.eventually(patience, "it to be said for each kind", func() (bool, string) { return log() >= 4, fmt.Sprint(log()) })
	r.healthy("/healthz")
	if code, body := get(r.health, "/readyz?verbose"); code != http.StatusServiceUnavailable {
		w.Errorf("/readyz of a process that has never seen the API server: %d %s", code, body)
	}
	if err := cp.StartAPIServer(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.create(w.namespace, "at-last")
	w.converges(2*patience, w.namespace, "at-last")
	r.awaitReady()
	r.alive()
	w.fenced()
}

func leaders(replicas []*replica) int {
	n := 0
	for _, r := range replicas {
		if r.leads() {
			n++
		}
	}
	return n
}
