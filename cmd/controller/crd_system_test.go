package main_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	networkingv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
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

// Of our two CRDs one is missing, as after an upgrade of the Deployment alone: the other
// kind is reconciled as if nothing were, and the process is healthy and ready.
func TestSystemOneCRDMissing(t *testing.T) {
	t.Parallel()
	const file, routesResource = "../../manifests/crd/", "applicationroutes.networking.tejo.dev"
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	if err := cp.ApplyFile(t.Context(), file+"platform.tejo.dev_webapps.yaml"); err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, cp)
	w.install("steadwatch")
	r := w.start("steadwatch", replicaOptions{})
	r.informerIs(routesResource, "unlistable")
	r.awaitReady()
	w.create(w.namespace, "first")
	w.converges(patience, w.namespace, "first")
	r.healthy("/healthz")
	r.healthy("/readyz")
	if n := r.lines("Cannot list or watch", routesResource, "not found", "install the CRD"); n != 1 {
		t.Errorf("the missing CRD is named %d times, want once:\n%s", n, r.Log())
	}
	// It is its lead that ends, which waits for its local copies, not the process.
	r.signal(syscall.SIGTERM)
	if code := r.exits(patience); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Log())
	}

	// The other way round.
	resource := dynamic.NewForConfigOrDie(cp.Config()).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := w.platform.PlatformV1alpha1().WebApps(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(patience, "the WebApp to go", func() (bool, string) {
		// Nobody is there who would remove its finalizer.
		_, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Patch(w.Context(), "first", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	if err := resource.Delete(t.Context(), webAppsResource, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cp.ApplyFile(t.Context(), file+"networking.tejo.dev_applicationroutes.yaml"); err != nil {
		t.Fatal(err)
	}
	r = w.start("steadwatch", replicaOptions{})
	r.informerIs(webAppsResource, "unlistable")
	r.awaitReady()
	routes := routeWorldOf(w)
	routes.plainRoute(w.namespace, "shop", w.namespace, "shop.example.com")
	routes.says(w.namespace, "shop", networkingv1alpha1.ConditionReady, "False GatewayAPIMissing", "install the Gateway API CRDs")
	r.healthy("/healthz")
	r.healthy("/readyz")
	r.alive()
}
