package webapp

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	platformfake "github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/fake"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// newTestController has caches that are filled by hand and never run.
func newTestController(t *testing.T, apps ...*v1alpha1.WebApp) *Controller {
	t.Helper()
	kube, platform := fake.NewClientset(), platformfake.NewSimpleClientset()
	writes := informer.NewWrites(0)
	cfg := Config{
		Kube: kube, Platform: platform, Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), Writes: writes,
		WebApps: testInformer(t, informer.Config[*v1alpha1.WebApp]{Resource: webAppsResource, Indexers: Indexers(),
			ListerWatcher: informer.ListWatch(platform, platform.PlatformV1alpha1().WebApps)}),
		Deployments: testInformer(t, informer.Config[*appsv1.Deployment]{Resource: deploymentsResource,
			ListerWatcher: informer.ListWatch(kube, kube.AppsV1().Deployments)}),
		Services: testInformer(t, informer.Config[*corev1.Service]{Resource: servicesResource,
			ListerWatcher: informer.ListWatch(kube, kube.CoreV1().Services)}),
		ConfigMaps: testInformer(t, informer.Config[*corev1.ConfigMap]{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
			ListerWatcher: informer.ListWatch(kube, kube.CoreV1().ConfigMaps)}),
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range apps {
		if err := cfg.WebApps.Indexer().Add(app); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func testInformer[T cache.Object](t *testing.T, c informer.Config[T]) *informer.Informer[T] {
	t.Helper()
	i, err := informer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

type enqueued []string

func (e *enqueued) enqueue(lane controller.Lane, keys ...cache.ObjectName) {
	for _, key := range keys {
		*e = append(*e, fmt.Sprintf("%d %s", lane, key))
	}
}

func TestWebAppLanes(t *testing.T) {
	const background, normal, urgent = "0 shop/web", "1 shop/web", "2 shop/web"
	app := testApp()
	update := func(f func(*v1alpha1.WebApp)) func(cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp]) {
		return func(h cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp]) { h.OnUpdate(app, testApp(f)) }
	}
	type handlers = cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp]
	cases := map[string]struct {
		reason string
		event  func(handlers)
		want   string
	}{
		"Initial": {"what was there before can wait", func(h handlers) { h.OnAdd(app, true) }, background},
		"New":     {"somebody waits for it", func(h handlers) { h.OnAdd(app, false) }, urgent},
		"Relist":  {"nothing has changed", update(func(*v1alpha1.WebApp) {}), background},
		"Status":  {"most likely our own", update(func(a *v1alpha1.WebApp) { a.ResourceVersion = "8" }), normal},
		"Spec":    {"a change of the spec", update(func(a *v1alpha1.WebApp) { a.ResourceVersion, a.Generation = "8", 4 }), urgent},
		"Deleted": {"a deletion", update(func(a *v1alpha1.WebApp) { a.ResourceVersion, a.DeletionTimestamp = "8", ptr.To(metav1.Now()) }), urgent},
		"Another": {"deleted and created between two events", update(func(a *v1alpha1.WebApp) { a.ResourceVersion, a.UID = "8", "uid-2" }), urgent},
		"Gone": {"a tombstone without an object", func(h handlers) {
			h.OnDelete(cache.DeletedObject[*v1alpha1.WebApp]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "shop/web"}})
		}, normal},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got enqueued
			tc.event(newTestController(t).webAppHandlers(got.enqueue))
			if diff := cmp.Diff(enqueued{tc.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConcerned(t *testing.T) {
	owned := func(child, apiVersion, kind, owner string) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: child}}
		if owner != "" {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner, UID: "u", Controller: ptr.To(true)}}
		}
		return s
	}
	const ours = "platform.tejo.dev/v1"
	cases := map[string]struct {
		reason   string
		children []metav1.Object
		want     []string
	}{
		"Owner":      {"by controller owner, whatever the version and the uid", []metav1.Object{owned("x", ours, "WebApp", "gone")}, []string{"shop/gone"}},
		"Both":       {"old and new owner", []metav1.Object{owned("x", ours, "WebApp", "a"), owned("x", ours, "WebApp", "b")}, []string{"shop/a", "shop/b"}},
		"InTheWay":   {"a foreign one in our child's place", []metav1.Object{owned("web", "", "", "")}, []string{"shop/web"}},
		"Helm":       {"of another owner", []metav1.Object{owned("web", "apps/v1", "StatefulSet", "x")}, []string{"shop/web"}},
		"Unrelated":  {"nobody's business", []metav1.Object{owned("other", "", "", "")}, nil},
		"OtherGroup": {"a WebApp of another group is not ours", []metav1.Object{owned("x", "example.com/v1", "WebApp", "web")}, nil},
	}
	c := newTestController(t, testApp())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, key := range c.owners().Of(tc.children...) {
				got = append(got, key.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConfigMapWakesItsUsersOnly(t *testing.T) {
	c := newTestController(t, testApp(), testApp(func(a *v1alpha1.WebApp) { a.Name, a.Spec.ConfigRef = "other", "" }),
		testApp(func(a *v1alpha1.WebApp) { a.Namespace = "elsewhere" }))
	var got enqueued
	h := c.configMapHandlers(got.enqueue)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", ResourceVersion: "1"}, Data: map[string]string{"a": "1"}}
	same := cm.DeepCopy()
	same.ResourceVersion = "2"
	changed := cm.DeepCopy()
	changed.ResourceVersion, changed.Data["a"] = "3", "2"
	h.OnAdd(cm, false)
	h.OnUpdate(cm, same)
	h.OnUpdate(cm, changed)
	h.OnDelete(cache.DeletedObject[*corev1.ConfigMap]{OptionalObj: cm})
	if diff := cmp.Diff(enqueued{"1 shop/web", "1 shop/web", "1 shop/web"}, got); diff != "" {
		t.Errorf("add, same content, other content, delete (-want +got):\n%s", diff)
	}
}

func TestDrainTimeLeft(t *testing.T) {
	start := time.Unix(10_000, 0)
	cases := map[string]struct {
		reason  string
		deleted time.Duration // before start, by the API server's clock
		passed  time.Duration // since this process first saw it
		want    time.Duration
	}{
		"Fresh":       {"all of it", 0, 0, 30 * time.Second},
		"Later":       {"what is left", 0, 10 * time.Second, 20 * time.Second},
		"Restart":     {"an earlier process has used some of it up", 25 * time.Second, 0, 5 * time.Second},
		"ServerAhead": {"our clock is an hour behind: no longer than the timeout", -time.Hour, 10 * time.Second, 20 * time.Second},
		"Over":        {"it is over", 40 * time.Second, 0, -10 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t)
			clock := clocktesting.NewFakePassiveClock(start)
			c.cfg.Clock = clock
			app := &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", DeletionTimestamp: ptr.To(metav1.NewTime(start.Add(-tc.deleted)))}
			c.drainTimeLeft(app, 30*time.Second)
			clock.SetTime(start.Add(tc.passed))
			if got := c.drainTimeLeft(app, 30*time.Second); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}

	c := newTestController(t)
	key := cache.NewObjectName("shop", "web")
	c.deletions.firstSeen(key, "one", start)
	if got := c.deletions.firstSeen(key, "two", start.Add(time.Hour)); got != start.Add(time.Hour) {
		t.Errorf("another uid of the same name: first seen %s", got)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	if _, err := New(Config{}); err == nil || err.Error() != "webapp controller: Config.Kube is nil: it is required" {
		t.Errorf("got %v", err)
	}
	cfg := newTestController(t).cfg
	cfg.WebApps = testInformer(t, informer.Config[*v1alpha1.WebApp]{Resource: webAppsResource,
		ListerWatcher: informer.ListWatch(cfg.Platform, cfg.Platform.PlatformV1alpha1().WebApps)})
	if _, err := New(cfg); err == nil {
		t.Error("an informer without the index was accepted")
	}
}
