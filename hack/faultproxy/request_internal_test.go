package faultproxy

import (
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		method, url string
		want        Request
	}{
		"list":              {"GET", "/api/v1/pods", Request{Verb: "list", Resource: "pods"}},
		"list in namespace": {"GET", "/apis/apps/v1/namespaces/a/deployments?limit=500", Request{Verb: "list", Group: "apps", Resource: "deployments", Namespace: "a"}},
		"get":               {"GET", "/api/v1/namespaces/a/pods/x", Request{Verb: "get", Resource: "pods", Namespace: "a", Name: "x"}},
		"subresource":       {"PATCH", "/apis/p/v1/namespaces/a/webapps/x/status", Request{Verb: "patch", Group: "p", Resource: "webapps", Subresource: "status", Namespace: "a", Name: "x"}},
		"watch":             {"GET", "/api/v1/pods?watch=1", Request{Verb: "watch", Resource: "pods"}},
		"watch list":        {"GET", "/api/v1/pods?watch=true&sendInitialEvents=true", Request{Verb: "watch", Resource: "pods", WatchList: true}},
		"no watch":          {"GET", "/api/v1/pods?watch=false", Request{Verb: "list", Resource: "pods"}},
		"one by selector":   {"GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases?watch=true&fieldSelector=metadata.name%3Dx", Request{Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: "a", Name: "x"}},
		"create":            {"POST", "/api/v1/namespaces/a/pods", Request{Verb: "create", Resource: "pods", Namespace: "a"}},
		"delete":            {"DELETE", "/api/v1/namespaces/a/pods/x", Request{Verb: "delete", Resource: "pods", Namespace: "a", Name: "x"}},
		"delete collection": {"DELETE", "/api/v1/namespaces/a/pods", Request{Verb: "deletecollection", Resource: "pods", Namespace: "a"}},
		"namespace":         {"GET", "/api/v1/namespaces/a", Request{Verb: "get", Resource: "namespaces", Namespace: "a", Name: "a"}},
		"namespace status":  {"PUT", "/api/v1/namespaces/a/status", Request{Verb: "update", Resource: "namespaces", Subresource: "status", Namespace: "a", Name: "a"}},
		"namespaces":        {"GET", "/api/v1/namespaces?watch=1", Request{Verb: "watch", Resource: "namespaces"}},
		"discovery":         {"GET", "/apis/apps/v1", Request{Verb: "get"}},
		"health":            {"GET", "/readyz", Request{Verb: "get"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := parse(httptest.NewRequest(tc.method, tc.url, nil))
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Request{}, "Time", "URL")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseMetadataOnly(t *testing.T) {
	for accept, want := range map[string]bool{
		"application/json": false,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json": true,
		"application/json;as=Table;g=meta.k8s.io;v=v1":                                                         false,
	} {
		r := httptest.NewRequest("GET", "/api/v1/pods", nil)
		r.Header.Set("Accept", accept)
		if got := parse(r).MetadataOnly; got != want {
			t.Errorf("Accept: %s: MetadataOnly %t, want %t", accept, got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	lease := Request{Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: "a", Name: "x", WatchList: true, UserAgent: "ctl/1"}
	status := Request{Verb: "patch", Resource: "pods", Subresource: "status"}
	tests := map[string]struct {
		match  Match
		r      Request
		want   bool
		reason string
	}{
		"zero":              {Match{}, lease, true, "a zero field selects all"},
		"all fields":        {Match{[]string{"list", "watch"}, "coordination.k8s.io", "leases", "-", "a", "x", "ctl", OnlyWatchList, func(r Request) bool { return true }}, lease, true, ""},
		"verb":              {Match{Verbs: []string{"list"}}, lease, false, ""},
		"group":             {Match{Group: "core"}, lease, false, ""},
		"core group":        {Match{Group: "core"}, status, true, "it has no name of its own"},
		"user agent":        {Match{UserAgentPrefix: "tl"}, lease, false, "a prefix, not a part"},
		"plain watch":       {Match{Watch: OnlyPlainWatch}, lease, false, ""},
		"no watch at all":   {Match{Watch: OnlyPlainWatch}, status, false, ""},
		"no subresource":    {Match{Subresource: "-"}, status, false, ""},
		"subresource":       {Match{Subresource: "status"}, status, true, ""},
		"func":              {Match{Func: func(r Request) bool { return r.Name == "y" }}, lease, false, ""},
		"outside resources": {Match{Group: "core"}, Request{Verb: "get"}, false, "/readyz belongs to no group"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.match.matches(tc.r); got != tc.want {
				t.Errorf("got %t: %s", got, tc.reason)
			}
		})
	}
}

func TestAcceptJSON(t *testing.T) {
	tests := map[string]string{
		"":                                    "application/json",
		"application/vnd.kubernetes.protobuf": "application/json",
		"application/vnd.kubernetes.protobuf,application/json":                            "application/json",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		"application/json;as=Table;g=meta.k8s.io;v=v1, application/json":                  "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
	}
	for accept, want := range tests {
		if got := acceptJSON(accept); got != want {
			t.Errorf("%q: got %q, want %q", accept, got, want)
		}
	}
}
