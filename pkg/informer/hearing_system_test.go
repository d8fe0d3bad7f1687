package informer_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// heard are two informers, of WebApps and of ConfigMaps, that reach a real API server
// through a proxy, and clients that go around it.
type heard struct {
	t          *testing.T
	proxy      *faultproxy.Proxy
	namespace  string
	kube       *kubernetes.Clientset
	apps       *versioned.Clientset
	webApps    *informer.Informer[*platformv1alpha1.WebApp]
	configMaps *informer.Informer[*corev1.ConfigMap]
}

// Against a real API server: what watches go through behind load balancers and
// proxies that have lost it.
func TestSystemHearing(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	crd, err := os.ReadFile(webAppCRD)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Run("R25 R28 one frozen watch", func(t *testing.T) { t.Parallel(); systemOneFrozenWatch(t, cp) })
	t.Run("R26 no watch works", func(t *testing.T) { t.Parallel(); systemNoWatchWorks(t, cp) })
	t.Run("R26 start while no watch works", func(t *testing.T) { t.Parallel(); systemStartWithoutWatches(t, cp) })
	t.Run("R32 no end of the initial events", func(t *testing.T) { t.Parallel(); systemNoInitialEnd(t, cp) })
	t.Run("410 on every watch", func(t *testing.T) { t.Parallel(); systemExpiredWatches(t, cp) })
}

// hear begins behind a proxy with these rules.
func hear(t *testing.T, cp *controlplane.ControlPlane, c informer.HearingConfig, rules ...faultproxy.Rule) *heard {
	t.Helper()
	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: cp.Config()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	for _, r := range rules {
		proxy.Add(r)
	}
	h := &heard{t: t, proxy: proxy, namespace: cp.Namespace(t)}
	if h.kube, err = kubernetes.NewForConfig(cp.Config()); err != nil {
		t.Fatal(err)
	}
	if h.apps, err = versioned.NewForConfig(cp.Config()); err != nil {
		t.Fatal(err)
	}
	through := proxy.ClientConfig(cp.Config())
	c.Config = rest.CopyConfig(through)
	hearing, err := informer.NewHearing(c)
	if err != nil {
		t.Fatal(err)
	}
	first, second := informer.NewConnection(through), informer.NewConnection(through)
	apps, err := versioned.NewForConfig(first.Config())
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(second.Config())
	if err != nil {
		t.Fatal(err)
	}
	if h.webApps, err = informer.New(informer.Config[*platformv1alpha1.WebApp]{
		Resource: webApps, Namespaces: []string{h.namespace}, Hearing: hearing, Connection: first,
		ListerWatcher: informer.Tolerant(apps.PlatformV1alpha1().RESTClient()),
	}); err != nil {
		t.Fatal(err)
	}
	if h.configMaps, err = informer.New(informer.Config[*corev1.ConfigMap]{
		Resource: configMaps, Namespaces: []string{h.namespace}, Hearing: hearing, Connection: second,
		ListerWatcher: informer.ListWatch(kube, kube.CoreV1().ConfigMaps),
	}); err != nil {
		t.Fatal(err)
	}
	h.write("x")
	for _, i := range []interface {
		Run(context.Context) error
	}{h.webApps, h.configMaps} {
		buffer := start(t, i)
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(buffer.String())
			}
		})
	}
	return h
}

