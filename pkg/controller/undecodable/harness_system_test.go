package undecodable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
	"github.com/steadwatch/steadwatch/pkg/controller/webapp"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// patience is for machines that run all packages' tests at once.
const patience = time.Minute

// world is a namespace with the WebApp controller at work in it, put together as
// cmd/controller does, and an administrator who reads what nobody can decode.
type world struct {
	*testing.T
	plane     *controlplane.ControlPlane
	namespace string
	kube      kubernetes.Interface
	webApps   dynamic.ResourceInterface

	copies *informer.Informer[*v1alpha1.WebApp]
	events *record.FakeRecorder

	config *rest.Config // of the controller
}

const crdFile = "../../../manifests/crd/platform.tejo.dev_webapps.yaml"

func newWorld(t *testing.T, cp *controlplane.ControlPlane) *world {
	t.Helper()
	if err := cp.ApplyFile(t.Context(), crdFile); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, plane: cp, namespace: cp.Namespace(t), kube: kubernetes.NewForConfigOrDie(cp.Config()), events: record.NewFakeRecorder(1000)}
	w.config = cp.Config()
	cfg := cp.Config()
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	w.webApps = dynamic.NewForConfigOrDie(cfg).Resource(resource).Namespace(w.namespace)
	return w
}

// start runs the controller until the test ends or the result is called.
func (w *world) start() (stop func()) {
	w.Helper()
	cfg := w.config
	kube, platform := kubernetes.NewForConfigOrDie(cfg), versioned.NewForConfigOrDie(cfg)
	namespaces := []string{w.namespace}
	w.copies = mustInformer(w, informer.Config[*v1alpha1.WebApp]{
		Resource: resource, ListerWatcher: informer.Tolerant(platform.PlatformV1alpha1().RESTClient()), Namespaces: namespaces, Indexers: webapp.Indexers()})
	deployments := mustInformer(w, informer.Config[*appsv1.Deployment]{
		Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), ListerWatcher: informer.ListWatch(kube, kube.AppsV1().Deployments), Namespaces: namespaces})
	services := mustInformer(w, informer.Config[*corev1.Service]{
		Resource: corev1.SchemeGroupVersion.WithResource("services"), ListerWatcher: informer.ListWatch(kube, kube.CoreV1().Services), Namespaces: namespaces})
	configMaps := mustInformer(w, informer.Config[*corev1.ConfigMap]{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), ListerWatcher: informer.ListWatch(kube, kube.CoreV1().ConfigMaps), Namespaces: namespaces})
	writes := informer.NewWrites(0, w.copies, deployments, services)
	reconciler, err := webapp.New(webapp.Config{
		Kube: kube, Platform: platform, Metadata: metadata.NewForConfigOrDie(cfg),
		WebApps: w.copies, Deployments: deployments, Services: services, ConfigMaps: configMaps, Writes: writes, Recorder: w.events})
	if err != nil {
		w.Fatal(err)
	}
	reporter, err := undecodable.New(undecodable.Config{
		Resource: resource, Kind: "WebApp", Client: platform.PlatformV1alpha1().RESTClient(), FieldManager: "steadwatch-webapp",
		Quarantined: w.copies.Quarantined, Finalizer: v1alpha1.Finalizer, Finalize: reconciler.Finalize, Recorder: w.events})
	if err != nil {
		w.Fatal(err)
	}
	control, err := controller.New(controller.Config{
		Name: "webapp", Reconciler: reconciler, Frozen: reporter,
		Keys: func() []cache.ObjectName {
			keys := reconciler.Keys()
			bad, _ := w.copies.QuarantineList(0, cache.ObjectName{})
			for _, r := range bad {
				keys = append(keys, r.Key)
			}
			return keys
		},
		Gate: func(key cache.ObjectName) controller.Verdict {
			if _, bad := w.copies.Quarantined(key); bad {
				return controller.Verdict{State: controller.Frozen, Reason: "cannot be decoded"}
			}
			if detail, _, pending := writes.Pending(key); pending {
				return controller.Verdict{State: controller.Stale, Reason: detail}
			}
			return controller.Verdict{}
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.copies.OnQuarantine(func(bad informer.Quarantined, entered bool) {
		if !entered {
			reporter.Forget(bad.Key)
		}
		control.Enqueue(controller.Urgent, bad.Key)
	})
	synced, err := reconciler.Register(control)
	if err != nil {
		w.Fatal(err)
	}

	ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), klog.Logger{}))
	var running sync.WaitGroup
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.Cleanup(stop)
	for _, run := range []func(context.Context) error{w.copies.Run, deployments.Run, services.Run, configMaps.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	syncCtx, done := context.WithTimeout(ctx, patience)
	defer done()
	if !cache.WaitFor(syncCtx, "the test's caches", synced...) {
		w.Fatal("caches have not synced")
	}
	running.Go(func() {
		if err := control.Run(ctx); err != nil {
			w.Errorf("controller: %v", err)
		}
	})
	return stop
}

