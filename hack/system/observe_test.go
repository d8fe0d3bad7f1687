package system_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// ours says whether a request is the controller's, in this test.
func (w *world) ours(e controlplane.AuditEvent) bool {
	return e.User == user && (e.Namespace == w.namespace || e.Namespace == w.leases) && e.Stage == controlplane.StageResponseComplete
}

// requests are what the controller has asked for since then.
func (w *world) requests(since time.Time, filter func(controlplane.AuditEvent) bool) []controlplane.AuditEvent {
	w.Helper()
	events, err := w.plane.Audit(w.Context(), func(e controlplane.AuditEvent) bool {
		return w.ours(e) && !e.RequestReceived.Before(since) && filter(e)
	})
	if err != nil {
		w.Fatal(err)
	}
	return events
}

func mutating(e controlplane.AuditEvent) bool {
	return !slices.Contains([]string{"get", "list", "watch"}, e.Verb) && e.Resource != "leases"
}

// writes counts the controller's writes since then, Leases apart, by verb, resource
// and name.
func (w *world) writes(since time.Time) map[string]int {
	w.Helper()
	return count(w.requests(since, mutating))
}

// accepted counts those writes that the API server has not refused.
func (w *world) accepted(since time.Time) map[string]int {
	w.Helper()
	return count(w.requests(since, func(e controlplane.AuditEvent) bool { return mutating(e) && e.Code < 300 }))
}

func count(events []controlplane.AuditEvent) map[string]int {
	counts := map[string]int{}
	for _, e := range events {
		counts[describe(e)]++
	}
	return counts
}

// describe leaves out the names of Events, which are made up.
func describe(e controlplane.AuditEvent) string {
	resource := e.Resource
	if resource == "events" {
		return e.Verb + " events"
	}
	if e.Subresource != "" {
		resource += "/" + e.Subresource
	}
	return e.Verb + " " + resource + " " + e.Name
}

// history is what a watch has shown of a kind in the test's namespace.
type history[T any] struct {
	mu   sync.Mutex
	seen []T // of adds and updates
}

func (h *history[T]) all() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// record notes f of every version of every object that an administrator's watch
// shows from now on, and of those that are there.
func record[T any](w *world, resource string, f func(runtime.Object) T) *history[T] {
	w.Helper()
	h := &history[T]{}
	note := func(object any) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen = append(h.seen, f(object.(runtime.Object)))
	}
	client, example := w.kube.AppsV1().RESTClient(), runtime.Object(&appsv1.Deployment{})
	switch resource {
	case "services":
		client, example = w.kube.CoreV1().RESTClient(), &corev1.Service{}
	case "webapps":
		client, example = w.platform.PlatformV1alpha1().RESTClient(), &v1alpha1.WebApp{}
	}
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(client, resource, w.namespace, fields.Everything()), example, 0)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(_, object any) { note(object) },
	}); err != nil {
		w.Fatal(err)
	}
	var running sync.WaitGroup
	ctx := w.Context()
	running.Go(func() { informer.RunWithContext(ctx) })
	w.Cleanup(running.Wait)
	w.eventually(patience, "a watch on "+resource, func() (bool, string) { return informer.HasSynced(), "" })
	return h
}

// ourPart is what a version of a child shows of us: everything but the status and
// what built-in controllers keep in annotations. Two versions with the same part
// are not ours to answer for.
func ourPart(object runtime.Object) string {
	object = object.DeepCopyObject()
	if d, ok := object.(*appsv1.Deployment); ok {
		d.Status = appsv1.DeploymentStatus{}
		delete(d.Annotations, "deployment.kubernetes.io/revision")
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return err.Error()
	}
	m.SetManagedFields(slices.DeleteFunc(m.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager != "steadwatch-webapp" || e.Subresource != ""
	}))
	m.SetResourceVersion("")
	data, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return m.GetName() + " " + string(data)
}

// distinct leaves out what is repeated.
func distinct[T cmp.Ordered](all []T) []T { return slices.Compact(slices.Sorted(slices.Values(all))) }

func newApp(name string, change ...func(*v1alpha1.WebApp)) *v1alpha1.WebApp {
	none := int32(0)
	app := &v1alpha1.WebApp{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WebAppSpec{
		Image: "registry.example/app:1", Replicas: &none, DrainTimeout: &metav1.Duration{},
	}}
	for _, f := range change {
		f(app)
	}
	return app
}

