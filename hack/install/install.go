// Package install puts the product on a control plane as its users do, for the
// demo, the measurements and the system tests: the CRDs and RBAC rules of
// manifests/, and the controller, compiled from this checkout, as a process that
// runs under the ServiceAccount of the manifests.
//
// # Caveats
//
// The Deployment is left out: there is no container runtime, and kwok would only
// pretend to run it.
package install

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// Namespace is where the manifests install the controller and its Lease.
const Namespace = "steadwatch-system"

// Root is the checkout that the current folder is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "manifests", "base", "kustomization.yaml")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run it inside a checkout of Steadwatch: no manifests/base at or above the current folder")
		}
		dir = parent
	}
}

// Manifests applies the CRDs, the namespace, the ServiceAccount and its rules. All
// that kustomize would do to these is to set the namespace, and a control plane that
// is not full has no kubectl to ask.
func Manifests(ctx context.Context, cp *controlplane.ControlPlane, root string) error {
	crds, err := filepath.Glob(filepath.Join(root, "manifests", "crd", "*.tejo.dev_*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range append(crds, filepath.Join(root, "manifests", "base", "namespace.yaml")) {
		if err := cp.ApplyFile(ctx, file); err != nil {
			return err
		}
	}
	data, err := os.ReadFile(filepath.Join(root, "manifests", "base", "rbac.yaml"))
	if err != nil {
		return err
	}
	var rules bytes.Buffer
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return cp.Apply(ctx, rules.Bytes())
		}
		if err != nil {
			return fmt.Errorf("read manifests/base/rbac.yaml: %w", err)
		}
		var object unstructured.Unstructured
		if err := sigsyaml.Unmarshal(document, &object.Object); err != nil {
			return fmt.Errorf("read manifests/base/rbac.yaml: %w", err)
		}
		switch object.GetKind() {
		case "ClusterRole", "ClusterRoleBinding":
		default:
			object.SetNamespace(Namespace)
		}
		out, err := sigsyaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		fmt.Fprintf(&rules, "---\n%s\n", out)
	}
}

// TLSSecrets grants what manifests/components/tls-secrets does. It is for after
// Manifests; the flag --tls-secrets is the caller's.
func TLSSecrets(ctx context.Context, cp *controlplane.ControlPlane, root string) error {
	file := filepath.Join(root, "manifests", "components", "tls-secrets", "kustomization.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var component struct {
		Patches []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	if err := sigsyaml.Unmarshal(data, &component); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	kube, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	for _, p := range component.Patches {
		if p.Target.Kind != "ClusterRole" {
			continue
		}
		patch, err := sigsyaml.YAMLToJSON([]byte(p.Patch))
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		_, err = kube.RbacV1().ClusterRoles().Patch(ctx, p.Target.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
	return fmt.Errorf("%s grants nothing to a ClusterRole", file)
}

// Binary compiles the controller into a folder and returns its path. It returns
// $STEADWATCH_CONTROLLER instead if that is set, to try one that was compiled
// otherwise.
func Binary(ctx context.Context, root, folder string) (string, error) {
	if path := os.Getenv("STEADWATCH_CONTROLLER"); path != "" {
		return path, nil
	}
	path := filepath.Join(folder, "controller")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./cmd/controller")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/controller: %w\n%s", err, out)
	}
	return path, nil
}

// Kubeconfig writes the credentials of the manifests' ServiceAccount to a file in the
// control plane's folder and returns its path.
func Kubeconfig(ctx context.Context, cp *controlplane.ControlPlane) (string, error) {
	credentials, err := cp.ServiceAccountConfig(ctx, Namespace, "steadwatch")
	if err != nil {
		return "", err
	}
	path := filepath.Join(cp.Dir(), "controller.kubeconfig")
	return path, cp.WriteKubeconfig(path, credentials)
}
