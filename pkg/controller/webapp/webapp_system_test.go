package webapp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

func newApp(name string, change ...func(*v1alpha1.WebApp)) *v1alpha1.WebApp {
	app := &v1alpha1.WebApp{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WebAppSpec{Image: "web:1", Replicas: ptr.To[int32](2)}}
	for _, f := range change {
		f(app)
	}
	return app
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// R64: an apply that changes nothing is not sent, by the next process either.
func TestConvergesAndThenWritesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.create(newApp("web"))
	w.condition("web", "Ready", "False RollingOut")
	p.idle(t)
	want := []string{"PATCH deployments/web", "PATCH services/web", "PATCH web/status", "PATCH webapps/web"}
	if diff := cmp.Diff(want, sorted(p.requests.written())); diff != "" {
		t.Errorf("writes for a new WebApp (-want +got):\n%s", diff)
	}
	w.rollOut("web")
	w.condition("web", "Ready", "True Available")
	p.idle(t)
	if diff := cmp.Diff([]string{"Normal Ready"}, p.reasons()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	app := w.app("web")
	if app.Status.Replicas != 2 || app.Status.Selector != "platform.tejo.dev/webapp=web" {
		t.Errorf("status is %+v", app.Status)
	}

	p.requests.forget()
	p.control.Enqueue(2, p.webApp.Keys()...)
	p.idle(t)
	p.stop()
	next := w.start(options{})
	next.idle(t)
	if got := append(p.requests.written(), next.requests.written()...); len(got) > 0 {
		t.Errorf("writes although nothing has changed: %v", got)
	}
	if got := next.requests.read(); len(got) > 0 {
		t.Errorf("reads from the API server although everything is in the cache: %v", got)
	}
	if after := w.app("web"); after.ResourceVersion != app.ResourceVersion {
		t.Errorf("resourceVersion went from %s to %s", app.ResourceVersion, after.ResourceVersion)
	}
}

// R70.
func TestConfigMapRollsThePodsWhenItsContentChanges(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Spec.ConfigRef = "settings" }))
	w.condition("web", "DependenciesReady", "False ConfigMapMissing")
	w.condition("web", "Ready", "False ConfigMapMissing")
	p.idle(t)
	if _, err := w.kube.AppsV1().Deployments(w.namespace).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a Deployment without its ConfigMap: %v", err)
	}
	if waiting := p.control.Snapshot().Waiting; waiting > 0 {
		t.Errorf("%d keys wait for a timer: a missing ConfigMap is not polled for", waiting)
	}
	if diff := cmp.Diff([]string{"Warning ConfigMapMissing"}, p.reasons()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}

	configMaps := w.kube.CoreV1().ConfigMaps(w.namespace)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "1"}}
	create := func() {
		t.Helper()
		if _, err := configMaps.Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create()
	w.condition("web", "DependenciesReady", "True DependenciesFound")
	template := func(what string, f func(*appsv1.Deployment) bool) corev1.PodTemplateSpec {
		t.Helper()
		return w.deployment("web", what, f).Spec.Template
	}
	first := template("to exist", func(*appsv1.Deployment) bool { return true })
	if from := first.Spec.Containers[0].EnvFrom; len(from) != 1 || from[0].ConfigMapRef.Name != "settings" {
		t.Errorf("envFrom is %+v", from)
	}
	unchanged := func(why string) {
		t.Helper()
		p.idle(t)
		if diff := cmp.Diff(first, template("to exist", func(*appsv1.Deployment) bool { return true })); diff != "" {
			t.Errorf("%s (-before +after):\n%s", why, diff)
		}
	}

	settings.Labels = map[string]string{"same": "data"}
	if _, err := configMaps.Update(t.Context(), settings, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	unchanged("metadata changed, and the pods are rolled")

	if err := configMaps.Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.condition("web", "DependenciesReady", "False ConfigMapMissing")
	unchanged("the ConfigMap has gone, and the pods are rolled")
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = ptr.To[int32](4) })
	w.deployment("web", "4 replicas while the ConfigMap is missing", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 4 })
	unchanged("replicas changed, and the pods are rolled")
	create()
	w.condition("web", "DependenciesReady", "True DependenciesFound")
	unchanged("the same content came back, and the pods are rolled")

	settings.Data["a"] = "2"
	if _, err := configMaps.Update(t.Context(), settings, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := template("another hash", func(d *appsv1.Deployment) bool {
		return !cmp.Equal(d.Spec.Template.Annotations, first.Annotations)
	})
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.ConfigRef = "" })
	third := template("no ConfigMap", func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].EnvFrom == nil })
	if len(third.Annotations) > 0 || len(second.Annotations) != 1 {
		t.Errorf("annotations: with a ConfigMap %v, without %v", second.Annotations, third.Annotations)
	}
}

