package system_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// gate holds requests in the proxy until it is opened.
type gate struct {
	*faultproxy.Fault
	open chan struct{}
}

// hold stops the next n requests that match before they reach the API server; 0:
// all.
func hold(proxy *faultproxy.Proxy, n int, match faultproxy.Match) *gate {
	g := &gate{open: make(chan struct{})}
	g.Fault = proxy.Add(faultproxy.Rule{Match: match, Times: n, Hold: func(ctx context.Context, _ faultproxy.Request) {
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}})
	return g
}

// reached waits until a request is held.
func (w *world) reached(f *faultproxy.Fault, what string) {
	w.Helper()
	w.eventually(patience, what, func() (bool, string) { return f.Hits() > 0, "no such request" })
}

var (
	applyDeployment = faultproxy.Match{Verbs: []string{"patch"}, Resource: "deployments"}
	applyService    = faultproxy.Match{Verbs: []string{"patch"}, Resource: "services"}
	applyStatus     = faultproxy.Match{Verbs: []string{"patch"}, Resource: "webapps", Subresource: "status"}
	applyFinalizer  = faultproxy.Match{Verbs: []string{"patch"}, Resource: "webapps", Subresource: "-"}
)

// effects is what the writes to a test's objects have come to.
type effects struct {
	deployments, services *history[string]
	webApps               *history[string] // resourceVersions
}

func (w *world) recordEffects() effects {
	return effects{
		deployments: record(w, "deployments", ourPart),
		services:    record(w, "services", ourPart),
		webApps: record(w, "webapps", func(object runtime.Object) string {
			app := object.(*v1alpha1.WebApp)
			return cache.MetaObjectToName(app).String() + " " + app.ResourceVersion
		}),
	}
}

// A write whose answer is lost has been made, or not. It may be sent once more,
// which then changes nothing (R64), and nothing is made twice.
func TestAnswerLost(t *testing.T) {
	cases := map[string]struct {
		reason string
		match  faultproxy.Match
	}{
		"Finalizer":  {"nothing has been made yet", applyFinalizer},
		"Deployment": {"a second one must not come of it", applyDeployment},
		"Service":    {"a second one must not come of it", applyService},
		"Status":     {"it was computed before it was sent, and is not out of date yet", applyStatus},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			proxy := w.proxy()
			p := w.start(proxy)
			fault := proxy.Add(faultproxy.Rule{Match: tc.match, Times: 1, DropResponse: true, Close: faultproxy.ResetStream})
			seen := w.recordEffects()
			since := time.Now()
			w.create(newApp("web"))
			w.ready("web")
			p.settles()
			if fault.Hits() != 1 {
				t.Fatalf("%d answers were lost, want 1", fault.Hits())
			}

			// A conflict is no write: it has changed nothing and cannot.
			writes := w.accepted(since)
			effects := map[string]int{
				"patch deployments web": len(distinct(seen.deployments.all())),
				"patch services web":    len(distinct(seen.services.all())),
			}
			if effects["patch deployments web"] != 1 || effects["patch services web"] != 1 {
				t.Errorf("%s: versions of the children by us: %v, want 1 each\n%q", tc.reason, effects, seen.deployments.all())
			}
			// One version is the user's create, one the finalizer's.
			effects["patch webapps web"] = 1
			effects["patch webapps/status web"] = len(distinct(seen.webApps.all())) - 2
			sent, made := 0, 0
			for write, n := range effects {
				if writes[write] > n+1 {
					t.Errorf("%s: %q was sent %d times to make %d changes", tc.reason, write, writes[write], n)
				}
				sent, made = sent+writes[write], made+n
			}
			if sent > made+1 {
				t.Errorf("%s: %d writes for %d changes, and only one answer was lost: %v", tc.reason, sent, made, writes)
			}
		})
	}
}
