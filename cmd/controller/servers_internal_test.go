package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

func TestDebugHandler(t *testing.T) {
	c, err := controller.New(controller.Config{
		Name:       "webapp",
		Reconciler: controller.ReconcilerFunc(func(context.Context, cache.ObjectName) (controller.Result, error) { return controller.Result{}, nil }),
		Keys:       func() []cache.ObjectName { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := debugHandler([]metrics.Informer{&fakeInformer{resource: "webapps", state: informer.StateHearing}}, nil, map[string]*controller.Controller{"webapp": c})
	tests := map[string]struct {
		method, path string
		status       int
	}{
		"Informers":     {http.MethodGet, "/debug/informers", 200},
		"Queue":         {http.MethodGet, "/debug/queue?limit=5&after=a/b&controller=webapp", 200},
		"BadLimit":      {http.MethodGet, "/debug/queue?limit=0", 400},
		"BadAfter":      {http.MethodGet, "/debug/queue?after=a/b/c", 400},
		"RetryNoKey":    {http.MethodPost, "/debug/queue/retry", 400},
		"RetryBadKey":   {http.MethodPost, "/debug/queue/retry?key=a/b/c", 400},
		"RetryUnknown":  {http.MethodPost, "/debug/queue/retry?key=a/b", 404},
		"RetryByGet":    {http.MethodGet, "/debug/queue/retry?key=a/b", 405}, // a link must not do anything
		"Profiles":      {http.MethodGet, "/debug/pprof/", 200},
		"Goroutines":    {http.MethodGet, "/debug/pprof/goroutine?debug=1", 200},
		"NothingAtRoot": {http.MethodGet, "/", 404},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
			if w.Code != tc.status {
				t.Errorf("%s %s: status %d, want %d: %s", tc.method, tc.path, w.Code, tc.status, w.Body)
			}
			if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s %s: invalid JSON: %s", tc.method, tc.path, w.Body)
			}
		})
	}
}
