package webapp

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

const (
	kind = "WebApp"

	// labelWebApp alone selects the pods. Its domain is ours, so that no pod of
	// anybody else carries it by accident.
	labelWebApp = "platform.tejo.dev/webapp"
	// annotationConfig, on the pod template, names the ConfigMap and the hash of
	// its content: a change of either rolls the pods.
	annotationConfig = "platform.tejo.dev/config-hash"

	containerName = "app"
	portName      = "http"
	// defaultPort is the CRD's default, for objects from before it had one.
	defaultPort = 8080
)

// groupKind is what a child's owner reference refers to, in any version.
var groupKind = v1alpha1.SchemeGroupVersion.WithKind(kind).GroupKind()

// config is the state of the ConfigMap that a pod template is made for. The zero
// value is none.
type config struct{ name, hash string }

func (c config) String() string { return c.name + "/" + c.hash }

// parseConfig is the inverse of String; anything else is no config.
func parseConfig(s string) config {
	name, hash, ok := strings.Cut(s, "/")
	if !ok || name == "" || hash == "" {
		return config{}
	}
	return config{name, hash}
}

// selector selects the pods of a WebApp.
func selector(app *v1alpha1.WebApp) map[string]string {
	return map[string]string{labelWebApp: app.Name}
}

func commonLabels(app *v1alpha1.WebApp) map[string]string {
	return map[string]string{
		labelWebApp:                    app.Name,
		"app.kubernetes.io/name":       app.Name,
		"app.kubernetes.io/managed-by": "steadwatch",
	}
}

func ownerReference(app *v1alpha1.WebApp) *metav1ac.OwnerReferenceApplyConfiguration {
	return child.OwnerReference(app, v1alpha1.SchemeGroupVersion.WithKind(kind))
}

// desiredDeployment is every field of the Deployment that app decides.
func desiredDeployment(app *v1alpha1.WebApp, c config) *appsv1ac.DeploymentApplyConfiguration {
	container := corev1ac.Container().
		WithName(containerName).
		WithImage(app.Spec.Image).
		// The protocol is a key of the list: left out it is the server's default,
		// and then the entry is not found in the live object.
		WithPorts(corev1ac.ContainerPort().WithName(portName).WithContainerPort(port(app)).WithProtocol(corev1.ProtocolTCP))
	template := corev1ac.PodTemplateSpec().WithLabels(commonLabels(app))
	if c != (config{}) {
		container.WithEnvFrom(corev1ac.EnvFromSource().WithConfigMapRef(corev1ac.ConfigMapEnvSource().WithName(c.name)))
		template.WithAnnotations(map[string]string{annotationConfig: c.String()})
	}
	spec := appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector(app))).
		WithTemplate(template.WithSpec(corev1ac.PodSpec().WithContainers(container)))
	if app.Spec.Replicas != nil {
		spec.WithReplicas(*app.Spec.Replicas)
	}
	return appsv1ac.Deployment(app.Name, app.Namespace).
		WithLabels(commonLabels(app)).
		WithOwnerReferences(ownerReference(app)).
		WithSpec(spec)
}

// desiredService is every field of the Service that app decides.
func desiredService(app *v1alpha1.WebApp) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(app.Name, app.Namespace).
		WithLabels(commonLabels(app)).
		WithOwnerReferences(ownerReference(app)).
		WithSpec(corev1ac.ServiceSpec().
			WithSelector(selector(app)).
			WithPorts(corev1ac.ServicePort().
				WithName(portName).
				WithPort(port(app)).
				WithProtocol(corev1.ProtocolTCP).
				WithTargetPort(intstr.FromString(portName))))
}

func port(app *v1alpha1.WebApp) int32 { return cmp.Or(app.Spec.Port, defaultPort) }

// selectorString is the selector as the scale subresource wants it.
func selectorString(app *v1alpha1.WebApp) string {
	return labels.SelectorFromSet(selector(app)).String()
}