// write creates or changes a WebApp and a ConfigMap and returns their revisions.
func (h *heard) write(name string) (webApp, configMap string) {
	h.t.Helper()
	stamp := fmt.Sprintf(`{"metadata":{"labels":{"at":"%d"}}}`, time.Now().UnixNano())
	app, err := h.apps.PlatformV1alpha1().WebApps(h.namespace).Patch(h.t.Context(), name, types.MergePatchType, []byte(stamp), metav1.PatchOptions{})
	if err != nil {
		if app, err = h.apps.PlatformV1alpha1().WebApps(h.namespace).Create(h.t.Context(), &platformv1alpha1.WebApp{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: platformv1alpha1.WebAppSpec{Image: "example.com/app:1"},
		}, metav1.CreateOptions{}); err != nil {
			h.t.Fatal(err)
		}
	}
	cm, err := h.kube.CoreV1().ConfigMaps(h.namespace).Patch(h.t.Context(), name, types.MergePatchType, []byte(stamp), metav1.PatchOptions{})
	if err != nil {
		if cm, err = h.kube.CoreV1().ConfigMaps(h.namespace).Create(h.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			h.t.Fatal(err)
		}
	}
	return app.ResourceVersion, cm.ResourceVersion
}

func (h *heard) await(indexer cache.Indexer, name, revision string) {
	h.t.Helper()
	eventually(h.t, patience, name+" at "+revision, func() (bool, any) {
		got, exists, err := indexer.GetByKey(h.namespace + "/" + name)
		if err != nil || !exists {
			return false, h.snapshots()
		}
		return got.(metav1.Object).GetResourceVersion() == revision, h.snapshots()
	})
}

func (h *heard) snapshots() string {
	return fmt.Sprintf("%+v\n%+v", h.webApps.Snapshot(), h.configMaps.Snapshot())
}

func (h *heard) awaitState(want informer.State) {
	h.t.Helper()
	eventually(h.t, patience, "state "+string(want), func() (bool, any) {
		return h.webApps.Snapshot().State == want && h.configMaps.Snapshot().State == want, h.snapshots()
	})
}

func informersOwn(r faultproxy.Request) bool { return !r.MetadataOnly }

// One stream is frozen while its connection lives: that watch alone is opened
// again, on a new connection, and nothing is listed.
func systemOneFrozenWatch(t *testing.T, cp *controlplane.ControlPlane) {
	h := hear(t, cp, informer.HearingConfig{ProbeAfter: 3 * time.Second})
	waitSynced(t, h.webApps.HasSyncedChecker(), h.configMaps.HasSyncedChecker())
	ofApps := faultproxy.Match{Verbs: []string{"watch", "list"}, Resource: "webapps", Func: informersOwn}
	others := faultproxy.Match{Verbs: []string{"watch", "list"}, Resource: "configmaps", Func: informersOwn}
	asked, askedOthers := h.proxy.Requests(ofApps), h.proxy.Requests(others)

	h.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"watch"}, Resource: "webapps"}, Scope: faultproxy.OnlyOpen, Freeze: faultproxy.FreezeStream})
	began := time.Now()
	app, cm := h.write("x")
	h.await(h.configMaps.Indexer(), "x", cm)
	h.await(h.webApps.Indexer(), "x", app)
	t.Logf("delivered after %s", time.Since(began).Round(100*time.Millisecond))
	h.awaitState(informer.StateHearing)

	now := h.proxy.Requests(ofApps)
	if len(now) != len(asked)+1 || now[len(now)-1].WatchList || now[len(now)-1].Verb != "watch" {
		t.Fatalf("want one plain watch more:\n%+v", now)
	}
	for _, before := range asked {
		if before.Connection == now[len(now)-1].Connection {
			t.Errorf("the new watch is on the old connection %d", before.Connection)
		}
	}
	if n := len(h.proxy.Requests(others)); n != len(askedOthers) {
		t.Errorf("%d requests of the other informer, %d before", n, len(askedOthers))
	}
	if r := h.webApps.Snapshot().Restarts; r["deaf"] != 1 {
		t.Errorf("restarts %v", r)
	}
}

var allWatches = faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"watch"}}, Freeze: faultproxy.FreezeStream, Permanent: true}