func TestDriftIsSetBackAndForeignFieldsStay(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.create(newApp("web"))
	w.condition("web", "Ready", "False RollingOut")
	p.idle(t)

	deployments := w.kube.AppsV1().Deployments(w.namespace)
	patch := func(body string) *appsv1.Deployment {
		t.Helper()
		d, err := deployments.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "somebody"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	patch(`{"metadata":{"labels":{"team":"shop"}},"spec":{"revisionHistoryLimit":3,"template":{"spec":{"containers":[{"name":"app","image":"evil:1","imagePullPolicy":"Never"},{"name":"sidecar","image":"proxy"}]}}}}`)
	d := w.deployment("web", "our image again", func(d *appsv1.Deployment) bool {
		return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == "app" && c.Image == "web:1" })
	})
	if d.Labels["team"] != "shop" || *d.Spec.RevisionHistoryLimit != 3 || len(d.Spec.Template.Spec.Containers) != 2 {
		t.Errorf("what somebody else added is gone: labels %v, history %d, %d containers",
			d.Labels, *d.Spec.RevisionHistoryLimit, len(d.Spec.Template.Spec.Containers))
	}
	p.idle(t)
	p.requests.forget()
	patch(`{"metadata":{"labels":{"team":"other"}}}`)
	p.idle(t)
	if got := p.requests.written(); len(got) > 0 {
		t.Errorf("a foreign label changed, and this was written: %v", got)
	}

	services := w.kube.CoreV1().Services(w.namespace)
	if _, err := services.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"selector":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "our selector and no other", func() (bool, string) {
		s, err := services.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		diff := cmp.Diff(map[string]string{"platform.tejo.dev/webapp": "web"}, s.Spec.Selector)
		return diff == "", diff
	})

	old := d.UID
	for _, err := range []error{
		deployments.Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}),
		services.Delete(t.Context(), "web", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.deployment("web", "a new one", func(d *appsv1.Deployment) bool { return d.UID != old })
	eventually(t, "a new Service", func() (bool, string) {
		_, err := services.Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil, "none"
	})
}

func TestReplicasBelongToWhoeverSetsThem(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = ptr.To[int32](5) }))
	replicas := func(what string, n int32) {
		t.Helper()
		w.deployment("web", what, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n })
		w.condition("web", "Ready", "False RollingOut")
		p.idle(t)
		w.deployment("web", what, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n })
	}
	replicas("5 as asked for", 5)
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = nil })
	replicas("5 although it is asked for no more", 5)

	// An autoscaler writes the scale subresource.
	deployments := w.kube.AppsV1().Deployments(w.namespace)
	scale, err := deployments.GetScale(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 7
	if _, err := deployments.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{FieldManager: "autoscaler"}); err != nil {
		t.Fatal(err)
	}
	replicas("7 as the autoscaler says", 7)
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "web:2" })
	w.deployment("web", "the new image", func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image == "web:2" })
	replicas("7 after another change", 7)
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = ptr.To[int32](2) })
	replicas("2, asked for again, against the autoscaler", 2)
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = nil })
	replicas("2, handed over once more", 2)
}

