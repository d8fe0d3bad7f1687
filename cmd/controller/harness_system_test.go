package main_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/hack/install"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

// These tests run the command as processes of their own, under the manifests'
// RBAC, against a real API server. What they assert is in the API server's audit
// log, in the history of the Lease and in objects.

var plane = controlplane.Shared{Config: controlplane.Config{Audit: true}}

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for leases to lapse and for backoffs, on however few cores.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.(flag.Getter).Get().(int) < 4 {
		_ = parallel.Value.Set("4")
	}
	code := plane.Main(m)
	if binaries.dir != "" {
		_ = os.RemoveAll(binaries.dir)
	}
	os.Exit(code)
}

// long runs the long form of the tests that have one.
var long = os.Getenv("STEADWATCH_LONG") == "1"

// patience bounds every wait that has no bound of its own to show. Machines that
// run all packages' tests at once are slow.
const patience = time.Minute

// Shortened, so that a lease lapses within a test. slack is what a slow machine
// may add to a takeover.
const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 500 * time.Millisecond
	// A standby looks at the Lease every retryPeriod to 2.2 times that. It counts
	// from its last look, and has to look once more.
	takeover = leaseDuration + retryPeriod*44/10
	slack    = 10 * time.Second
)

var electionFlags = slices.Clip([]string{
	"--leader-elect-lease-duration=" + leaseDuration.String(),
	"--leader-elect-renew-deadline=" + renewDeadline.String(),
	"--leader-elect-retry-period=" + retryPeriod.String(),
})

// world is one installation: a namespace for the Lease and the service accounts, one
// for WebApps, and an administrator's clients.
type world struct {
	*testing.T
	plane             *controlplane.ControlPlane
	system, namespace string
	kube              kubernetes.Interface
	platform          versioned.Interface
	lease             *leaseHistory
	users             []string // service accounts of the replicas, as in the audit log
	started           int      // replicas so far
}

// crds are applied to the shared control plane once.
var crds sync.Once

// newWorld installs the manifests for the given replicas into the shared control
// plane. Each replica has a service account of its own under the same rules, so
// that the audit log tells them apart.
func newWorld(t *testing.T, replicas ...string) *world {
	t.Helper()
	cp := plane.ForTest(t)
	crds.Do(func() { applyCRDs(t, cp) })
	w := newWorldOn(t, cp)
	w.install(replicas...)
	return w
}

func newWorldOn(t *testing.T, cp *controlplane.ControlPlane) *world {
	t.Helper()
	w := &world{T: t, plane: cp, system: cp.Namespace(t), namespace: cp.Namespace(t),
		kube: kubernetes.NewForConfigOrDie(cp.Config()), platform: versioned.NewForConfigOrDie(cp.Config())}
	w.lease = watchLease(w)
	return w
}

func applyCRDs(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	if err := cp.ApplyFile(t.Context(), "../../manifests/crd"); err != nil {
		t.Fatal(err)
	}
}

// replica is one process of the command.
type replica struct {
	*controlplane.Program
	w                      *world
	name, user             string
	health, metrics, debug string // addresses
}

// replicaOptions say how a replica differs from the one in the manifests. It works
// in its world's namespace only, unless args say otherwise: tests run at the same
// time.
type replicaOptions struct {
	args   []string
	proxy  *faultproxy.Proxy // nil: straight to the API server
	binary string            // "": binary(t)
	// brief shortens the lease, for tests in which it lapses. In others a slow
	// machine must not lose it.
	brief bool
}

// start starts a replica under the service account of its name and waits until it
// serves.
func (w *world) start(name string, o replicaOptions) *replica {
	w.Helper()
	cfg, err := w.plane.ServiceAccountConfig(w.Context(), w.system, name)
	if apierrors.IsNotFound(err) {
		w.Fatalf("%v: name the replica in newWorld", err)
	}
	if err != nil {
		w.Fatal(err)
	}
	return w.startWith(name, cfg, o)
}

func (w *world) startWith(name string, cfg *rest.Config, o replicaOptions) *replica {
	w.Helper()
	if o.proxy != nil {
		cfg = o.proxy.ClientConfig(cfg)
	}
	kubeconfig := filepath.Join(w.TempDir(), "kubeconfig")
	if err := w.plane.WriteKubeconfig(kubeconfig, cfg); err != nil {
		w.Fatal(err)
	}
	if o.binary == "" {
		o.binary = binary(w.T)
	}
	if o.brief {
		o.args = append(electionFlags, o.args...)
	}
	args := append([]string{
		"--kubeconfig=" + kubeconfig,
		"--leader-election-namespace=" + w.system,
		"--namespaces=" + w.namespace,
		"--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=127.0.0.1:0",
		"--debug-bind-address=127.0.0.1:0",
	}, o.args...)
	w.started++
	program, err := w.plane.StartProgram(fmt.Sprintf("%s-%s-%d", w.system, name, w.started), o.binary, args...)
	if err != nil {
		w.Fatal(err)
	}
	r := &replica{Program: program, w: w, name: name, user: w.user(name)}
	w.Cleanup(func() {
		r.Stop(0)
		if w.Failed() {
			w.Logf("log of %s:\n%s", name, end(r.Log(), 6000))
		}
	})
	w.eventually(patience, name+" to serve", func() (bool, string) {
		select {
		case <-r.Done():
			w.Fatalf("%s ended with %d:\n%s", name, r.ExitCode(), r.Log())
		default:
		}
		at := install.Serving(r.Log())
		r.health, r.metrics, r.debug = at.Health, at.Metrics, at.Debug
		return r.health != "" && r.metrics != "" && r.debug != "", r.Log()
	})
	return r
}

