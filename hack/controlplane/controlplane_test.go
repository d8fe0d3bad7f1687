package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

var plane = controlplane.Shared{Config: controlplane.Config{Audit: true}}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(m.Run()) // a child starts its own
	}
	os.Exit(plane.Main(m))
}

func clientFor(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually polls f until it returns nil; at the deadline the test fails with
// what it returned last.
func eventually(t *testing.T, deadline time.Duration, what string, f func() error) {
	t.Helper()
	timeout := time.After(deadline)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-timeout:
			t.Fatalf("%s: not after %s; last state: %v", what, deadline, err)
		case <-tick.C:
		}
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestNamespaceIsGoneAfterTheTest(t *testing.T) {
	cp := plane.ForTest(t)
	client := clientFor(t, cp.Config())
	var name string
	t.Run("inner", func(t *testing.T) {
		name = cp.Namespace(t)
		held := configMap("held")
		held.Finalizers = []string{"example.com/nobody"}
		if _, err := client.CoreV1().ConfigMaps(name).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the namespace: got %v, want NotFound", err)
	}
	keys, err := cp.EtcdKeys(t.Context(), "/registry/configmaps/"+name+"/")
	if err != nil || len(keys) > 0 {
		t.Errorf("left in etcd: %v, %v", keys, err)
	}
}

func TestUsersObeyRBAC(t *testing.T) {
	cp := plane.ForTest(t)
	namespace := cp.Namespace(t)
	admin := clientFor(t, cp.Config())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	robot, err := cp.ServiceAccountConfig(t.Context(), namespace, "robot")
	if err != nil {
		t.Fatal(err)
	}
	jane, err := cp.ConfigFor("jane", "readers")
	if err != nil {
		t.Fatal(err)
	}
	list := func(cfg *rest.Config) error {
		_, err := clientFor(t, cfg).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	for user, cfg := range map[string]*rest.Config{"jane": jane, "robot": robot} {
		if err := list(cfg); !apierrors.IsForbidden(err) {
			t.Errorf("list as %s without a binding: got %v, want Forbidden", user, err)
		}
	}

	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "robot"},
		},
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// kube-controller-manager would aggregate "view"; without it the role is empty.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "read-" + namespace}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding.Name, binding.RoleRef.Name = "read", role.Name
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the binding takes effect", func() error { return errors.Join(list(jane), list(robot)) })
}

func TestAuditKnowsWhoAskedForWhat(t *testing.T) {
	cp := plane.ForTest(t)
	namespace := cp.Namespace(t)
	cfg := cp.Config()
	cfg.UserAgent = "auditor/" + namespace
	client := clientFor(t, cfg)
	if _, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("got %v, want NotFound", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	defer cancel()

	mine := func(e controlplane.AuditEvent) bool { return e.UserAgent == cfg.UserAgent }
	events, err := cp.Audit(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s %s %s/%s %d by %s", e.Stage, e.Verb, e.Resource, e.Name, e.Code, e.User))
		if e.RequestReceived.IsZero() || e.StageTimestamp.Before(e.RequestReceived) || e.Namespace != namespace || e.AuditID == "" || !strings.HasPrefix(e.RequestURI, "/api/v1/namespaces/"+namespace) {
			t.Errorf("incomplete event: %+v", e)
		}
	}
	want := []string{
		"RequestReceived get configmaps/absent 0 by steadwatch-admin",
		"ResponseComplete get configmaps/absent 404 by steadwatch-admin",
		"RequestReceived watch configmaps/ 0 by steadwatch-admin",
		"ResponseStarted watch configmaps/ 200 by steadwatch-admin",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

// TestAuditIsComplete asks for the audit log right after each answer: its last
// stage has to be in it. TestUnfinishedRequests has the cases that are too rare
// to be met here.
func TestAuditIsComplete(t *testing.T) {
	cp := plane.ForTest(t)
	namespace := cp.Namespace(t)
	cfg := cp.Config()
	cfg.UserAgent = "burst/" + namespace
	client := clientFor(t, cfg)
	for n := 1; n <= 50; n++ {
		if _, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		events, err := cp.Audit(t.Context(), func(e controlplane.AuditEvent) bool {
			return e.UserAgent == cfg.UserAgent && e.Stage == controlplane.StageResponseComplete
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != n {
			t.Fatalf("%d of %d requests in the audit log", len(events), n)
		}
	}
}

func TestRawWritesReachTheAPI(t *testing.T) {
	cp := plane.ForTest(t)
	namespace := cp.Namespace(t)
	if err := cp.Apply(t.Context(), []byte(widgets)); err != nil {
		t.Fatal(err)
	}
	widget := strings.ReplaceAll("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: NS}\nspec: {size: 3}\n", "NS", namespace)
	if err := cp.Apply(t.Context(), []byte(widget)); err != nil {
		t.Fatal(err)
	}
	key := controlplane.EtcdKey(widgetResource, namespace, "w")
	value, err := cp.EtcdGet(t.Context(), key)
	if err != nil || value == nil {
		t.Fatalf("EtcdGet(%s) = %q, %v", key, value, err)
	}
	// No API server would take this: the schema says integer.
	bad := strings.Replace(string(value), `"size":3`, `"size":"three"`, 1)
	if bad == string(value) {
		t.Fatalf("no size in %s", value)
	}
	before, err := cp.EtcdRevision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	revision, err := cp.EtcdPut(t.Context(), key, []byte(bad))
	if err != nil || revision <= before {
		t.Fatalf("EtcdPut = %d, %v; revision before: %d", revision, err, before)
	}
	path := "/apis/example.com/v1/namespaces/" + namespace + "/widgets/w"
	body, err := clientFor(t, cp.Config()).Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Raw()
	if err != nil || !strings.Contains(string(body), `"size":"three"`) {
		t.Errorf("GET = %s, %v; want the raw write", body, err)
	}
	if deleted, err := cp.EtcdDelete(t.Context(), key); err != nil || !deleted {
		t.Errorf("EtcdDelete = %v, %v", deleted, err)
	}
	if value, err := cp.EtcdGet(t.Context(), key); err != nil || value != nil {
		t.Errorf("EtcdGet after the delete = %q, %v", value, err)
	}
}
