package controlplane_test

import (
	"os"
	"testing"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var plane = controlplane.Shared{Config: controlplane.Config{Audit: true}}

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

func clientFor(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestNamespaceIsGoneAfterTheTest(t *testing.T) {
	cp := plane.ForTest(t)
	client := clientFor(t, cp.Config())
	var name string
	t.Run("inner", func(t *testing.T) {
		name = cp.Namespace(t)
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	_, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		t.Fatal("still there")
	}
}
