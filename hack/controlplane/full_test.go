package controlplane_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: example.com/none}]}
`

func TestFullRunsDeployments(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{Full: true})
	namespace := cp.Namespace(t)
	client := clientFor(t, cp.Config())
	if err := cp.Apply(t.Context(), fmt.Appendf(nil, deployment, namespace)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the Deployment is Available", func() error {
		d, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.AvailableReplicas != 3 {
			return fmt.Errorf("status: %+v", d.Status)
		}
		return nil
	})
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 3 {
		t.Fatalf("%d Pods, %v", len(pods.Items), err)
	}
	nodes := map[string]bool{}
	for _, pod := range pods.Items {
		nodes[pod.Spec.NodeName] = true
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("Pod %s is %s", pod.Name, pod.Status.Phase)
		}
	}
	if len(nodes) != 2 {
		t.Errorf("Pods on %v, want both nodes", nodes)
	}

	out, err := exec.CommandContext(t.Context(), cp.Binary("kubectl"), "--kubeconfig", cp.KubeconfigFile(), "-n", namespace, "get", "deployments").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "3/3") {
		t.Errorf("kubectl: %v: %s", err, out)
	}
	if err := client.AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the garbage collector has the Pods", func() error {
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d Pods", len(pods.Items))
		}
		return err
	})
}
