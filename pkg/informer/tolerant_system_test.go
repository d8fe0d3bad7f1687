package informer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
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

	lists := &listOnly{}
	withoutWatchList := rest.CopyConfig(config)
	withoutWatchList.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		lists.RoundTripper = rt
		return lists
	})
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
	if took > 45*time.Second { // a bookmark that client-go drops costs a minute
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
	eventually(t, patience, "1,000 and one set aside", func() (bool, any) {
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
	eventually(t, patience, "good→bad", isBad("app-0000", true))
	eventually(t, patience, "the watch has got past it", func() (bool, any) {
		s := a.Snapshot()
		return s.ResourceVersion >= turned.GetResourceVersion(), s
	})
	patch("app-0001", `{"image":"v2"}`)
	eventually(t, patience, "others go on", func() (bool, any) { return len(events("update app-0001 v2")) == 1, nil })

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
	eventually(t, patience, "still told after the API server's restart", func() (bool, any) {
		patch("app-0002", `{"image":"v3"}`)
		return len(events("update app-0002 v3")) > 0, a.Snapshot()
	})
	if expire.relists.Load() == relists {
		t.Error("there was no relist")
	}
	for way, informer := range plain {
		if informer.HasSynced() {
			t.Errorf("client-go's typed informer has synced by %s with %d objects of %q: this test shows nothing",
				way, len(informer.GetStore().ListKeys()), informer.LastSyncResourceVersion())
		}
	}
	// A list that is short of objects is a report of deletes. An API server that
	// starts answers 503, then 429 while its watch cache fills (to lists without a
	// limit), then with all objects: of 1,000 lists and 260 WatchLists over 15 restarts
	// none was short.
	for _, list := range lists.complete() {
		if list.objects != good+1 {
			t.Errorf("the API server has answered a list with %d of %d objects: %s", list.objects, good+1, list.text)
		}
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
	eventually(t, patience, "bad→good", isBad("bad", false))
	eventually(t, patience, "added", func() (bool, any) { return len(events("add bad v1")) == 1, events("add bad") })
	if err := objects.Delete(t.Context(), "app-0000", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "bad→deleted", isBad("app-0000", false))
	eventually(t, patience, "deleted with its last good version", func() (bool, any) {
		return len(events("delete app-0000 v1")) == 1, events("delete")
	})
	eventually(t, patience, "all of it", func() (bool, any) {
		one, two := a.Snapshot(), second.Snapshot()
		return one.Objects == good && one.Quarantined == 0 && two.Objects == good && two.Quarantined == 0, []informer.Snapshot{one, two}
	})
}

// listOnly is an API server without WatchList, and keeps count of what its lists
// were answered.
type listOnly struct {
	http.RoundTripper

	mu    sync.Mutex
	pages map[string]int // by continue token: the objects of all pages before it
	lists []answeredList
}

// answeredList is one list, all pages of it.
type answeredList struct {
	objects int
	text    string // of its last page: the request, when it was made, kind and revision
}

func (l *listOnly) complete() []answeredList {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lists)
}

func (l *listOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Has("sendInitialEvents") {
		return &http.Response{
			StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)),
		}, nil
	}
	began := time.Now()
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK || query.Has("watch") {
		return response, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(err)))
		return response, nil
	}
	var page struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return response, nil // the client will say so
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	objects := l.pages[query.Get("continue")] + len(page.Items)
	if next := page.Metadata.Continue; next != "" {
		if l.pages == nil {
			l.pages = map[string]int{}
		}
		l.pages[next] = objects
		return response, nil
	}
	l.lists = append(l.lists, answeredList{objects, fmt.Sprintf("%q at %s: %s %s of %q",
		r.URL.RawQuery, began.Format(time.StampMilli), page.APIVersion, page.Kind, page.Metadata.ResourceVersion)})
	return response, nil
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
