package main

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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

const systemNamespace = "steadwatch-system"

// moduleRoot is the folder that holds manifests/, at or above the current one.
func moduleRoot() (string, error) {
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
			return "", errors.New("run it inside the repository: there is no manifests/ at or above the current folder")
		}
		dir = parent
	}
}

// install applies the CRDs, the ServiceAccount and its rules. A control plane that
// is not full has no kubectl; all that kustomize would do to these is the namespace.
func install(ctx context.Context, cp *controlplane.ControlPlane, root string) error {
	if err := cp.ApplyFile(ctx, filepath.Join(root, "manifests", "crd", "platform.tejo.dev_webapps.yaml")); err != nil {
		return err
	}
	if err := cp.ApplyFile(ctx, filepath.Join(root, "manifests", "base", "namespace.yaml")); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(root, "manifests", "base", "rbac.yaml"))
	if err != nil {
		return err
	}
	var wanted bytes.Buffer
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var object unstructured.Unstructured
		if err := sigsyaml.Unmarshal(document, &object.Object); err != nil {
			return fmt.Errorf("read manifests/base/rbac.yaml: %w", err)
		}
		switch object.GetKind() {
		case "ClusterRole", "ClusterRoleBinding":
		default:
			object.SetNamespace(systemNamespace)
		}
		out, err := sigsyaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		fmt.Fprintf(&wanted, "---\n%s\n", out)
	}
	return cp.Apply(ctx, wanted.Bytes())
}

// build compiles the controller, unless STEADWATCH_CONTROLLER names one.
func build(ctx context.Context, cp *controlplane.ControlPlane, root string) (string, error) {
	if path := os.Getenv("STEADWATCH_CONTROLLER"); path != "" {
		return path, nil
	}
	path := filepath.Join(cp.Dir(), "controller")
	compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./cmd/controller")
	compile.Dir = root
	if out, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the controller: %w\n%s", err, out)
	}
	return path, nil
}

// kubeconfig writes the ServiceAccount's credentials to a file.
func kubeconfig(ctx context.Context, cp *controlplane.ControlPlane) (string, error) {
	cfg, err := cp.ServiceAccountConfig(ctx, systemNamespace, "steadwatch")
	if err != nil {
		return "", err
	}
	path := filepath.Join(cp.Dir(), "controller.kubeconfig")
	return path, cp.WriteKubeconfig(path, cfg)
}
