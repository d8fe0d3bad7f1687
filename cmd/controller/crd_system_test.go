package main_test

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

const webAppsResource = "webapps.platform.tejo.dev"

// The CRDs are installed late, deleted and installed again (R83). The process stays
// up, says so once and is right again within a minute.
func TestSystemCRDs(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	w := newWorldOn(t, cp)
	w.install("steadwatch")
	r := w.start("steadwatch", replicaOptions{args: []string{"--namespaces="}})
	r.informerIs(webAppsResource, "unlistable")
	for _, other := range []string{"deployments.apps", "services", "configmaps"} {
		r.informerIs(other, "hearing")
	}
	r.awaitReady()
	w.quiet(r, 5*time.Second)
	r.healthy("/healthz")
	r.healthy("/readyz")
	if n := r.lines("Cannot list or watch", webAppsResource, "not found", "install the CRD"); n != 1 {
		t.Errorf("the missing CRD is named %d times, want once:\n%s", n, r.Log())
	}

	applyCRDs(t, cp)
	installed := time.Now()
	w.create(w.namespace, "first")
	w.converges(time.Minute, w.namespace, "first")
	t.Logf("converged %s after the CRDs", time.Since(installed))
	r.informerIs(webAppsResource, "hearing")
	r.alive()

	// Deleted while running. Its objects go first, which takes the controller: it
	// holds them by a finalizer.
	resource := dynamic.NewForConfigOrDie(cp.Config()).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := resource.Delete(t.Context(), webAppsResource, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(patience, "the CRD to be gone", func() (bool, string) {
		_, err := resource.Get(w.Context(), webAppsResource, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	r.informerIs(webAppsResource, "unlistable")
	w.quiet(r, 10*time.Second)
	r.healthy("/healthz")
	r.healthy("/readyz")
	if n := r.lines("Cannot list or watch", webAppsResource); n > 2 {
		t.Errorf("the CRD is named %d times, want once each time it was missing:\n%s", n, r.Log())
	}

	applyCRDs(t, cp)
	installed = time.Now()
	w.create(w.namespace, "second")
	w.converges(time.Minute, w.namespace, "second")
	t.Logf("converged %s after the CRDs came back", time.Since(installed))
	r.alive()
	w.fenced()
}

// quiet counts the requests for WebApps over a span in which there is no such kind.
func (w *world) quiet(r *replica, span time.Duration) {
	w.Helper()
	began := time.Now()
	w.during(span, r.alive)
	asked := w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool {
		return e.Resource == "webapps" && e.RequestReceived.After(began)
	})
	// Each try is a watch-list and, when that is refused, a list; tries are at least
	// 0.8 s apart and back off.
	if most := 2 * (3 + int(span/(3*time.Second))); len(asked) > most {
		w.Errorf("%d requests for WebApps in %s without such a kind, want at most %d", len(asked), span, most)
	}
}
