package webapp

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

func testApp(change ...func(*v1alpha1.WebApp)) *v1alpha1.WebApp {
	app := &v1alpha1.WebApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1", Generation: 3, ResourceVersion: "7"},
		Spec:       v1alpha1.WebAppSpec{Image: "web:1", Replicas: ptr.To[int32](3), ConfigRef: "settings", Port: 8080},
	}
	for _, f := range change {
		f(app)
	}
	return app
}

// liveDeployment is what the API server makes of a configuration: defaults, and
// fields of others.
func liveDeployment(t *testing.T, config *appsv1ac.DeploymentApplyConfiguration) *appsv1.Deployment {
	t.Helper()
	live := decodeAs[appsv1.Deployment](t, config)
	live.TypeMeta = metav1.TypeMeta{}
	live.UID, live.ResourceVersion, live.Generation = "uid-d", "12", 4
	live.CreationTimestamp = metav1.Now()
	live.Labels["team"] = "shop"
	live.Annotations["deployment.kubernetes.io/revision"] = "2"
	live.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "uid-x"}}, live.OwnerReferences...)
	live.Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	live.Spec.RevisionHistoryLimit = ptr.To[int32](10)
	if live.Spec.Replicas == nil {
		live.Spec.Replicas = ptr.To[int32](1)
	}
	pod := &live.Spec.Template.Spec
	pod.RestartPolicy, pod.DNSPolicy = corev1.RestartPolicyAlways, corev1.DNSClusterFirst
	app := &pod.Containers[0]
	app.ImagePullPolicy, app.TerminationMessagePath = corev1.PullIfNotPresent, "/dev/termination-log"
	app.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	app.Ports = append([]corev1.ContainerPort{{Name: "debug", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}}, app.Ports...)
	pod.Containers = append([]corev1.Container{{Name: "sidecar", Image: "proxy"}}, pod.Containers...)
	live.Status.Replicas = 3
	return live
}

func decodeAs[T any](t *testing.T, config any) *T {
	t.Helper()
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	live := new(T)
	if err := json.Unmarshal(data, live); err != nil {
		t.Fatal(err)
	}
	return live
}

// applied returns what is applied to live, a child or nil, to make it what config says:
// nil if nothing is.
func applied[T child.Object, A child.Configuration[A]](t *testing.T, kind child.Kind[T, A], live T, config A) (sent A) {
	t.Helper()
	kind.Client = func(string) child.Client[T, A] {
		return applyFunc[T, A](func(a A) { sent = a })
	}
	applier := &child.Applier{FieldManager: fieldManager, Annotation: annotationApplied, Owner: groupKind,
		Wrote: func(context.Context, metav1.Object, schema.GroupVersionResource, metav1.Object) {}}
	if _, err := child.Ensure(t.Context(), applier, kind, testApp(), live, config, nil); err != nil {
		t.Fatal(err)
	}
	return sent
}

// applyFunc is a client that is told of applies.
type applyFunc[T, A any] func(A)

func (f applyFunc[T, A]) Apply(_ context.Context, config A, _ metav1.ApplyOptions) (none T, _ error) {
	f(config)
	return none, nil
}

func (applyFunc[T, A]) Get(context.Context, string, metav1.GetOptions) (none T, _ error) {
	return none, errors.New("unexpected GET")
}

func (applyFunc[T, A]) Delete(context.Context, string, metav1.DeleteOptions) error {
	return errors.New("unexpected DELETE")
}

