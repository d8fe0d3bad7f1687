package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/hack/install"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

// lab is what all scenarios of a run share.
type lab struct {
	settings
	root, binary string
	flags        []string // settings, as flags of the controller
	dir          string   // temporary
	out          io.Writer
	build        bool // compiles what a control plane needs

	once   sync.Once
	shared *plane
	err    error

	control *trial // see startControl

	// Scenarios under way, control planes of one scenario's own, and processes on
	// their way up: what a small machine has little room for.
	running, alone, starting chan struct{}
}

func newLab(ctx context.Context, root string, short, build bool, out io.Writer) (_ *lab, err error) {
	// With the intervals of production most of them only wait.
	running, alone := 64, 1
	if short {
		running, alone = 8, 2
	}
	l := &lab{root: root, out: out, build: build, running: make(chan struct{}, running), alone: make(chan struct{}, alone), starting: make(chan struct{}, 2)}
	if l.settings, err = newSettings(root, short); err != nil {
		return nil, err
	}
	if l.dir, err = os.MkdirTemp("", "steadwatch-faults-"); err != nil {
		return nil, err
	}
	if l.binary, err = install.Binary(ctx, root, l.dir); err != nil {
		return nil, err
	}
	l.flags, err = l.settings.flags(ctx, l.binary)
	return l, err
}

func (l *lab) close() {
	if l.shared != nil {
		l.shared.Stop()
	}
	_ = os.RemoveAll(l.dir)
}

func (l *lab) say(format string, args ...any) { fmt.Fprintf(l.out, "faults: "+format+"\n", args...) }

// plane is a control plane with the manifests installed, and an administrator's
// clients, which pass no proxy.
type plane struct {
	*controlplane.ControlPlane
	kube     kubernetes.Interface
	platform versioned.Interface
}

// sharedPlane is the one for all scenarios that leave it in peace.
func (l *lab) sharedPlane() (*plane, error) {
	// Not a scenario's context: others use it after that one.
	l.once.Do(func() { l.shared, l.err = l.newPlane(context.Background()) })
	return l.shared, l.err
}

func (l *lab) newPlane(ctx context.Context) (*plane, error) {
	cp, err := controlplane.Start(ctx, controlplane.Config{Build: l.build, Out: io.Discard})
	if err != nil {
		return nil, err
	}
	// A kind that is not served is an alarm, and no fault is to be the cause of one.
	if err := errors.Join(install.Manifests(ctx, cp, l.root), gateway.Install(ctx, cp)); err != nil {
		cp.Stop()
		return nil, err
	}
	p := &plane{ControlPlane: cp}
	p.connect(cp.Config())
	return p, nil
}

// connect points the administrator's clients elsewhere. Not while they are in use.
func (p *plane) connect(cfg *rest.Config) {
	p.kube, p.platform = kubernetes.NewForConfigOrDie(cfg), versioned.NewForConfigOrDie(cfg)
}

// namespace makes an empty one.
func (p *plane) namespace(ctx context.Context, prefix string) (string, error) {
	ns, err := p.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return ns.Name, nil
}

const leaseRole = "steadwatch-leases"

// allowLeases gives the manifests' Role for Leases in another namespace. change may
// take something away from it first.
func (p *plane) allowLeases(ctx context.Context, namespace string, change func(*rbacv1.Role)) error {
	roles := p.kube.RbacV1().Roles(namespace)
	role, err := p.kube.RbacV1().Roles(install.Namespace).Get(ctx, leaseRole, metav1.GetOptions{})
	if err != nil {
		return err
	}
	role.ObjectMeta = metav1.ObjectMeta{Name: role.Name}
	if change != nil {
		change(role)
	}
	if existing, err := roles.Get(ctx, leaseRole, metav1.GetOptions{}); err == nil {
		existing.Rules = role.Rules
		_, err = roles.Update(ctx, existing, metav1.UpdateOptions{})
		return err
	}
	if _, err := roles.Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding, err := p.kube.RbacV1().RoleBindings(install.Namespace).Get(ctx, leaseRole, metav1.GetOptions{})
	if err != nil {
		return err
	}
	binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name}
	_, err = p.kube.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{})
	return err
}

var serial atomic.Int64

// kubeconfig writes the ServiceAccount's credentials, by way of the proxy.
func (i *installation) kubeconfig(ctx context.Context) (string, error) {
	cfg, err := i.plane.ServiceAccountConfig(ctx, install.Namespace, "steadwatch")
	if err != nil {
		return "", err
	}
	path := filepath.Join(i.lab.dir, fmt.Sprintf("kubeconfig-%d", serial.Add(1)))
	return path, i.plane.WriteKubeconfig(path, i.proxy.ClientConfig(cfg))
}
