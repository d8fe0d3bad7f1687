package system_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// replicaSets returns how many ReplicaSets a WebApp has had: its rollouts.
func (w *world) replicaSets() int {
	w.Helper()
	list, err := w.kube.AppsV1().ReplicaSets(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return len(list.Items)
}

// quiet runs do, which the controller must not answer with a write.
func (p *process) quiet(why string, do func()) {
	p.w.Helper()
	p.settles()
	since := time.Now()
	do()
	p.settles()
	p.w.silent(why, since)
}

func (w *world) silent(why string, since time.Time) {
	w.Helper()
	if got := w.writes(since); len(got) > 0 {
		w.Errorf("%s, and the controller wrote %v", why, got)
	}
}

// The guide, with the samples as users apply them (R70).
func TestGuide(t *testing.T) {
	t.Parallel()
	w := newWorldIn(t, "prod")
	p := w.start(nil)
	apply := func(sample string) {
		t.Helper()
		if err := w.plane.ApplyFile(t.Context(), filepath.Join(root, "manifests", "samples", sample)); err != nil {
			t.Fatal(err)
		}
	}

	// Before its ConfigMap.
	apply("webapp.yaml")
	missing := w.condition("payments", v1alpha1.ConditionDependenciesReady, "False ConfigMapMissing")
	if !strings.Contains(missing.Message, `"payments-config"`) {
		t.Errorf("the condition does not name the ConfigMap: %s", missing.Message)
	}
	if _, err := w.kube.AppsV1().Deployments("prod").Get(t.Context(), "payments", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Deployment whose pods could not start: %v", err)
	}
	w.told("payments", "Warning ConfigMapMissing")
	before := w.app("payments")
	apply("configmap.yaml")
	w.ready("payments")
	w.told("payments", "Normal DependenciesFound")
	w.told("payments", "Normal Ready")
	after := w.app("payments")
	if before.Generation != after.Generation || before.UID != after.UID {
		t.Errorf("the WebApp was touched: generation %d, then %d", before.Generation, after.Generation)
	}
	if s := after.Status; s.Replicas != 3 || s.ReadyReplicas != 3 {
		t.Errorf("status is %+v", s)
	}

	configMaps := w.kube.CoreV1().ConfigMaps("prod")
	edit := func(body string) {
		t.Helper()
		if _, err := configMaps.Patch(t.Context(), "payments-config", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	configHash := func() string {
		return fmt.Sprint(w.deployment("payments", "exists", func(*appsv1.Deployment) bool { return true }).Spec.Template.Annotations)
	}
	rolls := func(why string, want int, do func()) {
		t.Helper()
		old := configHash()
		do()
		w.eventually(patience, "another pod template", func() (bool, string) { now := configHash(); return now != old, now })
		w.ready("payments")
		p.settles()
		if got := w.replicaSets(); got != want {
			t.Errorf("%s: %d ReplicaSets, want %d", why, got, want)
		}
	}
	rolls("its data was edited", 2, func() { edit(`{"data":{"LOG_LEVEL":"debug"}}`) })
	p.quiet("the ConfigMap was edited to the same data", func() {
		edit(`{"data":{"LOG_LEVEL":"debug"},"metadata":{"labels":{"edited":"yes"}}}`)
	})
	recreate := func(data map[string]string) {
		t.Helper()
		if err := configMaps.Delete(t.Context(), "payments-config", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.condition("payments", v1alpha1.ConditionDependenciesReady, "False ConfigMapMissing")
		if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "payments-config"}, Data: data}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.condition("payments", v1alpha1.ConditionDependenciesReady, "True DependenciesFound")
	}
	same, err := configMaps.Get(t.Context(), "payments-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	recreate(same.Data)
	p.settles()
	if got := w.replicaSets(); got != 2 {
		t.Errorf("the ConfigMap was made anew with the same data: %d ReplicaSets, want 2", got)
	}
	rolls("the ConfigMap was made anew with other data", 3, func() { recreate(map[string]string{"LOG_LEVEL": "warn"}) })

	// Children that somebody deletes come back.
	old := w.deployment("payments", "exists", func(*appsv1.Deployment) bool { return true })
	if err := w.kube.AppsV1().Deployments("prod").Delete(t.Context(), "payments", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.deployment("payments", "is another one", func(d *appsv1.Deployment) bool { return d.UID != old.UID })
	if err := w.kube.CoreV1().Services("prod").Delete(t.Context(), "payments", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(patience, "the Service to be back", func() (bool, string) {
		_, err := w.kube.CoreV1().Services("prod").Get(t.Context(), "payments", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	w.ready("payments")

	// What we own is set back, what we do not stays.
	if _, err := w.kube.AppsV1().Deployments("prod").Patch(t.Context(), "payments", types.StrategicMergePatchType,
		[]byte(`{"spec":{"minReadySeconds":1,"template":{"spec":{"containers":[{"name":"app","image":"evil:1","resources":{"requests":{"cpu":"10m"}}}]}}}}`),
		metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	d := w.deployment("payments", "has our image", func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == after.Spec.Image
	})
	if d.Spec.MinReadySeconds != 1 || d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String() != "10m" {
		t.Errorf("what somebody else owns is gone: %+v", d.Spec)
	}
	w.ready("payments")
	p.quiet("a field that is not ours changed", func() {
		if _, err := w.kube.AppsV1().Deployments("prod").Patch(t.Context(), "payments", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"team":"billing"}}}`), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
			t.Fatal(err)
		}
	})

	// What we no longer want goes.
	w.change("payments", func(a *v1alpha1.WebApp) { a.Spec.ConfigRef = "" })
	w.deployment("payments", "refers to no ConfigMap", func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].EnvFrom == nil && d.Spec.Template.Annotations["platform.tejo.dev/config-hash"] == ""
	})
	w.condition("payments", v1alpha1.ConditionDependenciesReady, "True NoDependencies")
	w.ready("payments")

	w.delete("payments")
	w.gone(patience, "payments")
	w.childless()
}

// With --cascade=orphan the children live on, and their pods too.
func TestOrphanedChildrenLiveOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(nil)
	w.create(newApp("web", replicas(2), func(a *v1alpha1.WebApp) { a.Spec.DrainTimeout = &metav1.Duration{Duration: time.Hour} }))
	w.ready("web")
	before := w.podNames()
	if out, err := w.kubectl("delete", "webapp", "web", "--cascade=orphan", "--timeout=60s"); err != nil {
		t.Fatalf("kubectl delete: %v\n%s", err, out)
	}
	w.gone(patience, "web")
	d := w.deployment("web", "has no owner", func(d *appsv1.Deployment) bool { return len(d.OwnerReferences) == 0 })
	service, err := w.kube.CoreV1().Services(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.pass(3 * time.Second) // the garbage collector's turn
	again := w.deployment("web", "exists", func(*appsv1.Deployment) bool { return true })
	if again.UID != d.UID || ptr.Deref(again.Spec.Replicas, 0) != 2 || len(service.OwnerReferences) > 0 {
		t.Errorf("the children are not as they were: %d replicas, owners of the Service %v", ptr.Deref(again.Spec.Replicas, 0), service.OwnerReferences)
	}
	if diff := cmp.Diff(before, w.podNames()); diff != "" || len(before) != 2 {
		t.Errorf("pods (-before +after):\n%s", diff)
	}
}

func (w *world) podNames() []string {
	w.Helper()
	list, err := w.kube.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// R65: an owner is in the namespace of what it owns; the garbage collector, which
// deletes what breaks that rule, finds nothing to do.
func TestOwnersAreInTheSameNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(nil)
	w.create(newApp("web"))
	w.ready("web")
	app := w.app("web")
	d := w.deployment("web", "exists", func(*appsv1.Deployment) bool { return true })
	s, err := w.kube.CoreV1().Services(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "WebApp", Name: "web", UID: app.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	for _, owners := range [][]metav1.OwnerReference{d.OwnerReferences, s.OwnerReferences} {
		if diff := cmp.Diff(want, owners); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
	}
	events, err := w.plane.Audit(t.Context(), func(e controlplane.AuditEvent) bool {
		return e.Namespace == w.namespace && e.Verb == "delete" && e.User == "system:serviceaccount:kube-system:generic-garbage-collector"
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(events) > 0 {
		t.Errorf("the garbage collector deletes what belongs to a WebApp that exists: %+v", events)
	}
}
