package applicationroute

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

func TestAvailability(t *testing.T) {
	now := time.Unix(1000, 0)
	unlistable := func(reason informer.Reason) informer.Snapshot {
		return informer.Snapshot{State: informer.StateUnlistable, Reason: reason, Message: "the server's words", Since: now.Add(-time.Minute)}
	}
	missing := &conditions.Problem{Reason: reasonGatewayAPIMissing, Lasting: true,
		Message: "HTTPRoute of gateway.networking.k8s.io/v1 is not served: install the Gateway API CRDs, v1.5 or later"}
	cases := map[string]struct {
		reason   string
		synced   bool
		snapshot informer.Snapshot
		settling time.Duration
		problem  *conditions.Problem
	}{
		"Hearing":  {"", true, informer.Snapshot{State: informer.StateHearing}, 0, nil},
		"Polling":  {"late is not missing", true, informer.Snapshot{State: informer.StatePolling}, 0, nil},
		"Starting": {"a start of the process is no news", false, informer.Snapshot{State: informer.StateStarting, Since: now.Add(-10 * time.Second)}, 20 * time.Second, notListed("no answer")},
		"Hangs":    {"but one that does not end is", false, informer.Snapshot{State: informer.StateStarting, Since: now.Add(-time.Minute)}, 0, notListed("no answer")},
		"NotRun":   {"not even started", false, informer.Snapshot{State: informer.StateStarting}, settleTime, notListed("no answer")},
		"Missing":  {"there is nothing to wait for", false, unlistable(informer.NotFound), 0, missing},
		"Removed":  {"while the process runs", true, unlistable(informer.NotFound), 0, missing},
		"Forbidden": {"the missing rule is named", false, unlistable(informer.Forbidden), 0, &conditions.Problem{Reason: reasonGatewayAPIForbidden, Lasting: true,
			Message: "HTTPRoute of gateway.networking.k8s.io/v1 must not be read: grant get, list and watch on httproutes.gateway.networking.k8s.io in all namespaces (ClusterRole) to the controller's ServiceAccount"}},
		"Conversion": {"writes would fail as well", true, unlistable(informer.Conversion), 0, &conditions.Problem{Reason: reasonGatewayAPIUnavailable, Lasting: true,
			Message: "HTTPRoute of gateway.networking.k8s.io/v1 cannot be listed (conversion): the server's words"}},
		"Outage":        {"20,000 statuses are not rewritten because the API server is away", true, unlistable(informer.Unreachable), 0, nil},
		"OutageAtStart": {"nothing is known yet", false, unlistable(informer.Unreachable), 0, notListed("unreachable")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &availability{kind: kindHTTPRoute, source: &fakeSource{resource: httpRoutesResource, synced: tc.synced, snapshot: tc.snapshot}}
			if got := a.settling("shop", now); got != tc.settling {
				t.Errorf("%s: settling for %s, want %s", tc.reason, got, tc.settling)
			}
			if diff := cmp.Diff(tc.problem, a.problem("shop")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func notListed(why string) *conditions.Problem {
	return &conditions.Problem{Reason: reasonGatewayAPIUnavailable, Message: "HTTPRoute of gateway.networking.k8s.io/v1 has not been listed yet (" + why + ")"}
}

// A Role that is missing in one namespace concerns the routes there alone.
func TestAvailabilityOfNamespaces(t *testing.T) {
	a := &availability{kind: kindHTTPRoute, source: &fakeSource{resource: httpRoutesResource, snapshot: informer.Snapshot{
		State: informer.StateUnlistable, Reason: informer.Forbidden, Namespaces: []informer.Snapshot{
			{Namespace: "a", State: informer.StateHearing}, {Namespace: "b", State: informer.StateUnlistable, Reason: informer.Forbidden},
		}}}}
	if p := a.problem("a"); p != nil {
		t.Errorf("in namespace a: %+v", p)
	}
	const want = `HTTPRoute of gateway.networking.k8s.io/v1 must not be read: grant get, list and watch on httproutes.gateway.networking.k8s.io in namespace "b" (Role) to the controller's ServiceAccount`
	if p := a.problem("b"); p == nil || p.Message != want {
		t.Errorf("in namespace b: %+v", p)
	}
}

// A Snapshot looks at every object: it is asked for when something has changed, and
// every route is woken only if that is anything to it.
func TestAvailabilityIsAskedForOnChanges(t *testing.T) {
	source := &fakeSource{resource: httpRoutesResource, synced: true, snapshot: informer.Snapshot{State: informer.StateHearing}}
	a := &availability{kind: kindHTTPRoute, source: source}
	for range 100 {
		a.problem("shop")
		a.settling("shop", time.Now())
	}
	if source.asked != 1 {
		t.Errorf("asked %d times, want once", source.asked)
	}
	for n, step := range []struct {
		snapshot informer.Snapshot
		changed  bool
	}{
		{informer.Snapshot{State: informer.StateHearing}, true}, // the first word
		{informer.Snapshot{State: informer.StateHearing}, false},
		{informer.Snapshot{State: informer.StatePolling}, false},
		{informer.Snapshot{State: informer.StateUnlistable, Reason: informer.NotFound}, true},
		{informer.Snapshot{State: informer.StateUnlistable, Reason: informer.NotFound, Message: "other words"}, false},
		{informer.Snapshot{State: informer.StateHearing}, true},
	} {
		source.snapshot = step.snapshot
		if got := a.refresh(); got != step.changed {
			t.Errorf("step %d: changed %t, want %t", n, got, step.changed)
		}
	}
}

// A pass that finds the copy filled before its OnState is called must not cost those
// that wait for it their call.
func TestAvailabilitySeenByAPassFirst(t *testing.T) {
	source := &fakeSource{resource: httpRoutesResource, snapshot: informer.Snapshot{State: informer.StateStarting}}
	a := &availability{kind: kindHTTPRoute, source: source}
	a.refresh()
	if a.settling("shop", time.Now()) == 0 {
		t.Fatal("a copy that is being filled is not waited for")
	}
	source.synced, source.snapshot = true, informer.Snapshot{State: informer.StateHearing}
	if a.settling("shop", time.Now()) > 0 {
		t.Error("a copy that has been filled is waited for")
	}
	if !a.refresh() {
		t.Error("nobody is woken")
	}
}

// A pass that finds the copy filled, before its change of state is told, must not keep
// that from the others, which have been told that it is not.
func TestAvailabilityTellsWhatAPassSawFirst(t *testing.T) {
	source := &fakeSource{resource: httpRoutesResource, snapshot: informer.Snapshot{State: informer.StateStarting}}
	a := &availability{kind: kindHTTPRoute, source: source}
	if a.problem("shop") == nil {
		t.Fatal("a copy that has not been filled is no problem")
	}
	source.snapshot, source.synced = informer.Snapshot{State: informer.StateHearing}, true
	if p := a.problem("shop"); p != nil {
		t.Fatalf("once it is filled: %+v", p)
	}
	if !a.refresh() {
		t.Error("nobody is woken, since one pass has seen it already")
	}
	if a.refresh() {
		t.Error("all are woken once more")
	}
}
