package webapp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2/ktesting"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/webapp"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// patience is for machines that run all packages' tests at once.
const patience = time.Minute

// world is a namespace, seen by an administrator who is not the controller.
type world struct {
	*testing.T
	plane     *controlplane.ControlPlane
	namespace string
	kube      kubernetes.Interface
	platform  versioned.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cp := plane.ForTest(t)
	if err := cp.ApplyFile(t.Context(), "../../../manifests/crd/platform.tejo.dev_webapps.yaml"); err != nil {
		t.Fatal(err)
	}
	return &world{T: t, plane: cp, namespace: cp.Namespace(t),
		kube: kubernetes.NewForConfigOrDie(cp.Config()), platform: versioned.NewForConfigOrDie(cp.Config())}
}

type options struct {
	// lag and webAppLag delay everything that watches of Deployments and of
	// WebApps bring.
	lag, webAppLag time.Duration
	// overdueAfter is given to informer.NewWrites.
	overdueAfter time.Duration
	// loseFirst loses the first response to a write of this resource.
	loseFirst string
	// beforeRun is called when the caches have synced and no key has been taken.
	beforeRun func()
}

// process is one run of the controller with everything it needs.
type process struct {
	requests *requests
	events   *record.FakeRecorder
	control  *controller.Controller
	webApp   *webapp.Controller
	stop     func()
	// deployments is the local copy.
	deployments cache.Indexer

	mu     sync.Mutex
	passes map[controller.Class]int
}

// start runs a controller until the test ends or stop is called.
func (w *world) start(o options) *process {
	w.Helper()
	p := &process{requests: &requests{lag: map[string]time.Duration{"deployments": o.lag, "webapps": o.webAppLag}, lose: o.loseFirst}, events: record.NewFakeRecorder(100), passes: map[controller.Class]int{}}
	cfg := w.plane.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return p.requests.around(rt) })
	kube, platform := kubernetes.NewForConfigOrDie(cfg), versioned.NewForConfigOrDie(cfg)

	namespaces := []string{w.namespace}
	webApps := mustInformer(w, informer.Config[*v1alpha1.WebApp]{
		Resource:      v1alpha1.SchemeGroupVersion.WithResource("webapps"),
		ListerWatcher: informer.ListWatch(platform, platform.PlatformV1alpha1().WebApps),
		Namespaces:    namespaces, Indexers: webapp.Indexers(),
	})
	deployments := mustInformer(w, informer.Config[*appsv1.Deployment]{
		Resource:      appsv1.SchemeGroupVersion.WithResource("deployments"),
		ListerWatcher: informer.ListWatch(kube, kube.AppsV1().Deployments), Namespaces: namespaces,
	})
	services := mustInformer(w, informer.Config[*corev1.Service]{
		Resource:      corev1.SchemeGroupVersion.WithResource("services"),
		ListerWatcher: informer.ListWatch(kube, kube.CoreV1().Services), Namespaces: namespaces,
	})
	configMaps := mustInformer(w, informer.Config[*corev1.ConfigMap]{
		Resource:      corev1.SchemeGroupVersion.WithResource("configmaps"),
		ListerWatcher: informer.ListWatch(kube, kube.CoreV1().ConfigMaps), Namespaces: namespaces,
		Transform: webapp.TransformConfigMap,
	})
	p.deployments = deployments.Indexer()
	writes := informer.NewWrites(o.overdueAfter, webApps, deployments, services)
	var err error
	p.webApp, err = webapp.New(webapp.Config{
		Kube: kube, Platform: platform, Metadata: metadata.NewForConfigOrDie(cfg),
		WebApps: webApps, Deployments: deployments, Services: services, ConfigMaps: configMaps,
		Writes: writes, Recorder: p.events,
	})
	if err != nil {
		w.Fatal(err)
	}
	p.control, err = controller.New(controller.Config{
		Name: "webapp", Reconciler: p.webApp, Keys: p.webApp.Keys,
		Gate: func(key cache.ObjectName) controller.Verdict {
			if detail, _, pending := writes.Pending(key); pending {
				return controller.Verdict{State: controller.Stale, Reason: detail}
			}
			return controller.Verdict{}
		},
		Observe: func(c controller.Class, _, _ time.Duration) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.passes[c]++
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	synced, err := p.webApp.Register(p.control)
	if err != nil {
		w.Fatal(err)
	}

	_, ctx := ktesting.NewTestContext(w.T)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{webApps.Run, deployments.Run, services.Run, configMaps.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.Cleanup(p.stop)
	syncCtx, done := context.WithTimeout(ctx, patience+o.lag+o.webAppLag)
	defer done()
	if !cache.WaitFor(syncCtx, "the test's caches", synced...) {
		w.Fatal("caches have not synced")
	}
	p.requests.forget()
	if o.beforeRun != nil {
		o.beforeRun()
	}
	running.Go(func() {
		if err := p.control.Run(ctx); err != nil {
			w.Errorf("controller: %v", err)
		}
	})
	return p
}

func mustInformer[T cache.Object](w *world, c informer.Config[T]) *informer.Informer[T] {
	w.Helper()
	i, err := informer.New(c)
	if err != nil {
		w.Fatal(err)
	}
	return i
}

// idle waits until the controller has nothing to do, for a while.
func (p *process) idle(t *testing.T) {
	t.Helper()
	var since time.Time
	last := -1
	eventually(t, "the controller to come to rest", func() (bool, string) {
		s := p.control.Snapshot()
		busy := s.Processing + s.Ready.Urgent + s.Ready.Normal + s.Ready.Background
		p.mu.Lock()
		passes := 0
		for _, n := range p.passes {
			passes += n
		}
		p.mu.Unlock()
		if busy > 0 || passes != last || passes == 0 {
			since, last = time.Now(), passes
		}
		return time.Since(since) > 500*time.Millisecond, fmt.Sprintf("%d keys, %d passes, %d failing", busy, passes, s.Failing)
	})
}

func (p *process) passesOf(c controller.Class) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passes[c]
}

// reasons drains the Events' types and reasons recorded so far.
func (p *process) reasons() []string {
	var all []string
	for {
		select {
		case e := <-p.events.Events:
			all = append(all, strings.Join(strings.SplitN(e, " ", 3)[:2], " "))
		default:
			return all
		}
	}
}

// requests counts what the controller asks of the API server.
type requests struct {
	lose string
	lag  map[string]time.Duration // of watches, by resource

	mu     sync.Mutex
	lost   bool
	writes []string
	reads  []string
}

func (r *requests) around(inner http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		query := req.URL.Query()
		what := path.Base(path.Dir(req.URL.Path)) + "/" + path.Base(req.URL.Path)
		switch {
		case req.Method != http.MethodGet:
			what = req.Method + " " + what
			r.mu.Lock()
			r.writes = append(r.writes, what)
			r.mu.Unlock()
		case query.Get("watch") == "":
			r.mu.Lock()
			r.reads = append(r.reads, what)
			r.mu.Unlock()
		}
		resp, err := inner.RoundTrip(req)
		if err == nil && req.Method != http.MethodGet && path.Base(path.Dir(req.URL.Path)) == r.lose && r.loseOne() {
			_ = resp.Body.Close()
			return nil, errors.New("connection reset by peer")
		}
		if lag := r.lag[path.Base(req.URL.Path)]; err == nil && lag > 0 && query.Get("watch") != "" {
			resp.Body = &lateBody{ReadCloser: resp.Body, lag: lag, done: req.Context().Done()}
		}
		return resp, err
	})
}

