package webapp_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

func drainIn(d time.Duration) func(*v1alpha1.WebApp) {
	return func(a *v1alpha1.WebApp) { a.Spec.DrainTimeout = &metav1.Duration{Duration: d} }
}

// running creates a WebApp whose pods run.
func (w *world) running(name string, change ...func(*v1alpha1.WebApp)) *v1alpha1.WebApp {
	w.Helper()
	w.create(newApp(name, change...))
	w.condition(name, "Ready", "False RollingOut")
	w.rollOut(name)
	w.condition(name, "Ready", "True Available")
	return w.app(name)
}

func (w *world) delete(name string, options metav1.DeleteOptions) {
	w.Helper()
	if err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Delete(w.Context(), name, options); err != nil {
		w.Fatal(err)
	}
}

func TestDrainWaitsForThePods(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.running("web", drainIn(time.Hour))
	p.idle(t)
	p.requests.forget()
	p.reasons()
	w.delete("web", metav1.DeleteOptions{})
	w.deployment("web", "no replicas", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 0 })
	w.condition("web", "Progressing", "True Draining")
	w.condition("web", "Ready", "False Draining")
	p.idle(t)
	want := []string{"PATCH deployments/web", "PATCH web/status"}
	if diff := cmp.Diff(want, sorted(p.requests.written())); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	for range 10 {
		p.control.Enqueue(1, p.webApp.Keys()...)
		p.idle(t)
	}
	if diff := cmp.Diff(want, sorted(p.requests.written())); diff != "" {
		t.Errorf("writes after ten more passes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal Draining"}, p.reasons()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}

	// The next process goes on where this one stopped.
	p.stop()
	next := w.start(options{})
	next.idle(t)
	if got := next.requests.written(); len(got) > 0 {
		t.Errorf("writes of the next process: %v", got)
	}
	w.rollOut("web")
	w.gone("web")
	if diff := cmp.Diff([]string{"PATCH webapps/web"}, next.requests.written()); diff != "" {
		t.Errorf("writes once drained (-want +got):\n%s", diff)
	}
}

func TestDrainIsBounded(t *testing.T) {
	w := newWorld(t)
	w.start(options{})
	w.running("web", drainIn(2*time.Second))
	began := time.Now()
	w.delete("web", metav1.DeleteOptions{})
	w.gone("web")
	// deletionTimestamp has whole seconds; the rest is what a slow machine may add.
	if took := time.Since(began); took < time.Second || took > 15*time.Second {
		t.Errorf("gone after %s, with a drainTimeout of 2s", took)
	}
	w.deployment("web", "to have been scaled down", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 0 })

	w.running("now", drainIn(0))
	w.delete("now", metav1.DeleteOptions{})
	w.gone("now")
	w.deployment("now", "to be left to the garbage collector", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 })
}

func TestOrphansAreNotDrained(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.running("web", drainIn(time.Hour))
	w.delete("web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	eventually(t, "our finalizer to be gone", func() (bool, string) {
		f := w.app("web").Finalizers
		return slices.Equal(f, []string{metav1.FinalizerOrphanDependents}), fmt.Sprint(f)
	})
	p.idle(t)
	w.deployment("web", "to be untouched", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 })
	w.removeFinalizers("web")
}

func (w *world) removeFinalizers(name string) {
	w.Helper()
	if _, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Patch(w.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// R67: the finalizer is wanted just when the object is being deleted.
func TestNoFinalizerForADeletedObject(t *testing.T) {
	w := newWorld(t)
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Finalizers = []string{"example.com/other"} }))
	p := w.start(options{})
	w.condition("web", "Ready", "False RollingOut")
	p.idle(t)
	p.stop()
	// As seen by a process whose cache is behind: no finalizer, not deleted.
	w.rawPatch("web", `[{"op":"replace","path":"/metadata/finalizers","value":["example.com/other"]}]`)
	late := w.start(options{webAppLag: 2 * time.Second, beforeRun: func() { w.delete("web", metav1.DeleteOptions{}) }})
	late.idle(t)
	if n := late.passesOf("Invalid") + late.passesOf("Retry"); n > 0 {
		t.Errorf("%d passes failed", n)
	}
	if got := late.requests.written(); !slices.Contains(got, "PATCH webapps/web") {
		t.Errorf("nobody has tried to add the finalizer: %v", got)
	}
	if f := w.app("web").Finalizers; !slices.Equal(f, []string{"example.com/other"}) {
		t.Errorf("finalizers are %v", f)
	}
	w.removeFinalizers("web")
	w.gone("web")
}

