package informer

import (
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

// What the controller has not reported on counts, also where the local copy, whose
// watch is silent, does not show that there is anything to report on.
func systemUnconverged(t *testing.T, a *asking) {
	namespace := a.cp.Namespace(t)
	direct, err := versioned.NewForConfig(a.cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	apps := direct.PlatformV1alpha1().WebApps(namespace)
	reading := rest.CopyConfig(a.throughProxy())
	reading.UserAgent = "copy"
	clients, err := versioned.NewForConfig(reading)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is done about the silence: that is tested elsewhere.
	hearing, err := NewHearing(HearingConfig{Config: a.throughProxy(), ProbeAfter: -1, PollInterval: -1, AuditInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(Config[*platformv1alpha1.WebApp]{
		Resource: systemWebApps, Namespaces: []string{namespace}, Hearing: hearing,
		ListerWatcher: Tolerant(clients.PlatformV1alpha1().RESTClient()),
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = i.Run(t.Context()) })
	t.Cleanup(running.Wait)
	is := func(what string, want int) {
		t.Helper()
		controlplane.Eventually(t, 20*time.Second, what, func() (bool, string) {
			n, known := i.Unconverged(func(app *platformv1alpha1.WebApp) int64 { return app.Status.ObservedGeneration })
			return known && n == want, fmt.Sprintf("%d, known %t; %+v", n, known, i.Snapshot())
		})
	}
	observe := func(app *platformv1alpha1.WebApp) {
		t.Helper()
		app.Status.ObservedGeneration = app.Generation
		if _, err := apps.UpdateStatus(t.Context(), app, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	app, err := apps.Create(t.Context(), &platformv1alpha1.WebApp{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: platformv1alpha1.WebAppSpec{Image: "v1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, 20*time.Second, "the object in the copy", func() (bool, string) { s := i.Snapshot(); return s.Objects == 1, fmt.Sprintf("%+v", s) })
	if n, known := i.Unconverged(func(*platformv1alpha1.WebApp) int64 { return 0 }); known {
		t.Errorf("%d before the first audit", n)
	}
	hearing.AuditNow("test")
	is("not observed", 1)
	observe(app)
	is("observed, without another audit", 0)

	frozen := a.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"watch"}, UserAgentPrefix: "copy"}, Freeze: faultproxy.FreezeStream})
	if app, err = apps.Get(t.Context(), "app", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	app.Spec.Image = "v2"
	if app, err = apps.Update(t.Context(), app, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	hearing.AuditNow("test")
	is("changed, and the copy does not know", 1)
	if cached, _, _ := i.Indexer().GetByKey(namespace + "/app"); cached.(*platformv1alpha1.WebApp).Spec.Image != "v1" {
		t.Error("the copy was to be deaf")
	}
	frozen.Remove()
	observe(app)
	is("observed", 0)
}