// Watches are accepted and stay silent; everything else works.
func systemNoWatchWorks(t *testing.T, cp *controlplane.ControlPlane) {
	h := hear(t, cp, informer.HearingConfig{ProbeAfter: 2 * time.Second, PollInterval: 2 * time.Second})
	waitSynced(t, h.webApps.HasSyncedChecker(), h.configMaps.HasSyncedChecker())
	fault := h.proxy.Add(allWatches)
	app, cm := h.write("x")
	h.await(h.webApps.Indexer(), "x", app)
	h.await(h.configMaps.Indexer(), "x", cm)
	h.awaitState(informer.StatePolling)
	listed := h.webApps.Snapshot().Lists + h.configMaps.Snapshot().Lists
	for n := range 3 {
		app, cm = h.write(fmt.Sprintf("y%d", n))
		h.await(h.webApps.Indexer(), fmt.Sprintf("y%d", n), app)
		h.await(h.configMaps.Indexer(), fmt.Sprintf("y%d", n), cm)
	}
	if err := h.apps.PlatformV1alpha1().WebApps(h.namespace).Delete(t.Context(), "y0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "y0 gone", func() (bool, any) {
		_, exists, err := h.webApps.Indexer().GetByKey(h.namespace + "/y0")
		return !exists && err == nil, h.snapshots()
	})
	if n := h.webApps.Snapshot().Lists + h.configMaps.Snapshot().Lists; n != listed {
		t.Errorf("the Reflectors have listed: %d, %d before", n, listed)
	}
	fault.Remove()
	h.write("x")
	h.awaitState(informer.StateHearing)
	app, _ = h.write("x")
	h.await(h.webApps.Indexer(), "x", app)
}

func systemStartWithoutWatches(t *testing.T, cp *controlplane.ControlPlane) {
	h := hear(t, cp, informer.HearingConfig{ProbeAfter: 2 * time.Second, PollInterval: 2 * time.Second}, allWatches)
	waitSynced(t, h.webApps.HasSyncedChecker(), h.configMaps.HasSyncedChecker())
	h.awaitState(informer.StatePolling)
	app, cm := h.write("x")
	h.await(h.webApps.Indexer(), "x", app)
	h.await(h.configMaps.Indexer(), "x", cm)
}

func systemNoInitialEnd(t *testing.T, cp *controlplane.ControlPlane) {
	h := hear(t, cp, informer.HearingConfig{ProbeAfter: 2 * time.Second},
		faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"watch"}}, StripInitialEventsEnd: true})
	waitSynced(t, h.webApps.HasSyncedChecker(), h.configMaps.HasSyncedChecker())
	if r := h.webApps.Snapshot().Restarts; r["watchlist"] != 1 {
		t.Errorf("restarts %v", r)
	}
	h.awaitState(informer.StateHearing)
	app, _ := h.write("x")
	h.await(h.webApps.Indexer(), "x", app)
}

// Every watch, WatchLists too, is answered with 410: client-go alone sends thousands
// of requests a second.
func systemExpiredWatches(t *testing.T, cp *controlplane.ControlPlane) {
	h := hear(t, cp, informer.HearingConfig{ProbeAfter: 2 * time.Second, PollInterval: 2 * time.Second},
		faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"watch"}}, InjectError: &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old",
		}})
	waitSynced(t, h.webApps.HasSyncedChecker(), h.configMaps.HasSyncedChecker())
	h.awaitState(informer.StatePolling)
	before := h.proxy.Count(faultproxy.Match{})
	began := time.Now()
	app, cm := h.write("x")
	h.await(h.webApps.Indexer(), "x", app)
	h.await(h.configMaps.Indexer(), "x", cm)
	eventually(t, 10*time.Second, "some time", func() (bool, any) { return time.Since(began) > 6*time.Second, nil })
	if n := h.proxy.Count(faultproxy.Match{}) - before; n > int(10*time.Since(began).Seconds()) {
		t.Errorf("%d requests in %s", n, time.Since(began))
	}
	if !strings.Contains(h.webApps.Snapshot().Message, "too old") {
		t.Errorf("%+v", h.webApps.Snapshot())
	}
}
