package system_test

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// kubectl runs the real one, as an administrator, in the test's namespace.
func (w *world) kubectl(args ...string) (string, error) {
	w.Helper()
	args = append([]string{"--kubeconfig=" + w.plane.KubeconfigFile(), "--namespace=" + w.namespace}, args...)
	out, err := exec.CommandContext(w.Context(), w.plane.Binary("kubectl"), args...).CombinedOutput()
	return string(out), err
}

// autoscale does what a HorizontalPodAutoscaler does.
func (w *world) autoscale(name string, n int32) {
	w.Helper()
	if _, err := w.kube.AppsV1().Deployments(w.namespace).Patch(w.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{FieldManager: "autoscaler"}, "scale"); err != nil {
		w.Fatal(err)
	}
}

func (w *world) hasReplicas(name string, n int32) {
	w.Helper()
	w.deployment(name, fmt.Sprintf("has %d replicas", n), func(d *appsv1.Deployment) bool { return ptr.Deref(d.Spec.Replicas, -1) == n })
}

// restartsQuietly restarts a controller that has nothing to do.
func (p *process) restartsQuietly() *process {
	p.w.Helper()
	p.settles()
	since := time.Now()
	next := p.restarts(nil)
	p.w.silent("it was restarted", since)
	return next
}

// An autoscaler's number survives whatever we do; a number that we set and no
// longer set stays, without a moment at the default of 1.
func TestReplicasAreLeftToAnAutoscaler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	numbers := record(w, "deployments", func(d runtime.Object) int32 { return ptr.Deref(d.(*appsv1.Deployment).Spec.Replicas, -1) })
	p := w.start(nil)
	w.create(newApp("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = nil }))
	w.ready("web")
	w.autoscale("web", 4)
	w.ready("web")
	for range 2 {
		p = p.restartsQuietly()
		w.hasReplicas("web", 4)
	}
	// A write of ours beside it.
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "registry.example/app:2" })
	w.deployment("web", "has the new image", func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
	})
	w.ready("web")
	w.hasReplicas("web", 4)

	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = ptr.To[int32](5) })
	w.hasReplicas("web", 5)
	w.ready("web")
	p.settles()
	w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Replicas = nil })
	p.settles()
	w.hasReplicas("web", 5)
	w.ready("web")
	p = p.restartsQuietly()
	w.hasReplicas("web", 5)
	w.autoscale("web", 2)
	w.ready("web")
	p.settles()
	w.hasReplicas("web", 2)

	got := slices.Compact(numbers.all())
	if want := []int32{1, 4, 5, 2}; !slices.Equal(got, want) {
		t.Errorf("spec.replicas went through %v, want %v", got, want)
	}
}
