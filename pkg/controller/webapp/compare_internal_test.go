package webapp

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
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
	live.Annotations = map[string]string{"deployment.kubernetes.io/revision": "2"}
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
			config := desiredDeployment(testApp(), config{"settings", "abc"})
			hash, err := hashOf(config)
			if err != nil {
				t.Fatal(err)
			}
			live := liveDeployment(t, config)
			live.Annotations[annotationApplied] = hash
			config.WithAnnotations(map[string]string{annotationApplied: hash})
			tc.change(live)
			got, err := matches(config, live)
			if err != nil || got != tc.want {
				t.Errorf("%s: got %t, %v, want %t", tc.reason, got, err, tc.want)
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
			config := desiredService(testApp())
			live := decodeAs[corev1.Service](t, config)
			live.TypeMeta = metav1.TypeMeta{}
			live.Spec.ClusterIP, live.Spec.Type = "10.0.0.1", corev1.ServiceTypeClusterIP
			live.Spec.Ports = append([]corev1.ServicePort{{Name: "metrics", Port: 9090, Protocol: "TCP", TargetPort: intstr.FromInt32(9090)}}, live.Spec.Ports...)
			tc.change(live)
			got, err := matches(config, live)
			if err != nil || got != tc.want {
				t.Errorf("%s: got %t, %v, want %t", tc.reason, got, err, tc.want)
			}
		})
	}
}

func TestMatchesWritesAsTheServerDoes(t *testing.T) {
	container := corev1ac.Container().WithName("app").WithResources(corev1ac.ResourceRequirements().
		WithLimits(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.5"), corev1.ResourceMemory: resource.MustParse("1024Mi")}))
	config := appsv1ac.Deployment("web", "shop").WithSpec(appsv1ac.DeploymentSpec().WithTemplate(
		corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().WithContainers(container).
			WithVolumes(corev1ac.Volume().WithName("tmp").WithEmptyDir(corev1ac.EmptyDirVolumeSource())))))
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	live.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}}
	live.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if same, err := matches(config, live); err != nil || !same {
		t.Errorf("0.5 and 500m, 1024Mi and 1Gi: got %t, %v, want equal", same, err)
	}
	live.Spec.Template.Spec.Volumes[0].EmptyDir = nil
	if same, err := matches(config, live); err != nil || same {
		t.Errorf("an empty object that the live one lacks: got %t, %v, want different", same, err)
	}
}

// Every leaf of the configuration counts, wherever it is: each is taken away or
// changed in turn.
func TestMatchesSeesEveryLeaf(t *testing.T) {
	config := desiredDeployment(testApp(), config{"settings", "abc"})
	live := liveDeployment(t, config)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decodeAs[appsv1.Deployment](t, config))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	data, _ := json.Marshal(config)
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	delete(want, "kind")
	delete(want, "apiVersion")
	if same, err := matches(config, live); err != nil || !same {
		t.Fatalf("unchanged: got %t, %v", same, err)
	}
	leaves := countLeaves(want)
	if leaves < 20 {
		t.Fatalf("only %d leaves", leaves)
	}
	for n := range leaves {
		have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
		if err != nil {
			t.Fatal(err)
		}
		path, at := "", n
		spoil("", want, have, &at, &path)
		if covers("", want, content, have) {
			t.Errorf("leaf %s changed, and the live object still counts as equal", path)
		}
	}
}

func countLeaves(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			n += countLeaves(child)
		}
	case []any:
		for _, child := range v {
			n += countLeaves(child)
		}
	default:
		return 1
	}
	return n
}

// spoil changes the at-th leaf (in sorted order) of want in have.
func spoil(at string, want, have any, n *int, path *string) {
	switch want := want.(type) {
	case map[string]any:
		for _, name := range sortedKeys(want) {
			h := have.(map[string]any)
			if isLeaf(want[name]) {
				if *n == 0 {
					*path = at + "." + name
					if rand.IntN(2) == 0 {
						delete(h, name)
					} else {
						h[name] = "spoilt"
					}
				}
				*n--
				continue
			}
			spoil(at+"."+name, want[name], h[name], n, path)
		}
	case []any:
		list := have.([]any)
		for i := range want {
			// Others' entries stand before ours.
			spoil(at+"[]", want[i], list[len(list)-len(want)+i], n, path)
		}
	}
}

func isLeaf(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
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
