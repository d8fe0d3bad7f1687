package informer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// looseCRD is the CRD of WebApps without a schema for spec and status, so that
// the API server takes what the Go type does not.
func looseCRD(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(webAppCRD)
	if err != nil {
		t.Fatal(err)
	}
	crd := map[string]any{}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	loose := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
		"type": "object", "properties": map[string]any{"spec": loose, "status": loose},
	}}
	delete(version, "subresources")
	if data, err = json.Marshal(crd); err != nil {
		t.Fatal(err)
	}
	return data
}

// One undecodable WebApp among 1,000 good ones on a real API server: client-go's
// own typed informer never syncs, ours does; then the bad one's whole life.
func TestSystemR01R02R10UndecodableObject(t *testing.T) {
	const good = 1000
	cp := controlplane.ForTest(t, controlplane.Config{})
	if err := cp.Apply(t.Context(), looseCRD(t)); err != nil {
		t.Fatal(err)
	}
	config := cp.Config()
	config.QPS = -1
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects := raw.Resource(webApps).Namespace("default")
	create := func(name string, spec map[string]any) *unstructured.Unstructured {
		made, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": webApps.GroupVersion().String(), "kind": "WebApp", "metadata": map[string]any{"name": name}, "spec": spec,
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
		return made
	}
	patch := func(name, spec string) *unstructured.Unstructured {
		t.Helper()
		o, err := objects.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for n := w; n < good; n += 8 {
				create(fmt.Sprintf("app-%04d", n), map[string]any{"image": "v1"})
			}
		})
	}
	writers.Wait()
	create("bad", map[string]any{"image": "v1", "drainTimeout": "360d"})
	if t.Failed() {
		t.FailNow()
	}

	withoutWatchList := rest.CopyConfig(config)
	withoutWatchList.Wrap(func(rt http.RoundTripper) http.RoundTripper { return listOnly{rt} })
	byList, err := versioned.NewForConfig(withoutWatchList)
	if err != nil {
		t.Fatal(err)
	}
	plain := map[string]cache.SharedIndexInformer{"WatchList": startPlain(t, clients), "LIST": startPlain(t, byList)}
	expire := &expireOnce{}
	through := rest.CopyConfig(config)
	through.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		expire.RoundTripper = rt
		return expire
	})
	ours, err := versioned.NewForConfig(through)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	a := startApps(t, ours)
	took := time.Since(began)
	began = time.Now()
	listed := startApps(t, byList)
	t.Logf("synced in %s by WatchList, in %s by LIST", took, time.Since(began))
	if took > 20*time.Second { // a bookmark that client-go drops costs a minute
		t.Errorf("R11: the WatchList took %s", took)
	}
	if s := listed.Snapshot(); s.Objects != good || s.Quarantined != 1 || s.Lists == 0 {
		t.Errorf("by LIST: %+v", s)
	}
	bad := cache.NewObjectName("default", "bad")
	isBad := func(name string, want bool) func() (bool, any) {
		return func() (bool, any) {
			q, got := a.Quarantined(cache.NewObjectName("default", name))
			return got == want, q
		}
	}
	eventually(t, 30*time.Second, "1,000 and one set aside", func() (bool, any) {
		s := a.Snapshot()
		return a.HasSynced() && s.Objects == good && s.Quarantined == 1, s
	})
	if q, ok := a.Quarantined(bad); !ok || q.Fields[0].Path != "spec.drainTimeout" || len(q.Fix) != 1 {
		t.Errorf("record %+v, %v", q, ok)
	}

	// A good one turns bad: nothing is deleted, its last good version stays.
	events := func(prefix string) (found []string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range a.events {
			if strings.HasPrefix(e, prefix) {
				found = append(found, e)
			}
		}
		return found
	}
	turned := patch("app-0000", `{"image":"v2","replicas":"two"}`)
	eventually(t, 10*time.Second, "good→bad", isBad("app-0000", true))
	eventually(t, 10*time.Second, "the watch has got past it", func() (bool, any) {
		s := a.Snapshot()
		return s.ResourceVersion >= turned.GetResourceVersion(), s
	})
	patch("app-0001", `{"image":"v2"}`)
	eventually(t, 10*time.Second, "others go on", func() (bool, any) { return len(events("update app-0001 v2")) == 1, nil })

	// The API server goes away and comes back while both are bad, and no longer
	// knows the revision that the watch wants to go on from: a relist.
	for way, informer := range plain {
		if informer.HasSynced() {
			t.Errorf("client-go's typed informer has synced by %s: this test shows nothing", way)
		}
	}
	relists := expire.relists.Load()
	expire.armed.Store(true)
	if err := restart(t, cp); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "still told after the API server's restart", func() (bool, any) {
		patch("app-0002", `{"image":"v3"}`)
		return len(events("update app-0002 v3")) > 0, a.Snapshot()
	})
	if expire.relists.Load() == relists {
		t.Error("there was no relist")
	}
	if plain["WatchList"].HasSynced() {
		t.Error("client-go's typed informer has synced: this test shows nothing")
	}
	if byList := plain["LIST"]; byList.HasSynced() { // seen once: what the API server answered as it started is not known
		t.Logf("client-go's informer has synced by LIST after the restart, with %d objects of %s", len(byList.GetStore().ListKeys()), byList.LastSyncResourceVersion())
	}
	held, exists, err := a.Indexer().GetByKey("default/app-0000")
	if err != nil || !exists || held.(*platformv1alpha1.WebApp).Spec.Image != "v1" {
		t.Errorf("last good version: %v, %v, %v", held, exists, err)
	}
	if got := events("delete"); got != nil {
		t.Errorf("deletes that nobody made: %q", got)
	}

	// A process that starts now has no good version of either.
	second := startApps(t, clients)
	if s := second.Snapshot(); s.Objects != good-1 || s.Quarantined != 2 {
		t.Errorf("started while two are bad: %+v", s)
	}

	patch("bad", `{"drainTimeout":"8640h"}`)
	eventually(t, 10*time.Second, "bad→good", isBad("bad", false))
	eventually(t, 10*time.Second, "added", func() (bool, any) { return len(events("add bad v1")) == 1, events("add bad") })
	if err := objects.Delete(t.Context(), "app-0000", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "bad→deleted", isBad("app-0000", false))
	eventually(t, 10*time.Second, "deleted with its last good version", func() (bool, any) {
		return len(events("delete app-0000 v1")) == 1, events("delete")
	})
	eventually(t, 10*time.Second, "all of it", func() (bool, any) {
		one, two := a.Snapshot(), second.Snapshot()
		return one.Objects == good && one.Quarantined == 0 && two.Objects == good && two.Quarantined == 0, []informer.Snapshot{one, two}
	})
}

