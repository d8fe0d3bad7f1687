package webapp

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

func TestDesired(t *testing.T) {
	labels := map[string]string{
		"app.kubernetes.io/managed-by": "steadwatch",
		"app.kubernetes.io/name":       "web",
		"platform.tejo.dev/webapp":     "web",
	}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: labels, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "platform.tejo.dev/v1alpha1", Kind: "WebApp", Name: "web", UID: "uid-1",
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}}
	deployment := func(change func(*appsv1.DeploymentSpec)) *appsv1.Deployment {
		d := &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](3),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"platform.tejo.dev/webapp": "web"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"platform.tejo.dev/config-hash": "settings/abc"}},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{
						Name: "app", Image: "web:1",
						Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
						EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
					}}},
				},
			},
		}
		change(&d.Spec)
		return d
	}
	cases := map[string]struct {
		reason string
		app    *v1alpha1.WebApp
		config config
		want   *appsv1.Deployment
	}{
		"All": {"every field of the spec shows", testApp(), config{"settings", "abc"}, deployment(func(*appsv1.DeploymentSpec) {})},
		"NoReplicas": {"left out so that somebody else may own it", testApp(func(a *v1alpha1.WebApp) { a.Spec.Replicas = nil }), config{"settings", "abc"},
			deployment(func(s *appsv1.DeploymentSpec) { s.Replicas = nil })},
		"Zero": {"0 is a number", testApp(func(a *v1alpha1.WebApp) { a.Spec.Replicas = ptr.To[int32](0) }), config{"settings", "abc"},
			deployment(func(s *appsv1.DeploymentSpec) { s.Replicas = ptr.To[int32](0) })},
		"NoConfig": {"neither environment nor annotation", testApp(), config{}, deployment(func(s *appsv1.DeploymentSpec) {
			s.Template.Annotations = nil
			s.Template.Spec.Containers[0].EnvFrom = nil
		})},
		"NoPort": {"an object from before the default", testApp(func(a *v1alpha1.WebApp) { a.Spec.Port = 0 }), config{"settings", "abc"},
			deployment(func(*appsv1.DeploymentSpec) {})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decodeAs[appsv1.Deployment](t, desiredDeployment(tc.app, tc.config))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}

	want := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"platform.tejo.dev/webapp": "web"},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 8080, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")}},
		},
	}
	if diff := cmp.Diff(want, decodeAs[corev1.Service](t, desiredService(testApp()))); diff != "" {
		t.Errorf("Service (-want +got):\n%s", diff)
	}
}

func TestParseConfig(t *testing.T) {
	for in, want := range map[string]config{
		"settings/abc": {"settings", "abc"},
		"":             {},
		"abc":          {},
		"/abc":         {},
		"settings/":    {},
	} {
		if got := parseConfig(in); got != want {
			t.Errorf("%q: got %+v, want %+v", in, got, want)
		}
	}
}

func TestContentHash(t *testing.T) {
	base := &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}
	cases := map[string]struct {
		reason string
		other  *corev1.ConfigMap
		same   bool
	}{
		"Same":       {"metadata does not count", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "2"}, Data: map[string]string{"b": "2", "a": "1"}}, true},
		"Value":      {"a value has changed", &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "3"}}, false},
		"Moved":      {"the same characters, cut elsewhere", &corev1.ConfigMap{Data: map[string]string{"a": "1b", "": "2"}}, false},
		"Binary":     {"binaryData counts, and is another thing than data", &corev1.ConfigMap{BinaryData: map[string][]byte{"a": []byte("1"), "b": []byte("2")}}, false},
		"HalfBinary": {"the line between the two counts", &corev1.ConfigMap{Data: map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": []byte("2")}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := contentHash(base) == contentHash(tc.other); got != tc.same {
				t.Errorf("%s: same is %t, want %t", tc.reason, got, tc.same)
			}
		})
	}
}

func TestTransformConfigMap(t *testing.T) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", UID: "u", ResourceVersion: "1",
			Annotations: map[string]string{annotationConfig: "forged", "kubectl.kubernetes.io/last-applied-configuration": "{...}"}},
		Data: map[string]string{"a": "1"},
	}
	hash := contentHash(cm)
	small := TransformConfigMap(cm)
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", UID: "u", ResourceVersion: "1",
		Annotations: map[string]string{annotationContent: hash}}}
	if diff := cmp.Diff(want, small); diff != "" {
		t.Errorf("transformed (-want +got):\n%s", diff)
	}
	if configHash(small) != hash || configHash(cm) != hash {
		t.Errorf("the hash differs: before %s, after %s, want %s", configHash(cm), configHash(small), hash)
	}
	if twice := TransformConfigMap(small); twice != small {
		t.Errorf("a second time: got %p, want the same object %p untouched", twice, small)
	}
}