func mustInformer[T cache.Object](w *world, c informer.Config[T]) *informer.Informer[T] {
	w.Helper()
	i, err := informer.New(c)
	if err != nil {
		w.Fatal(err)
	}
	return i
}

// store creates a WebApp and puts fields of its spec into etcd that the API server
// would refuse.
func (w *world) store(name string, spec map[string]any) {
	w.Helper()
	w.create(name, map[string]any{})
	w.corrupt(name, spec)
}

func (w *world) create(name string, spec map[string]any) {
	w.Helper()
	if _, err := w.webApps.Create(w.Context(), newApp(name, spec), metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func newApp(name string, spec map[string]any) *unstructured.Unstructured {
	all := map[string]any{"image": "registry.example.com/shop:1.0", "replicas": int64(3)}
	maps.Copy(all, spec)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "WebApp", "metadata": map[string]any{"name": name}, "spec": all}}
}

// corrupt changes fields of the spec in etcd, past all validation. It may be
// overtaken by a write of the controller's, and then does it again.
func (w *world) corrupt(name string, spec map[string]any) {
	w.Helper()
	key := path.Join("/registry", resource.Group, resource.Resource, w.namespace, name)
	eventually(w.T, "the bad value to be stored", func() (bool, string) {
		raw, err := w.plane.EtcdGet(w.Context(), key)
		if err != nil {
			return false, err.Error()
		}
		var object map[string]any
		if err := json.Unmarshal(raw, &object); err != nil {
			w.Fatal(err)
		}
		fields := object["spec"].(map[string]any)
		maps.Copy(fields, spec)
		metadata := object["metadata"].(map[string]any)
		metadata["generation"] = metadata["generation"].(float64) + 1
		if raw, err = json.Marshal(object); err != nil {
			w.Fatal(err)
		}
		if _, err := w.plane.EtcdPut(w.Context(), key, raw); err != nil {
			return false, err.Error()
		}
		live := w.object(name)
		for field, value := range spec {
			if got := live.Object["spec"].(map[string]any)[field]; fmt.Sprint(got) != fmt.Sprint(value) {
				return false, fmt.Sprintf("%s is %v", field, got)
			}
		}
		return true, ""
	})
}

func (w *world) object(name string) *unstructured.Unstructured {
	w.Helper()
	o, err := w.webApps.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// condition waits for one in the form "False Undecodable", and returns its message.
func (w *world) condition(name, conditionType, want string) (message string) {
	w.Helper()
	eventually(w.T, fmt.Sprintf("%s of %s to be %s", conditionType, name, want), func() (bool, string) {
		conditions, _, _ := unstructured.NestedSlice(w.object(name).Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == conditionType {
				message, _ = c["message"].(string)
				got := fmt.Sprint(c["status"], " ", c["reason"])
				return got == want, got + ": " + message
			}
		}
		return false, fmt.Sprint("none of it: ", conditions)
	})
	return message
}

func (w *world) gone(name string) {
	w.Helper()
	eventually(w.T, name+" to be gone", func() (bool, string) {
		o, err := w.webApps.Get(w.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		return false, fmt.Sprintf("%v, finalizers %v", err, o.GetFinalizers())
	})
}

func (w *world) deployment(name string) *appsv1.Deployment {
	w.Helper()
	var found *appsv1.Deployment
	eventually(w.T, "a Deployment", func() (bool, string) {
		var err error
		found, err = w.kube.AppsV1().Deployments(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return found
}

// rollOut does what the Deployment controller and the kubelets would.
func (w *world) rollOut(name string) {
	w.Helper()
	eventually(w.T, "the rollout", func() (bool, string) {
		d := w.deployment(name)
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		_, err := w.kube.AppsV1().Deployments(w.namespace).UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// reasons drains the Events about decoding recorded so far.
func (w *world) reasons() string {
	all := strings.Split(reasons(w.events), ", ")
	return strings.Join(slices.DeleteFunc(all, func(e string) bool {
		return !strings.HasSuffix(e, undecodable.ReasonUndecodable) && !strings.HasSuffix(e, undecodable.ReasonDecoded) && !strings.HasPrefix(e, "Warning Not")
	}), ", ")
}

// told waits for the Events of reasons: each comes after the write of the condition
// that it tells of. More than these fail the test.
func (w *world) told(want string) {
	w.Helper()
	var all []string
	eventually(w.T, "the Events "+want, func() (bool, string) {
		if got := w.reasons(); got != "" {
			all = append(all, got)
		}
		got := strings.Join(all, ", ")
		return len(got) >= len(want), got
	})
	if got := strings.Join(all, ", "); got != want {
		w.Errorf("Events: %s, want %s", got, want)
	}
}

func eventually(t *testing.T, what string, f func() (bool, string)) {
	t.Helper()
	controlplane.Eventually(t, patience, what, f)
}