// listOnly is an API server without WatchList.
type listOnly struct{ http.RoundTripper }

func (l listOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("sendInitialEvents") {
		return &http.Response{
			StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)),
		}, nil
	}
	return l.RoundTripper.RoundTrip(r)
}

// expireOnce answers one watch with 410 when armed, and counts WatchLists.
type expireOnce struct {
	http.RoundTripper
	armed   atomic.Bool
	relists atomic.Int32
}

func (e *expireOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "":
		e.relists.Add(1)
	case query.Get("watch") != "" && e.armed.CompareAndSwap(true, false):
		return &http.Response{
			StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)),
		}, nil
	}
	return e.RoundTripper.RoundTrip(r)
}

// restart stops and starts the API server, which ends every watch.
func restart(t *testing.T, cp *controlplane.ControlPlane) error {
	cp.StopAPIServer()
	return cp.StartAPIServer(t.Context())
}

// startPlain runs client-go's own typed informer until the test ends.
func startPlain(t *testing.T, clients versioned.Interface) cache.SharedIndexInformer {
	t.Helper()
	lw := informer.ListWatch(clients, clients.PlatformV1alpha1().WebApps)("")
	plain := cache.NewSharedIndexInformer(lw.(cache.ListerWatcher), &platformv1alpha1.WebApp{}, 0, nil)
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig())
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	done := make(chan struct{})
	go func() {
		defer close(done)
		plain.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return plain
}