func (r *requests) loseOne() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.lost
	r.lost = true
	return first
}

// written returns the writes since the last forget.
func (r *requests) written() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

func (r *requests) read() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reads)
}

func (r *requests) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes, r.reads = nil, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// lateBody hands on what it reads after a while.
type lateBody struct {
	io.ReadCloser
	lag  time.Duration
	done <-chan struct{}
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	timer := time.NewTimer(b.lag)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.done:
	}
	return n, err
}

// eventually polls f, which returns what it sees, for a message.
func eventually(t *testing.T, what string, f func() (bool, string)) {
	t.Helper()
	controlplane.Eventually(t, patience, what, f)
}

func (w *world) create(app *v1alpha1.WebApp) *v1alpha1.WebApp {
	w.Helper()
	app.Namespace = w.namespace
	created, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Create(w.Context(), app, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

func (w *world) app(name string) *v1alpha1.WebApp {
	w.Helper()
	app, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return app
}

// change updates an object's spec until it is not overtaken.
func (w *world) change(name string, f func(*v1alpha1.WebApp)) {
	w.Helper()
	eventually(w.T, "an update to be accepted", func() (bool, string) {
		app := w.app(name)
		f(app)
		_, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Update(w.Context(), app, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// condition waits until a condition of the current generation is as wanted, in the
// form "True Reason".
func (w *world) condition(name, conditionType, want string) {
	w.Helper()
	eventually(w.T, fmt.Sprintf("%s of %s to be %s", conditionType, name, want), func() (bool, string) {
		app := w.app(name)
		c := meta.FindStatusCondition(app.Status.Conditions, conditionType)
		if c == nil {
			return false, "no such condition"
		}
		got := string(c.Status) + " " + c.Reason
		return got == want && c.ObservedGeneration == app.Generation && app.Status.ObservedGeneration == app.Generation,
			fmt.Sprintf("%s (%s) of generation %d, now %d", got, c.Message, c.ObservedGeneration, app.Generation)
	})
}

// deployment waits for one that f likes.
func (w *world) deployment(name, what string, f func(*appsv1.Deployment) bool) *appsv1.Deployment {
	w.Helper()
	var last *appsv1.Deployment
	eventually(w.T, "Deployment "+name+": "+what, func() (bool, string) {
		d, err := w.kube.AppsV1().Deployments(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		last = d
		return f(d), fmt.Sprintf("replicas %v, template %+v", d.Spec.Replicas, d.Spec.Template.Annotations)
	})
	return last
}

// rollOut does what the Deployment controller and the kubelets would.
func (w *world) rollOut(name string) {
	w.Helper()
	eventually(w.T, "the rollout", func() (bool, string) {
		deployments := w.kube.AppsV1().Deployments(w.namespace)
		d, err := deployments.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		_, err = deployments.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}
