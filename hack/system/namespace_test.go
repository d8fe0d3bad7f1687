package system_test

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// R74: nothing can be created in a namespace that is being deleted, and nobody
// tries for long; its WebApps are let go, and it comes to an end.
func TestNamespaceDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(nil)
	const n = 50
	for i := range n {
		w.create(newApp(fmt.Sprintf("web-%d", i), replicas(1), drainIn(5*time.Second)))
	}
	w.allReady(n)
	p.settles()
	since := time.Now()
	if err := w.kube.CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(2*patience, "the namespace to be gone", func() (bool, string) {
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), w.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v", ns.Status)
	})
	t.Logf("gone after %s", time.Since(since).Round(time.Second))
	p.settles()
	writes := w.writes(since)
	all, refused := 0, 0
	for _, count := range writes {
		all += count
	}
	for range w.requests(since, func(e controlplane.AuditEvent) bool { return mutating(e) && e.Code == 403 }) {
		refused++
	}
	// To scale down and to remove the finalizer, a status or two on the way, and
	// both children once for each event of one that the namespace controller was
	// quicker with.
	t.Logf("%d writes, %d refused", all, refused)
	if all > 12*n || refused > 6*n {
		t.Errorf("%d writes, %d of them refused, for %d WebApps", all, refused, n)
	}
	if events := writes["create events"]; events > 0 {
		t.Errorf("%d Events in a namespace that takes none", events)
	}
	if failing := p.metric("steadwatch_keys", `outcome="failing"`); failing > 0 {
		t.Errorf("%g keys fail although their objects are gone", failing)
	}
	if code := p.Stop(patience); code != 0 {
		t.Errorf("the controller ended with %d", code)
	}
}
