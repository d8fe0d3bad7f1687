package informer_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

const webAppCRD = "../../manifests/crd/platform.tejo.dev_webapps.yaml"

// Against a real API server: what the httptest server of the other tests only
// imitates.
func TestSystem(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	t.Run("R82 namespaces", func(t *testing.T) { systemNamespaces(t, cp) })
	t.Run("R83 CRD", func(t *testing.T) { systemCRD(t, cp) })
}

// Limited to two namespaces, with a Role in only one of them at first.
func systemNamespaces(t *testing.T, cp *controlplane.ControlPlane) {
	const user = "informer-test"
	admin, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	config, err := cp.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	first, second := cp.Namespace(t), cp.Namespace(t)
	grant := func(namespace string) {
		t.Helper()
		err := cp.Apply(t.Context(), []byte(strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: informer, namespace: NS}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: informer, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: informer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: informer-test}]
`, "NS", namespace)))
		if err != nil {
			t.Fatal(err)
		}
	}
	grant(first)

	i, err := informer.New(informer.Config[*corev1.ConfigMap]{
		Resource: configMaps, Namespaces: []string{first, second},
		ListerWatcher: informer.ListWatch(clients, clients.CoreV1().ConfigMaps),
	})
	if err != nil {
		t.Fatal(err)
	}
	writes := informer.NewWrites(0, i)
	start(t, i)
	eventually(t, patience, "one namespace synced, the other named", func() (bool, any) {
		s := i.Snapshot()
		state := map[string]informer.State{}
		for _, n := range s.Namespaces {
			state[n.Namespace] = n.State
		}
		return state[first] == informer.StateHearing && state[second] == informer.StateUnlistable && s.Reason == informer.Forbidden && s.Lists > 0, s
	})
	grant(second)
	eventually(t, patience, "healed", func() (bool, any) { return i.HasSynced(), i.Snapshot() })

	// A write is pending until the copy shows it, and then no longer.
	owner := cache.NewObjectName(second, "owner")
	made, err := admin.CoreV1().ConfigMaps(second).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Labels = map[string]string{"written": "twice"}
	if made, err = admin.CoreV1().ConfigMaps(second).Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	writes.Wrote(owner, configMaps, cache.MetaObjectToName(made), made.UID, made.ResourceVersion)
	eventually(t, patience, "written and seen", func() (bool, any) {
		detail, _, pending := writes.Pending(owner)
		return !pending, detail
	})
	object, exists, err := i.Indexer().GetByKey(second + "/made")
	if err != nil || !exists || object.(*corev1.ConfigMap).Labels["written"] != "twice" {
		t.Errorf("no longer pending, but the copy has %v, %v, %v", object, exists, err)
	}
	if err := admin.CoreV1().ConfigMaps(second).Delete(t.Context(), "made", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	writes.Deleted(owner, configMaps, cache.MetaObjectToName(made), made.UID)
	eventually(t, patience, "deleted and seen", func() (bool, any) {
		detail, _, pending := writes.Pending(owner)
		return !pending, detail
	})

	requests, err := cp.Audit(t.Context(), func(e controlplane.AuditEvent) bool { return e.User == user })
	if err != nil || len(requests) == 0 {
		t.Fatalf("audit: %d events, %v", len(requests), err)
	}
	for _, r := range requests {
		if !slices.Contains([]string{first, second}, r.Namespace) {
			t.Errorf("request outside of the namespaces: %s %s", r.Verb, r.RequestURI)
		}
	}
}

// A CRD installed late, deleted while running and installed again.
func systemCRD(t *testing.T, cp *controlplane.ControlPlane) {
	clients, err := versioned.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	webApps := clients.PlatformV1alpha1().WebApps("default")
	create := func(name string) {
		t.Helper()
		app := &platformv1alpha1.WebApp{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: platformv1alpha1.WebAppSpec{Image: "x"}}
		if _, err := webApps.Create(t.Context(), app, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	install := func() {
		t.Helper()
		if err := cp.ApplyFile(t.Context(), webAppCRD); err != nil {
			t.Fatal(err)
		}
	}

	i, err := informer.New(informer.Config[*platformv1alpha1.WebApp]{
		Resource:      platformv1alpha1.SchemeGroupVersion.WithResource("webapps"),
		ListerWatcher: informer.ListWatch(clients, clients.PlatformV1alpha1().WebApps),
	})
	if err != nil {
		t.Fatal(err)
	}
	log := start(t, i)
	missing := func() (bool, any) {
		s := i.Snapshot()
		return s.State == informer.StateUnlistable && s.Reason == informer.NotFound && s.Objects == 0, s
	}
	holds := func(name string) func() (bool, any) {
		return func() (bool, any) {
			_, exists, _ := i.Indexer().GetByKey("default/" + name)
			s := i.Snapshot()
			return exists && s.Objects == 1 && s.State == informer.StateHearing, s
		}
	}
	eventually(t, patience, "missing", missing)
	install()
	create("old")
	eventually(t, patience, "installed late", holds("old"))

	crds := admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := crds.Delete(t.Context(), "webapps.platform.tejo.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "deleted while running: objects gone, named", missing)
	install()
	create("new")
	eventually(t, patience, "installed again", holds("new"))
	if n := strings.Count(log.String(), "\n"); n > 6 {
		t.Errorf("want a few lines of log, got %d:\n%s", n, log.String())
	}
}
