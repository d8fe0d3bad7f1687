package main

import (
	"testing"

	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

type fakeInformer struct {
	resource string
	state    informer.State
	reason   informer.Reason
}

func (f *fakeInformer) Snapshot() informer.Snapshot {
	return informer.Snapshot{Resource: f.resource, State: f.state, Reason: f.reason}
}

func TestReadiness(t *testing.T) {
	tests := map[string]struct {
		reason string
		other  fakeInformer
		want   string
	}{
		"Synced":       {"all is there", fakeInformer{state: informer.StateHearing}, ""},
		"Starting":     {"it will be there in a moment", fakeInformer{state: informer.StateStarting}, "not synced: other"},
		"Forbidden":    {"other kinds work, a permission may never come", fakeInformer{state: informer.StateUnlistable, reason: informer.Forbidden}, ""},
		"NotFound":     {"a CRD may never be installed", fakeInformer{state: informer.StateUnlistable, reason: informer.NotFound}, ""},
		"Conversion":   {"the webhook may wait for this very process", fakeInformer{state: informer.StateUnlistable, reason: informer.Conversion}, ""},
		"Unreachable":  {"the API server is away: nothing works yet", fakeInformer{state: informer.StateUnlistable, reason: informer.Unreachable}, "not synced: other (unreachable)"},
		"Unauthorized": {"a token that is not accepted holds for every kind", fakeInformer{state: informer.StateUnlistable, reason: informer.Unauthorized}, "not synced: other (unauthorized)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.other.resource = "other"
			r := &readiness{informers: []metrics.Informer{&fakeInformer{resource: "webapps", state: informer.StateHearing}, &tc.other}}
			got := ""
			if err := r.Check(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%s: Check() = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestReadinessLasts(t *testing.T) {
	i := &fakeInformer{resource: "webapps", state: informer.StateHearing}
	r := &readiness{informers: []metrics.Informer{i}}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	i.state, i.reason = informer.StateUnlistable, informer.Unreachable
	if err := r.Check(); err != nil {
		t.Errorf("an API server that is away made the process unready: %v", err)
	}
	r.shutDown()
	if r.Check() == nil {
		t.Error("ready during the shutdown")
	}
}