func TestMatchesDeployment(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*appsv1.Deployment)
		want   bool
	}{
		"Defaults":          {"defaults, sidecars, labels, ports and owners of others are not ours", func(*appsv1.Deployment) {}, true},
		"Replicas":          {"a number that somebody else set is drift", func(d *appsv1.Deployment) { *d.Spec.Replicas = 5 }, false},
		"Image":             {"so is another image", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Image = "web:2" }, false},
		"Renamed":           {"containers are found by name", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Name = "x" }, false},
		"Order":             {"their order does not matter", swapContainers, true},
		"Label":             {"a label of ours is gone", func(d *appsv1.Deployment) { delete(d.Labels, labelWebApp) }, false},
		"TemplateLabel":     {"a label of the template is gone", func(d *appsv1.Deployment) { d.Spec.Template.Labels = nil }, false},
		"ConfigHash":        {"the annotation that rolls the pods has changed", func(d *appsv1.Deployment) { d.Spec.Template.Annotations[annotationConfig] = "settings/0" }, false},
		"Protocol":          {"a port's key includes its protocol", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Ports[1].Protocol = "UDP" }, false},
		"PortName":          {"a port's name is ours", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Ports[1].Name = "web" }, false},
		"AtomicListAdded":   {"envFrom is one value: an entry more is drift", addEnvFrom, false},
		"AtomicListField":   {"and so is a field more in our entry", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].EnvFrom[0].Prefix = "X_" }, false},
		"AtomicMapAdded":    {"the selector is one value", func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels["a"] = "b" }, false},
		"NoLongerOwner":     {"the owner reference is ours", func(d *appsv1.Deployment) { d.OwnerReferences = d.OwnerReferences[:1] }, false},
		"OtherOwner":        {"by uid", func(d *appsv1.Deployment) { d.OwnerReferences[1].UID = "uid-2" }, false},
		"AppliedAnnotation": {"the hash of what was applied last has to be there", func(d *appsv1.Deployment) { d.Annotations[annotationApplied] = "0" }, false},
		"Status":            {"status is not ours", func(d *appsv1.Deployment) { d.Status.Replicas = 0 }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			desired := func() *appsv1ac.DeploymentApplyConfiguration {
				return desiredDeployment(testApp(), config{"settings", "abc"})
			}
			kind := merged(deployments{})
			live := liveDeployment(t, applied(t, kind, nil, desired()))
			tc.change(live)
			if got := applied(t, kind, live, desired()) == nil; got != tc.want {
				t.Errorf("%s: counts as equal: %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func swapContainers(d *appsv1.Deployment) {
	c := d.Spec.Template.Spec.Containers
	c[0], c[1] = c[1], c[0]
}

func addEnvFrom(d *appsv1.Deployment) {
	c := &d.Spec.Template.Spec.Containers[1]
	c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{Prefix: "X"})
}

func TestMatchesService(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*corev1.Service)
		want   bool
	}{
		"Defaults":      {"the API server's fields are not ours", func(*corev1.Service) {}, true},
		"SelectorAdded": {"a selector with one label more selects nothing", func(s *corev1.Service) { s.Spec.Selector["x"] = "y" }, false},
		"TargetPort":    {"a number is not the name", func(s *corev1.Service) { s.Spec.Ports[1].TargetPort = intstr.FromInt32(8080) }, false},
		"PortGone":      {"our port is gone", func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kind := merged(services{})
			live := decodeAs[corev1.Service](t, applied(t, kind, nil, desiredService(testApp())))
			live.TypeMeta = metav1.TypeMeta{}
			live.Spec.ClusterIP, live.Spec.Type = "10.0.0.1", corev1.ServiceTypeClusterIP
			live.Spec.Ports = append([]corev1.ServicePort{{Name: "metrics", Port: 9090, Protocol: "TCP", TargetPort: intstr.FromInt32(9090)}}, live.Spec.Ports...)
			tc.change(live)
			if got := applied(t, kind, live, desiredService(testApp())) == nil; got != tc.want {
				t.Errorf("%s: counts as equal: %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestOnlyOwnerOfReplicas(t *testing.T) {
	entry := func(manager, subresource string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		f := &metav1.FieldsV1{}
		f.SetRawString(fields)
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: operation, FieldsV1: f}
	}
	const replicas, image = `{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:paused":{}}}`
	ours := entry(fieldManager, "", metav1.ManagedFieldsOperationApply, replicas)
	cases := map[string]struct {
		reason   string
		managers []metav1.ManagedFieldsEntry
		want     bool
	}{
		"Ours":         {"leaving it out would remove it", []metav1.ManagedFieldsEntry{ours}, true},
		"Not":          {"somebody else's field stays whatever we leave out", []metav1.ManagedFieldsEntry{entry("hpa", "scale", metav1.ManagedFieldsOperationUpdate, replicas)}, false},
		"Shared":       {"the other owner keeps it", []metav1.ManagedFieldsEntry{ours, entry("hpa", "scale", metav1.ManagedFieldsOperationUpdate, replicas)}, false},
		"OtherFields":  {"other fields do not count", []metav1.ManagedFieldsEntry{ours, entry("kubectl", "", metav1.ManagedFieldsOperationApply, image)}, true},
		"OurUpdate":    {"a plain write of ours, the drain, keeps it as another manager would", []metav1.ManagedFieldsEntry{ours, entry(fieldManager, "", metav1.ManagedFieldsOperationUpdate, replicas)}, false},
		"Unmanaged":    {"no managers at all", nil, false},
		"WithoutField": {"ours without replicas", []metav1.ManagedFieldsEntry{entry(fieldManager, "", metav1.ManagedFieldsOperationApply, image)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := onlyOwnerOfReplicas(tc.managers)
			if err != nil || got != tc.want {
				t.Errorf("%s: got %t, %v, want %t", tc.reason, got, err, tc.want)
			}
		})
	}
}
