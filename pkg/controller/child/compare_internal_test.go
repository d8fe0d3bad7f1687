package child

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
)

// testKind merges some lists of a Deployment by key, and takes its selector as one
// value.
var testKind = Kind[*appsv1.Deployment, *appsv1ac.DeploymentApplyConfiguration]{
	Name: "Deployment", Resource: appsv1.SchemeGroupVersion.WithResource("deployments"),
	Lists: func(field string, element map[string]any) []string {
		switch {
		case field == "ports" && element["containerPort"] != nil:
			return []string{"containerPort", "protocol"}
		case field == "containers" || field == "volumes":
			return []string{"name"}
		}
		return nil
	},
	AtomicMaps: map[string]bool{"selector": true, "configMapRef": true},
}

// testConfig has an object, an atomic map, lists by one key and by two, and an atomic
// list.
func testConfig() *appsv1ac.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	container := corev1ac.Container().WithName("app").WithImage("web:1").
		WithPorts(corev1ac.ContainerPort().WithName("http").WithContainerPort(8080).WithProtocol(corev1.ProtocolTCP)).
		WithEnvFrom(corev1ac.EnvFromSource().WithConfigMapRef(corev1ac.ConfigMapEnvSource().WithName("settings")))
	return appsv1ac.Deployment("web", "shop").WithLabels(labels).WithAnnotations(map[string]string{"hash": "abc"}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("example.com/v1").WithKind("Owner").WithName("web").
			WithUID("uid-1").WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(appsv1ac.DeploymentSpec().WithReplicas(3).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithAnnotations(map[string]string{"config": "settings/abc"}).
				WithSpec(corev1ac.PodSpec().WithContainers(container))))
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

func TestMatches(t *testing.T) {
	app := func(d *appsv1.Deployment) *corev1.Container { return &d.Spec.Template.Spec.Containers[1] }
	cases := map[string]struct {
		reason string
		change func(*appsv1.Deployment)
		want   bool
	}{
		"Defaults":        {"defaults, and what others have added, are not ours", func(*appsv1.Deployment) {}, true},
		"Scalar":          {"a number that somebody else set is drift", func(d *appsv1.Deployment) { *d.Spec.Replicas = 5 }, false},
		"Order":           {"in a list by key the order does not matter", func(d *appsv1.Deployment) { slices.Reverse(d.Spec.Template.Spec.Containers) }, true},
		"Renamed":         {"an element is found by its key", func(d *appsv1.Deployment) { app(d).Name = "x" }, false},
		"SecondKey":       {"by all of its keys", func(d *appsv1.Deployment) { app(d).Ports[1].Protocol = "UDP" }, false},
		"AtomicListAdded": {"an atomic list is one value: an entry more is drift", func(d *appsv1.Deployment) { app(d).EnvFrom = append(app(d).EnvFrom, corev1.EnvFromSource{}) }, false},
		"AtomicListField": {"and so is a field more in an entry", func(d *appsv1.Deployment) { app(d).EnvFrom[0].Prefix = "X_" }, false},
		"AtomicMapAdded":  {"an atomic map is one value too", func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels["a"] = "b" }, false},
		"NoLongerOwner":   {"the owner reference is ours", func(d *appsv1.Deployment) { d.OwnerReferences = d.OwnerReferences[:1] }, false},
		"OtherOwner":      {"by uid, whatever Lists says", func(d *appsv1.Deployment) { d.OwnerReferences[1].UID = "uid-2" }, false},
		"Hash":            {"an annotation of ours differs", func(d *appsv1.Deployment) { d.Annotations["hash"] = "0" }, false},
		"Status":          {"what the configuration does not mention", func(d *appsv1.Deployment) { d.Status.Replicas = 0 }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := liveDeployment(t, testConfig())
			tc.change(live)
			if got, err := testKind.matches(testConfig(), live); err != nil || got != tc.want {
				t.Errorf("%s: got %t, %v, want %t", tc.reason, got, err, tc.want)
			}
		})
	}
}

// A kind without Lists and AtomicMaps has owner references by UID and no other list
// by key.
func TestMatchesWithoutLists(t *testing.T) {
	plain := testKind
	plain.Lists, plain.AtomicMaps = nil, nil
	live := liveDeployment(t, testConfig())
	if same, err := plain.matches(testConfig(), live); err != nil || same {
		t.Errorf("a container more in an atomic list: got %t, %v, want different", same, err)
	}
	live.Spec.Template.Spec.Containers = decodeAs[appsv1.Deployment](t, testConfig()).Spec.Template.Spec.Containers
	if same, err := plain.matches(testConfig(), live); err != nil || !same {
		t.Errorf("the same atomic list, and another owner: got %t, %v, want equal", same, err)
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
	if same, err := testKind.matches(config, live); err != nil || !same {
		t.Errorf("0.5 and 500m, 1024Mi and 1Gi: got %t, %v, want equal", same, err)
	}
	live.Spec.Template.Spec.Volumes[0].EmptyDir = nil
	if same, err := testKind.matches(config, live); err != nil || same {
		t.Errorf("an empty object that the live one lacks: got %t, %v, want different", same, err)
	}
}

// Every leaf of the configuration counts, wherever it is: each is taken away or
// changed in turn.
func TestMatchesSeesEveryLeaf(t *testing.T) {
	config := testConfig()
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
	if same, err := testKind.matches(config, live); err != nil || !same {
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
		if testKind.covers("", want, content, have) {
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
		for _, name := range slices.Sorted(maps.Keys(want)) {
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
