package system_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// Somebody deletes a child while a pass that has read it is under way.
func TestChildDeletedDuringAPass(t *testing.T) {
	cases := map[string]struct {
		reason string
		during faultproxy.Match
	}{
		"BeforeItsApply": {"an apply that is meant for it creates none in its place by accident, and the next one does", applyDeployment},
		"AfterItsApply":  {"the write that is being remembered is of an object that is gone", applyStatus},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			proxy := w.proxy()
			p := w.start(proxy)
			w.create(newApp("web"))
			w.ready("web")
			p.settles()
			old := w.deployment("web", "exists", func(*appsv1.Deployment) bool { return true })
			held := hold(proxy, 1, tc.during)
			w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "registry.example/app:2" })
			w.reached(held.Fault, "the write during which it is deleted")
			if err := w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.eventually(patience, "the Deployment to be gone", func() (bool, string) {
				d, err := w.kube.AppsV1().Deployments(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
				return apierrors.IsNotFound(err) || err == nil && d.UID != old.UID, "it is there"
			})
			released := time.Now()
			close(held.open)
			d := w.deployment("web", "is another one", func(d *appsv1.Deployment) bool { return d.UID != old.UID })
			if image := d.Spec.Template.Spec.Containers[0].Image; image != "registry.example/app:2" {
				t.Errorf("%s: image %s", tc.reason, image)
			}
			w.ready("web")
			p.settles()
			if took := time.Since(released); took > 30*time.Second {
				t.Errorf("%s: it took %s", tc.reason, took)
			}
			if got := w.writes(released)["patch deployments web"]; got > 2 {
				t.Errorf("%s: %d applies", tc.reason, got)
			}
		})
	}
}

// Somebody puts an object of their own in the place of a child that a pass has
// read. What is on the way is meant for the old one, and is refused.
func TestChildReplacedDuringAPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	w.start(proxy)
	w.create(newApp("web"))
	w.ready("web")
	held := hold(proxy, 1, applyService)
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Port = 9090 })
	w.reached(held.Fault, "an apply of the Service")
	services := w.kube.CoreV1().Services(w.namespace)
	if err := services.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Without selector and owner, so that a merge into it would be valid.
	foreign, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "other"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "theirs", Port: 1234}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	close(held.open)
	degraded := w.condition("web", v1alpha1.ConditionDegraded, "True ChildNotOwned")
	if !strings.Contains(degraded.Message, `Service "web"`) {
		t.Errorf("the condition does not name the Service: %s", degraded.Message)
	}
	got, err := services.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("somebody else's Service was written to: %+v", got)
	}
	// With the way clear it is ours to make again.
	if err := services.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.ready("web")
}

// Somebody writes the WebApp while its status is on the way: a conflict, which is
// no failure.
func TestConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	p := w.start(proxy)
	held := hold(proxy, 1, applyStatus)
	since := time.Now()
	w.create(newApp("web"))
	w.reached(held.Fault, "the first status")
	w.change("web", func(a *v1alpha1.WebApp) {
		a.Annotations = map[string]string{"example.com/note": "mine"}
		a.Spec.Image = "registry.example/app:2"
	})
	close(held.open)
	w.ready("web")
	w.deployment("web", "has the new image", func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
	})
	p.settles()
	if w.app("web").Annotations["example.com/note"] != "mine" {
		t.Error("what the user wrote is gone")
	}
	if failed := p.metric("steadwatch_reconcile_total", `class="Retry"`) + p.metric("steadwatch_reconcile_total", `class="Invalid"`); failed > 0 {
		t.Errorf("%g passes failed", failed)
	}
	if got := w.writes(since)["patch webapps/status web"]; got > 6 {
		t.Errorf("%d writes of the status", got)
	}
}

// R73, R94: the children of an earlier WebApp of the same name are not touched,
// and nothing is made beside them; when they are gone the new one gets its own.
func TestRecreatedWhileChildrenLinger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(nil)
	w.create(newApp("web"))
	w.ready("web")
	finalizers := func(list string) {
		t.Helper()
		if _, err := w.kube.AppsV1().Deployments(w.namespace).Patch(t.Context(), "web", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/hold"]`)
	first := w.app("web")
	w.delete("web")
	w.gone(patience, "web")
	old := w.deployment("web", "is being collected", func(d *appsv1.Deployment) bool { return d.DeletionTimestamp != nil })
	p.settles()

	since := time.Now()
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "registry.example/app:2" }))
	w.condition("web", v1alpha1.ConditionReady, "False WaitingForGarbageCollection")
	if w.app("web").UID == first.UID {
		t.Fatal("the same WebApp")
	}
	p.settles()
	if got := w.writes(since)["patch deployments web"]; got > 0 {
		t.Errorf("%d writes to the old one's Deployment", got)
	}
	if d := w.deployment("web", "exists", func(*appsv1.Deployment) bool { return true }); d.UID != old.UID || d.Generation != old.Generation {
		t.Errorf("the old Deployment has changed: %s generation %d, before %s generation %d", d.UID, d.Generation, old.UID, old.Generation)
	}
	finalizers("null")
	w.deployment("web", "is the new one's", func(d *appsv1.Deployment) bool {
		return d.UID != old.UID && d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
	})
	w.ready("web")
}
