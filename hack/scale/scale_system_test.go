package main

import (
	"strings"
	"testing"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// The measurement itself, small: four writes a WebApp, none repeated, none after a
// restart.
func TestScale(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	o := options{n: 60, namespaces: 3, configBytes: 100, qps: 500, burst: 500}
	r, err := measure(t.Context(), cp, o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	r.print(&table, o)
	t.Log("\n" + table.String())
	if err := r.check(); err != nil {
		t.Error(err)
	}
	for _, kind := range []request{{"patch", "webapps"}, {"patch", "webapps/status"}, {"patch", "deployments"}, {"patch", "services"}} {
		if got := r.first.requests[kind]; got != o.n {
			t.Errorf("%d times %s %s for %d WebApps", got, kind.verb, kind.resource, o.n)
		}
	}
	if passes := r.first.passes["Done"]; passes < float64(o.n) {
		t.Errorf("%g passes for %d WebApps: the numbers cannot be right", passes, o.n)
	}
	if r.first.cpu <= 0 || r.first.rss <= r.empty.rss/2 || r.managedFields <= 0 {
		t.Errorf("measured nothing: %+v", r)
	}
}