func TestForeignChildIsNotTakenOver(t *testing.T) {
	w := newWorld(t)
	deployments := w.kube.AppsV1().Deployments(w.namespace)
	labels := map[string]string{"app": "legacy"}
	created, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "legacy:1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := w.start(options{})
	w.create(newApp("web"))
	w.condition("web", "Degraded", "True ChildNotOwned")
	w.condition("web", "Ready", "False ChildNotOwned")
	p.idle(t)
	w.deployment("web", "to be untouched", func(d *appsv1.Deployment) bool { return d.ResourceVersion == created.ResourceVersion })
	if diff := cmp.Diff([]string{"Warning ChildNotOwned"}, p.reasons()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	if n := p.passesOf("Terminal"); n == 0 || n > 3 {
		t.Errorf("%d passes: it ought to wait for an event", n)
	}

	// It is not drained with us either.
	if err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone("web")
	w.deployment("web", "to be untouched", func(d *appsv1.Deployment) bool { return d.ResourceVersion == created.ResourceVersion })

	w.create(newApp("web"))
	w.condition("web", "Degraded", "True ChildNotOwned")
	if err := deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.condition("web", "Degraded", "False AsExpected")
}

func TestChildrenOfAnEarlierWebAppAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Spec.DrainTimeout = &metav1.Duration{} }))
	w.condition("web", "Ready", "False RollingOut")
	if err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone("web")
	// No garbage collector runs here: the children stay.
	old := w.deployment("web", "to have stayed", func(*appsv1.Deployment) bool { return true })
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "web:2" }))
	w.condition("web", "Ready", "False WaitingForGarbageCollection")
	p.idle(t)
	w.deployment("web", "to be untouched", func(d *appsv1.Deployment) bool { return d.ResourceVersion == old.ResourceVersion })
	if err := w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.kube.CoreV1().Services(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.condition("web", "Ready", "False RollingOut")
	w.deployment("web", "the new one's", func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image == "web:2" })
}

func TestTerminatingChildIsMadeAnewWhenItIsGone(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{})
	w.create(newApp("web"))
	w.condition("web", "Ready", "False RollingOut")
	deployments := w.kube.AppsV1().Deployments(w.namespace)
	if err := deployments.Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	w.condition("web", "Ready", "False ChildTerminating")
	p.idle(t)
	p.requests.forget()
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "web:2" })
	w.condition("web", "Ready", "False ChildTerminating")
	p.idle(t)
	if got := p.requests.written(); slices.Contains(got, "PATCH deployments/web") {
		t.Errorf("a Deployment that is being deleted was written to: %v", got)
	}
	old := w.deployment("web", "to be there still", func(d *appsv1.Deployment) bool { return d.DeletionTimestamp != nil })
	if _, err := deployments.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.deployment("web", "a new one", func(d *appsv1.Deployment) bool { return d.UID != old.UID })
	w.condition("web", "Ready", "False RollingOut")
}

// R56: what the server refuses is shown in its words, once, and not in a loop.
func TestRefusedWriteIsShownInTheServersWords(t *testing.T) {
	w := newWorld(t)
	app := w.create(newApp("web"))
	labels := map[string]string{"app": "web"}
	// Ours by owner, but made by somebody with another selector, which nobody can change.
	_, err := w.kube.AppsV1().Deployments(w.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(app, v1alpha1.SchemeGroupVersion.WithKind("WebApp"))}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "legacy:1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := w.start(options{})
	w.condition("web", "Degraded", "True Invalid")
	p.idle(t)
	if message := meta.FindStatusCondition(w.app("web").Status.Conditions, "Degraded").Message; !strings.Contains(message, "field is immutable") {
		t.Errorf("the message is %q", message)
	}
	if n := p.passesOf("Invalid"); n == 0 || n > 4 {
		t.Errorf("%d passes", n)
	}
	if diff := cmp.Diff([]string{"Warning Invalid"}, p.reasons()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	if _, err := w.kube.CoreV1().Services(w.namespace).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the Service was not made because the Deployment could not be: %v", err)
	}
}

func TestLostResponseDoublesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start(options{loseFirst: "deployments"})
	w.create(newApp("web"))
	w.condition("web", "Ready", "False RollingOut")
	p.idle(t)
	if n := p.passesOf("Retry"); n != 1 {
		t.Errorf("%d passes failed, want 1", n)
	}
	all, err := w.kube.AppsV1().Deployments(w.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 || all.Items[0].Generation != 1 {
		t.Errorf("Deployments: %v, %v", all.Items, err)
	}
	if got := p.requests.written(); slices.Index(got, "PATCH deployments/web") != lastIndex(got, "PATCH deployments/web") {
		t.Errorf("applied again although it was there: %v", got)
	}
}

func lastIndex(s []string, v string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == v {
			return i
		}
	}
	return -1
}

func (w *world) gone(name string) {
	w.Helper()
	eventually(w.T, "WebApp "+name+" to be gone", func() (bool, string) {
		app, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		return false, app.ResourceVersion + " with finalizers " + cmp.Diff([]string(nil), app.Finalizers)
	})
}
