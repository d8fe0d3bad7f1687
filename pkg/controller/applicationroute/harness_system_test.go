package applicationroute_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2/ktesting"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayversioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/applicationroute"
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
	routes    versioned.Interface
	gateway   gatewayversioned.Interface
}

// newWorld has a namespace of its own and the Gateway API's CRDs.
func newWorld(t *testing.T) *world {
	t.Helper()
	cp := plane.ForTest(t)
	if err := cp.ApplyFile(t.Context(), "../../../manifests/crd/networking.tejo.dev_applicationroutes.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Install(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	return &world{T: t, plane: cp, namespace: cp.Namespace(t), kube: kubernetes.NewForConfigOrDie(cp.Config()),
		routes: versioned.NewForConfigOrDie(cp.Config()), gateway: gatewayversioned.NewForConfigOrDie(cp.Config())}
}

type options struct {
	// lag delays everything that watches of a resource bring.
	lag map[string]time.Duration
	// overdueAfter is given to informer.NewWrites.
	overdueAfter   time.Duration
	defaultGateway cache.ObjectName
	// secrets: Secrets are watched.
	secrets bool
	// beforeRun is called when the caches have synced and no key has been taken.
	beforeRun func()
}

// process is one run of the controller with everything it needs.
type process struct {
	requests *requests
	events   *record.FakeRecorder
	control  *controller.Controller
	stop     func()
	// httpRoutes is the local copy.
	httpRoutes cache.Indexer

	mu     sync.Mutex
	passes map[controller.Class]int
}

// start runs a controller until the test ends or stop is called.
func (w *world) start(o options) *process {
	w.Helper()
	p := &process{requests: &requests{lag: o.lag}, events: record.NewFakeRecorder(1000), passes: map[controller.Class]int{}}
	cfg := w.plane.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return p.requests.around(rt) })
	kube, routesClient, gatewayClient := kubernetes.NewForConfigOrDie(cfg), versioned.NewForConfigOrDie(cfg), gatewayversioned.NewForConfigOrDie(cfg)
	metadataClient := metadata.NewForConfigOrDie(cfg)

	namespaces := []string{w.namespace}
	routes := mustInformer(w, informer.Config[*v1alpha1.ApplicationRoute]{
		Resource:      v1alpha1.SchemeGroupVersion.WithResource("applicationroutes"),
		ListerWatcher: informer.Tolerant(routesClient.NetworkingV1alpha1().RESTClient()),
		Namespaces:    namespaces, Indexers: applicationroute.Indexers(o.defaultGateway),
	})
	services := mustInformer(w, informer.Config[*corev1.Service]{
		Resource:      corev1.SchemeGroupVersion.WithResource("services"),
		ListerWatcher: informer.ListWatch(kube, kube.CoreV1().Services), Namespaces: namespaces,
	})
	gatewayAPI := informer.Tolerant(gatewayClient.GatewayV1().RESTClient())
	httpRoutes := mustInformer(w, informer.Config[*gatewayv1.HTTPRoute]{
		Resource:      schema.GroupVersion(gatewayv1.GroupVersion).WithResource("httproutes"),
		ListerWatcher: gatewayAPI, Namespaces: namespaces, Indexers: applicationroute.HTTPRouteIndexers(),
	})
	listenerSets := mustInformer(w, informer.Config[*gatewayv1.ListenerSet]{
		Resource:      schema.GroupVersion(gatewayv1.GroupVersion).WithResource("listenersets"),
		ListerWatcher: gatewayAPI, Namespaces: namespaces,
	})
	gateways := mustInformer(w, informer.Config[*gatewayv1.Gateway]{
		Resource:      schema.GroupVersion(gatewayv1.GroupVersion).WithResource("gateways"),
		ListerWatcher: gatewayAPI, Namespaces: namespaces,
	})
	p.httpRoutes = httpRoutes.Indexer()
	runs := []func(context.Context) error{routes.Run, services.Run, httpRoutes.Run, listenerSets.Run, gateways.Run}
	var secrets *informer.Informer[*metav1.PartialObjectMetadata]
	if o.secrets {
		resource := corev1.SchemeGroupVersion.WithResource("secrets")
		secrets = mustInformer(w, informer.Config[*metav1.PartialObjectMetadata]{
			Resource:      resource,
			ListerWatcher: informer.ListWatch(metadataClient, metadataClient.Resource(resource).Namespace),
			Namespaces:    namespaces, Transform: applicationroute.TransformSecret,
		})
		runs = append(runs, secrets.Run)
	}
	writes := informer.NewWrites(o.overdueAfter, routes, httpRoutes, listenerSets)
	reconciler, err := applicationroute.New(applicationroute.Config{
		Kube: kube, Networking: routesClient, Gateway: gatewayClient, Metadata: metadataClient,
		ApplicationRoutes: routes, Services: services, HTTPRoutes: httpRoutes, ListenerSets: listenerSets, Gateways: gateways, Secrets: secrets,
		Writes: writes, DefaultGateway: o.defaultGateway, Recorder: p.events,
	})
	if err != nil {
		w.Fatal(err)
	}
	p.control, err = controller.New(controller.Config{
		Name: "applicationroute", Reconciler: reconciler, Keys: reconciler.Keys,
		Gate: func(key cache.ObjectName) controller.Verdict {
			if _, bad := routes.Quarantined(key); bad {
				return controller.Verdict{State: controller.Frozen, Reason: "cannot be decoded"}
			}
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
	synced, err := reconciler.Register(p.control)
	if err != nil {
		w.Fatal(err)
	}
	routes.OnQuarantine(func(bad informer.Quarantined, _ bool) { p.control.Enqueue(controller.Urgent, bad.Key) })

	_, ctx := ktesting.NewTestContext(w.T)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { _ = run(ctx) })
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.Cleanup(p.stop)
	syncCtx, done := context.WithTimeout(ctx, patience+o.lag["applicationroutes"]+o.lag["services"])
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

// requests counts what the controller asks of the API server.
type requests struct {
	lag map[string]time.Duration // of watches, by resource

	mu     sync.Mutex
	writes []string
	reads  []string
}

func (r *requests) around(inner http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		query := req.URL.Query()
		what := path.Base(path.Dir(req.URL.Path)) + "/" + path.Base(req.URL.Path)
		r.mu.Lock()
		switch {
		case req.Method != http.MethodGet:
			r.writes = append(r.writes, req.Method+" "+what)
		case query.Get("watch") == "":
			r.reads = append(r.reads, what)
		}
		r.mu.Unlock()
		resp, err := inner.RoundTrip(req)
		if lag := r.lag[path.Base(req.URL.Path)]; err == nil && lag > 0 && query.Get("watch") != "" {
			resp.Body = &lateBody{ReadCloser: resp.Body, lag: lag, done: req.Context().Done()}
		}
		return resp, err
	})
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

// condition waits until a condition of the current generation is as wanted, in the
// form "True Reason".
func (w *world) condition(name, conditionType, want string) {
	w.Helper()
	eventually(w.T, fmt.Sprintf("%s of %s to be %s", conditionType, name, want), func() (bool, string) {
		route, err := w.routes.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(route.Status.Conditions, conditionType)
		if c == nil {
			return false, "no such condition"
		}
		got := string(c.Status) + " " + c.Reason
		return got == want && c.ObservedGeneration == route.Generation && route.Status.ObservedGeneration == route.Generation,
			fmt.Sprintf("%s (%s) of generation %d, now %d", got, c.Message, c.ObservedGeneration, route.Generation)
	})
}