func end(s string, n int) string { return s[max(0, len(s)-n):] }

// user is the name of a service account in the audit log.
func (w *world) user(name string) string { return "system:serviceaccount:" + w.system + ":" + name }

func (r *replica) signal(s syscall.Signal) {
	r.w.Helper()
	if err := syscall.Kill(r.PID(), s); err != nil {
		r.w.Fatalf("send %s to %s: %v", s, r.name, err)
	}
}

// alive fails the test if the process has ended: it must not have been restarted,
// by itself or by anybody.
func (r *replica) alive() {
	r.w.Helper()
	select {
	case <-r.Done():
		r.w.Fatalf("%s has ended with %d:\n%s", r.name, r.ExitCode(), end(r.Log(), 3000))
	default:
	}
}

// exits waits for the end of the process and returns its exit code.
func (r *replica) exits(within time.Duration) int {
	r.w.Helper()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-r.Done():
	case <-late.C:
		r.w.Fatalf("%s has not ended within %s:\n%s", r.name, within, end(r.Log(), 3000))
	}
	return r.ExitCode()
}

var client = &http.Client{Timeout: 5 * time.Second}

// get returns the status and the body of a page, or 0 and an error's text.
func get(address, path string) (int, string) {
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// metric is the value of a series written as in the scrape; ok is false if there is
// none.
func (r *replica) metric(series string) (value float64, ok bool) {
	_, body := get(r.metrics, "/metrics")
	for line := range strings.Lines(body) {
		if rest, found := strings.CutPrefix(line, series+" "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

func (r *replica) leads() bool {
	v, _ := r.metric(`leader_election_master_status{name="steadwatch"}`)
	return v == 1
}

func (r *replica) awaitReady() {
	r.w.Helper()
	r.w.eventually(patience, r.name+" to be ready", func() (bool, string) {
		code, body := get(r.health, "/readyz?verbose")
		return code == http.StatusOK, body
	})
}

func (r *replica) awaitLead() {
	r.w.Helper()
	r.w.eventually(patience, r.name+" to lead", func() (bool, string) {
		return r.leads(), fmt.Sprintf("holder %q", r.w.lease.last().holder)
	})
}

// healthy fails the test unless the page says 200.
func (r *replica) healthy(path string) {
	r.w.Helper()
	if code, body := get(r.health, path+"?verbose"); code != http.StatusOK {
		r.w.Errorf("%s of %s: %d %s", path, r.name, code, body)
	}
}

// eventually polls f, which returns what it sees, for a message.
func (w *world) eventually(within time.Duration, what string, f func() (bool, string)) {
	w.Helper()
	controlplane.Eventually(w, within, what, f)
}

// during calls f now and then for a while in which something must not happen.
func (w *world) during(span time.Duration, f func()) {
	w.Helper()
	over := time.NewTimer(span)
	defer over.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		f()
		select {
		case <-over.C:
			return
		case <-tick.C:
		}
	}
}

func (w *world) create(namespace, name string) {
	w.Helper()
	w.createReferring(namespace, name, "")
}

// createReferring creates a WebApp that refers to a ConfigMap.
func (w *world) createReferring(namespace, name, configRef string) {
	w.Helper()
	app := &v1alpha1.WebApp{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WebAppSpec{
		Image: "registry.example/app:1", DrainTimeout: &metav1.Duration{}, ConfigRef: configRef,
	}}
	if _, err := w.platform.PlatformV1alpha1().WebApps(namespace).Create(w.Context(), app, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// converges waits until a WebApp has both children and a status of its generation.
func (w *world) converges(within time.Duration, namespace string, names ...string) {
	w.Helper()
	for _, name := range names {
		w.eventually(within, "WebApp "+namespace+"/"+name+" to converge", func() (bool, string) { return w.converged(namespace, name) })
	}
}

func (w *world) converged(namespace, name string) (bool, string) {
	app, err := w.platform.PlatformV1alpha1().WebApps(namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return false, err.Error()
	}
	d, err := w.kube.AppsV1().Deployments(namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return false, err.Error()
	}
	if _, err := w.kube.CoreV1().Services(namespace).Get(w.Context(), name, metav1.GetOptions{}); err != nil {
		return false, err.Error()
	}
	image := d.Spec.Template.Spec.Containers[0].Image
	return app.Status.ObservedGeneration == app.Generation && image == app.Spec.Image,
		fmt.Sprintf("generation %d, observed %d, image %s, Deployment's %s", app.Generation, app.Status.ObservedGeneration, app.Spec.Image, image)
}
