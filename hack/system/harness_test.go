package system_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/hack/install"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

const (
	root          = "../.."
	systemName    = install.Namespace
	user          = "system:serviceaccount:" + systemName + ":steadwatch"
	leaseRoleName = "steadwatch-leases"

	// patience bounds every wait that has no bound of its own to show. Machines
	// that run all packages' tests at once are slow.
	patience = 90 * time.Second
)

// long runs the long form of the tests that have one.
var long = os.Getenv("STEADWATCH_LONG") == "1"

var plane = controlplane.Shared{Config: controlplane.Config{Full: true, Audit: true}}

func TestMain(m *testing.M) {
	code := plane.Main(m)
	if installed.dir != "" {
		_ = os.RemoveAll(installed.dir)
	}
	os.Exit(code)
}

// installed is what all tests share: the manifests in the control plane, and the
// binary.
var installed struct {
	once   sync.Once
	dir    string
	binary string
	err    error
}

func installAll(ctx context.Context, cp *controlplane.ControlPlane) {
	if installed.err = install.Manifests(ctx, cp, root); installed.err != nil {
		return
	}
	if installed.dir, installed.err = os.MkdirTemp("", "steadwatch-system-test-"); installed.err != nil {
		return
	}
	installed.binary, installed.err = install.Binary(ctx, root, installed.dir)
}

// world is an installation that works in one namespace, and an administrator's view
// of it.
type world struct {
	*testing.T
	plane     *controlplane.ControlPlane
	namespace string // of the WebApps
	leases    string // of the Lease
	kube      kubernetes.Interface
	platform  versioned.Interface
	began     time.Time
}

// newWorld installs the manifests, once for all tests, and makes the test's
// namespaces.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, "")
}

// newWorldIn gives the namespace of the WebApps a name.
func newWorldIn(t *testing.T, namespace string) *world {
	t.Helper()
	cp := plane.ForTest(t)
	// Not the test's context: others use it after this test.
	installed.once.Do(func() { installAll(context.Background(), cp) })
	if installed.err != nil {
		t.Fatal(installed.err)
	}
	w := &world{T: t, plane: cp, namespace: namespace, leases: cp.Namespace(t), began: time.Now(),
		kube: kubernetes.NewForConfigOrDie(cp.Config()), platform: versioned.NewForConfigOrDie(cp.Config())}
	if namespace == "" {
		w.namespace = cp.Namespace(t)
	} else if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.allowLeases()
	t.Cleanup(w.checkRequests)
	return w
}

// allowLeases gives the manifests' Role, which is for steadwatch-system, in the
// test's namespace for leases.
func (w *world) allowLeases() {
	w.Helper()
	role, err := w.kube.RbacV1().Roles(systemName).Get(w.Context(), leaseRoleName, metav1.GetOptions{})
	if err == nil {
		_, err = w.kube.RbacV1().Roles(w.leases).Create(w.Context(),
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: leaseRoleName}, Rules: role.Rules}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	binding, err := w.kube.RbacV1().RoleBindings(systemName).Get(w.Context(), leaseRoleName, metav1.GetOptions{})
	if err == nil {
		_, err = w.kube.RbacV1().RoleBindings(w.leases).Create(w.Context(),
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: leaseRoleName}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// checkRequests holds for every test, whatever it does: garbage collection deletes,
// not we, and the RBAC rules suffice.
func (w *world) checkRequests() {
	events, err := w.plane.Audit(context.Background(), func(e controlplane.AuditEvent) bool {
		return w.ours(e) && (e.Verb == "delete" || e.Verb == "deletecollection" || e.Code == 403)
	})
	if err != nil {
		w.Error(err)
	}
	for _, e := range events {
		// Nothing can be created in a namespace that is being deleted.
		if e.Code == 403 && e.Verb == "create" || e.Code == 403 && e.Verb == "patch" {
			if ns, err := w.kube.CoreV1().Namespaces().Get(context.Background(), w.namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil {
				continue
			}
		}
		w.Errorf("the controller's request %s %s was answered with %d", e.Verb, e.RequestURI, e.Code)
	}
}

func (w *world) proxy() *faultproxy.Proxy {
	w.Helper()
	p, err := faultproxy.Start(faultproxy.Config{Upstream: w.plane.Config()})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(p.Close)
	return p
}

// eventually polls f, which returns what it sees, for a message.
func (w *world) eventually(within time.Duration, what string, f func() (bool, string)) {
	w.Helper()
	controlplane.Eventually(w, within, what, f)
}

// pass lets time pass in which something must not happen.
func (w *world) pass(span time.Duration) {
	w.Helper()
	select {
	case <-time.After(span):
	case <-w.Context().Done():
		w.Fatal(context.Cause(w.Context()))
	}
}
