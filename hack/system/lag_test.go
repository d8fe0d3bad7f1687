package system_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

func lagging(proxy *faultproxy.Proxy, by time.Duration, resources ...string) *faultproxy.Fault {
	return proxy.Add(faultproxy.Rule{
		Match: faultproxy.Match{Verbs: []string{"watch"}, Func: func(r faultproxy.Request) bool {
			for _, resource := range resources {
				if r.Resource == resource {
					return true
				}
			}
			return false
		}},
		DelayFrames: by,
	})
}

// R92: a local copy that shows our write 10 s late leads to no second one, however
// often the key is woken meanwhile. R97: nor does it hold up others.
func TestLaggingCopyMakesNoSecondWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	p := w.start(proxy)
	seen := w.recordEffects()
	const lag = 10 * time.Second
	late := lagging(proxy, lag, "deployments", "services")
	since := time.Now()
	w.create(newApp("web"))
	w.deployment("web", "exists", func(*appsv1.Deployment) bool { return true })
	for n := range 20 {
		w.change("web", func(a *v1alpha1.WebApp) { a.Annotations = map[string]string{"n": fmt.Sprint(n)} })
		w.pass(lag / 25)
	}
	began := time.Now()
	w.create(newApp("other"))
	w.deployment("other", "exists", func(*appsv1.Deployment) bool { return true })
	if took := time.Since(began); took > lag/2 {
		t.Errorf("another WebApp had to wait %s", took)
	}
	w.ready("web")
	w.ready("other")
	once := func(since time.Time, wanted ...string) {
		t.Helper()
		writes := w.writes(since)
		for _, write := range wanted {
			if writes[write] != 1 {
				t.Errorf("%q was made %d times: %v", write, writes[write], writes)
			}
		}
	}
	once(since, "patch deployments web", "patch services web", "patch deployments other", "patch services other")

	// The local copy has a Deployment now, and goes on showing the old one.
	since = time.Now()
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "registry.example/app:2" })
	w.deployment("web", "has the new image", func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
	})
	for n := range 10 {
		w.change("web", func(a *v1alpha1.WebApp) { a.Annotations = map[string]string{"n": fmt.Sprint("again", n)} })
		w.pass(lag / 25)
	}
	late.Remove()
	w.ready("web")
	p.settles()
	once(since, "patch deployments web")
	if d, s := distinct(seen.deployments.all()), distinct(seen.services.all()); len(d) != 3 || len(s) != 2 {
		t.Errorf("%d versions of 2 Deployments by us, want 3, and %d of 2 Services", len(d), len(s))
	}
	if stale := p.metric("steadwatch_reconcile_total", `class="Stale"`); stale == 0 {
		t.Error("no pass has waited for the local copy: this test shows nothing")
	}
}

// R61: no wake-up is lost by a local copy that lags, whenever the changes come.
func TestLaggingCopyLosesNoWakeUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	p := w.start(proxy)
	lagging(proxy, 2*time.Second, "webapps", "deployments", "services", "configmaps")
	const apps, changes = 5, 12
	image := func(n int) string { return fmt.Sprintf("registry.example/app:%d", n) }
	for i := range apps {
		w.create(newApp(fmt.Sprintf("web-%d", i)))
	}
	for n := 1; n <= changes; n++ {
		for i := range apps {
			w.change(fmt.Sprintf("web-%d", i), func(a *v1alpha1.WebApp) { a.Spec.Image = image(n) })
			w.pass(time.Duration(37*(n+i)%300) * time.Millisecond)
		}
	}
	last := time.Now()
	for i := range apps {
		name := fmt.Sprintf("web-%d", i)
		w.deployment(name, "has the last image", func(d *appsv1.Deployment) bool {
			return d.Spec.Template.Spec.Containers[0].Image == image(changes)
		})
		w.ready(name)
	}
	t.Logf("%s after the last change, %g passes, %g of them too early", time.Since(last).Round(time.Millisecond),
		p.passes(), p.metric("steadwatch_reconcile_total", `class="Stale"`))
}