func replicas(n int32) func(*v1alpha1.WebApp) {
	return func(a *v1alpha1.WebApp) { a.Spec.Replicas = &n }
}

func (w *world) create(apps ...*v1alpha1.WebApp) {
	w.Helper()
	for _, app := range apps {
		if _, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Create(w.Context(), app, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) app(name string) *v1alpha1.WebApp {
	w.Helper()
	app, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return app
}

// change updates a WebApp, whatever else is written to it meanwhile.
func (w *world) change(name string, f func(*v1alpha1.WebApp)) {
	w.Helper()
	w.eventually(patience, "an update of "+name, func() (bool, string) {
		app := w.app(name)
		f(app)
		_, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Update(w.Context(), app, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// condition waits for "status reason" of a condition, for the present generation.
func (w *world) condition(name, conditionType, want string) metav1.Condition {
	w.Helper()
	var found metav1.Condition
	w.eventually(patience, fmt.Sprintf("%s of %s to be %s", conditionType, name, want), func() (bool, string) {
		app := w.app(name)
		c := meta.FindStatusCondition(app.Status.Conditions, conditionType)
		if c == nil {
			return false, "no such condition yet"
		}
		found = *c
		got := string(c.Status) + " " + c.Reason
		return got == want && app.Status.ObservedGeneration == app.Generation,
			fmt.Sprintf("%s: %s, generation %d of %d", got, c.Message, app.Status.ObservedGeneration, app.Generation)
	})
	return found
}

func (w *world) ready(name string) {
	w.Helper()
	w.condition(name, v1alpha1.ConditionReady, "True Available")
}

// told waits for an Event about a WebApp, "type reason".
func (w *world) told(name, want string) {
	w.Helper()
	w.eventually(patience, fmt.Sprintf("an Event %q about %s", want, name), func() (bool, string) {
		got := w.events(name)
		return slices.Contains(got, want), fmt.Sprintf("%q", got)
	})
}

// events are "type reason" of each Event about a WebApp; "": about all of them.
func (w *world) events(name string) []string {
	w.Helper()
	list, err := w.kube.CoreV1().Events(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var found []string
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "WebApp" && (name == "" || e.InvolvedObject.Name == name) {
			found = append(found, e.Type+" "+e.Reason)
		}
	}
	return found
}

// allReady waits for n WebApps.
func (w *world) allReady(n int) {
	w.Helper()
	w.eventually(2*patience, fmt.Sprintf("%d WebApps to be Ready", n), func() (bool, string) {
		list, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		ready := 0
		for _, app := range list.Items {
			if app.Status.ObservedGeneration == app.Generation && meta.IsStatusConditionTrue(app.Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return ready == n, fmt.Sprintf("%d of %d are", ready, len(list.Items))
	})
}

func (w *world) deployment(name, what string, f func(*appsv1.Deployment) bool) *appsv1.Deployment {
	w.Helper()
	var found *appsv1.Deployment
	w.eventually(patience, "Deployment "+name+": "+what, func() (bool, string) {
		d, err := w.kube.AppsV1().Deployments(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		found = d
		data, _ := json.Marshal(d)
		return f(d), string(data)
	})
	return found
}

func (w *world) delete(name string) {
	w.Helper()
	if err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// gone waits until a WebApp is no more.
func (w *world) gone(within time.Duration, name string) {
	w.Helper()
	w.eventually(within, "WebApp "+name+" to be gone", func() (bool, string) {
		app, err := w.platform.PlatformV1alpha1().WebApps(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		return false, fmt.Sprintf("finalizers %q", app.Finalizers)
	})
}

// childless waits until garbage collection has removed what a WebApp left.
func (w *world) childless() {
	w.Helper()
	w.eventually(patience, "the children to be gone", func() (bool, string) {
		deployments, err := w.kube.AppsV1().Deployments(w.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		services, err := w.kube.CoreV1().Services(w.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		pods, err := w.kube.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		return len(deployments.Items)+len(services.Items)+len(pods.Items) == 0,
			fmt.Sprintf("%d Deployments, %d Services, %d Pods", len(deployments.Items), len(services.Items), len(pods.Items))
	})
}
