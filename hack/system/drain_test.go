package system_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

func drainIn(d time.Duration) func(*v1alpha1.WebApp) {
	return func(a *v1alpha1.WebApp) { a.Spec.DrainTimeout = &metav1.Duration{Duration: d} }
}

// holdPods makes pods that end only when they are released.
func (w *world) holdPods(finalizers string) {
	w.Helper()
	list, err := w.kube.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, pod := range list.Items {
		if _, err := w.kube.CoreV1().Pods(w.namespace).Patch(w.Context(), pod.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers), metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// Pods that end let the object go at once; pods that do not, after drainTimeout.
func TestDeletionDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(nil)
	w.create(newApp("prompt", replicas(2), drainIn(time.Hour)))
	w.ready("prompt")
	w.delete("prompt")
	w.gone(patience, "prompt")
	w.childless()

	const timeout = 6 * time.Second
	w.create(newApp("stubborn", replicas(2), drainIn(timeout)))
	w.ready("stubborn")
	w.holdPods(`["example.com/hold"]`)
	began := time.Now()
	w.delete("stubborn")
	w.condition("stubborn", v1alpha1.ConditionProgressing, "True Draining")
	w.told("stubborn", "Normal Draining")
	w.deployment("stubborn", "is scaled to zero", func(d *appsv1.Deployment) bool { return ptr.Deref(d.Spec.Replicas, -1) == 0 })
	w.gone(patience, "stubborn")
	// deletionTimestamp, from which the API server's time counts, has whole seconds.
	if took := time.Since(began); took < timeout-time.Second || took > timeout+10*time.Second {
		t.Errorf("gone after %s, with a drainTimeout of %s", took, timeout)
	}
	if pods, err := w.kube.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) != 2 {
		t.Errorf("%d pods have been waited for, %v; this test wants 2 that have not ended", len(pods.Items), err)
	}
	w.holdPods("null")
	w.childless()
}

// Every step of a finalization may be repeated; the drain is asked for once.
func TestFinalizationRetriedTenTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	p := w.start(proxy, "--retry-max-delay=500ms")
	w.create(newApp("web", replicas(1), drainIn(time.Hour)))
	w.ready("web")
	p.settles()
	fault := proxy.Add(faultproxy.Rule{
		Match:  faultproxy.Match{Verbs: []string{"patch"}, Resource: "webapps", Subresource: "-"},
		Times:  10,
		Answer: &faultproxy.Answer{Code: 500},
	})
	since := time.Now()
	w.delete("web")
	w.gone(patience, "web")
	if fault.Hits() != 10 {
		t.Errorf("%d tries failed, want 10", fault.Hits())
	}
	p.settles()
	writes := w.writes(since)
	if got := writes["patch deployments web"]; got != 1 {
		t.Errorf("the Deployment was scaled down %d times: %v", got, writes)
	}
	if got := writes["patch webapps web"]; got != 1 {
		t.Errorf("%d requests to remove the finalizer have reached the API server: %v", got, writes)
	}
	if got := writes["create events"]; got > 2 {
		t.Errorf("%d Events: %v", got, writes)
	}
	w.childless()
}

// The answers to both writes of a finalization are lost: neither is made twice.
func TestFinalizationWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	p := w.start(proxy)
	w.create(newApp("web", replicas(1), drainIn(time.Hour)))
	w.ready("web")
	p.settles()
	var lost []*faultproxy.Fault
	for _, match := range []faultproxy.Match{applyDeployment, applyFinalizer} {
		lost = append(lost, proxy.Add(faultproxy.Rule{Match: match, Times: 1, DropResponse: true, Close: faultproxy.ResetStream}))
	}
	since := time.Now()
	w.delete("web")
	w.gone(patience, "web")
	p.settles()
	for n, fault := range lost {
		if fault.Hits() != 1 {
			t.Errorf("%d answers were lost of write %d, want 1", fault.Hits(), n)
		}
	}
	writes := w.accepted(since)
	if writes["patch deployments web"] != 1 || writes["patch webapps web"] != 1 {
		t.Errorf("writes: %v, want one to scale down and one to remove the finalizer", writes)
	}
	w.childless()
}