func (w *world) rawPatch(name, patch string) {
	w.Helper()
	if _, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Patch(w.Context(), name, types.JSONPatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// R74.
func TestNamespaceTerminating(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.running("web", drainIn(time.Second))
	p.idle(t)
	p.reasons()
	p.requests.forget()
	if err := w.kube.CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// No namespace controller runs here. It deletes in no particular order.
	if err := w.kube.CoreV1().Services(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.condition("web", "Ready", "False NamespaceTerminating")
	p.idle(t)
	if failing := p.control.Snapshot().Failing; failing > 0 {
		t.Errorf("%d keys fail and are retried", failing)
	}
	if writes := p.requests.written(); len(writes) > 4 {
		t.Errorf("%d writes: %v", len(writes), writes)
	}
	w.delete("web", metav1.DeleteOptions{})
	w.gone("web")
	if got := p.reasons(); len(got) > 0 {
		t.Errorf("Events in a namespace that is being deleted: %v", got)
	}
}

// A WebApp whose spec cannot be read is finalized all the same.
func TestFinalizeFromMetadata(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	app := w.running("web")
	p.idle(t)
	p.stop()
	finalizers := []string{"example.com/first", v1alpha1.Finalizer, "example.com/keep"}
	w.change("web", func(a *v1alpha1.WebApp) { a.Finalizers = finalizers })
	partial := func() *metav1.PartialObjectMetadata {
		current := w.app("web")
		return &metav1.PartialObjectMetadata{ObjectMeta: *current.ObjectMeta.DeepCopy()}
	}
	if result, err := p.webApp.Finalize(t.Context(), partial()); err != nil || result.After != 0 {
		t.Errorf("an object that is not being deleted: %+v, %v", result, err)
	}
	w.delete("web", metav1.DeleteOptions{})
	result, err := p.webApp.Finalize(t.Context(), partial())
	if err != nil || result.Reason != "draining" || result.After <= 25*time.Second || result.After > 30*time.Second {
		t.Errorf("draining: %+v, %v, want the default of 30s", result, err)
	}
	w.rollOut("web")
	// The cache of the stopped process still shows pods.
	stale := partial()
	// Where ours was there is another now.
	w.rawPatch("web", `[{"op":"remove","path":"/metadata/finalizers/0"}]`)
	eventually(t, "the drain to end", func() (bool, string) {
		result, err := p.webApp.Finalize(t.Context(), stale)
		if err != nil {
			t.Fatal(err)
		}
		return result.After == 0, result.Reason
	})
	if f := w.app("web").Finalizers; !slices.Equal(f, []string{"example.com/keep"}) {
		t.Errorf("finalizers are %v", f)
	}
	if _, err := p.webApp.Finalize(t.Context(), stale); err != nil {
		t.Errorf("a second time: %v", err)
	}
	// R73: the successor's finalizer is not the predecessor's to remove.
	w.removeFinalizers("web")
	w.gone("web")
	next := w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Finalizers = finalizers }))
	if next.UID == app.UID {
		t.Fatal("the same uid")
	}
	if _, err := p.webApp.Finalize(t.Context(), stale); err != nil {
		t.Errorf("for an object that has been replaced: %v", err)
	}
	if f := w.app("web").Finalizers; !slices.Contains(f, v1alpha1.Finalizer) {
		t.Errorf("the successor has lost its finalizer: %v", f)
	}
	w.deployment("web", "0 replicas, untouched", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 0 })
}

// R92, R97: a cache that lags leads to no second write, and holds nobody else up.
func TestLaggingCacheMakesNoSecondWrite(t *testing.T) {
	cases := map[string]struct {
		reason       string
		overdueAfter time.Duration
	}{
		"Waits":     {"the pass waits until the cache shows the write", time.Minute},
		"LooksLive": {"past its bound the API server is asked instead", 500 * time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.start(options{lag: 1500 * time.Millisecond, overdueAfter: tc.overdueAfter})
			deployments := func() []string {
				return slices.DeleteFunc(p.requests.written(), func(write string) bool { return !strings.Contains(write, "deployments/") })
			}
			settle := func() {
				t.Helper()
				for range 20 {
					w.rawPatch("web", `[{"op":"add","path":"/metadata/annotations","value":{"n":"`+time.Now().String()+`"}}]`)
				}
				eventually(t, "the cache to show the Deployment", func() (bool, string) {
					live := w.deployment("web", "to exist", func(*appsv1.Deployment) bool { return true })
					cached, ok, _ := p.deployments.GetByKey(w.namespace + "/web")
					return ok && cached.(*appsv1.Deployment).ResourceVersion == live.ResourceVersion, "an older one"
				})
				p.idle(t)
			}
			w.create(newApp("web"))
			w.condition("web", "Ready", "False RollingOut")
			settle()
			if diff := cmp.Diff([]string{"PATCH deployments/web"}, deployments()); diff != "" {
				t.Errorf("create: %s (-want +got):\n%s", tc.reason, diff)
			}

			p.requests.forget()
			w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "web:2" })
			w.deployment("web", "the new image", func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image == "web:2" })
			settle()
			if diff := cmp.Diff([]string{"PATCH deployments/web"}, deployments()); diff != "" {
				t.Errorf("change: %s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The status of one WebApp must not land on the next of its name.
func TestStatusIsNotWrittenToASuccessor(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{webAppLag: 3 * time.Second})
	w.create(newApp("web", drainIn(0)))
	w.condition("web", "Ready", "False RollingOut")
	p.idle(t)
	// Behind the back of the process: another WebApp, the pods are there.
	w.delete("web", metav1.DeleteOptions{})
	w.removeFinalizers("web")
	w.gone("web")
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "web:2" }))
	w.rollOut("web") // the old one's Deployment: an event for the stale key
	p.idle(t)
	if ready := w.app("web").Status.Conditions; len(ready) > 0 && ready[0].Status == metav1.ConditionTrue {
		data, _ := json.Marshal(ready)
		t.Errorf("the successor is Ready: %s", data)
	}
}
