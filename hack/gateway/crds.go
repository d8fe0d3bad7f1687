package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

const module = "sigs.k8s.io/gateway-api"

// The resources that Steadwatch has to do with.
const (
	Gateways     = "gateways"
	HTTPRoutes   = "httproutes"
	ListenerSets = "listenersets"
)

// CRD returns the manifest of a resource's CRD. It runs the go command in the current
// folder, which has to be in this module.
func CRD(ctx context.Context, resource string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("find %s: %w", module, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return nil, fmt.Errorf("find %s: it is not in the module cache: run go mod download", module)
	}
	return os.ReadFile(filepath.Join(dir, "config", "crd", "standard", gatewayv1.GroupName+"_"+resource+".yaml"))
}

// Install installs the CRDs of resources, all three if none is named, and waits until
// they are served.
func Install(ctx context.Context, cp *controlplane.ControlPlane, resources ...string) error {
	for _, resource := range all(resources) {
		manifest, err := CRD(ctx, resource)
		if err != nil {
			return err
		}
		if err := cp.Apply(ctx, manifest); err != nil {
			return err
		}
	}
	return nil
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Remove deletes the CRDs of resources, all three if none is named, with all objects,
// and waits until they are gone.
func Remove(ctx context.Context, cp *controlplane.ControlPlane, resources ...string) error {
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, resource := range all(resources) {
		name := resource + "." + gatewayv1.GroupName
		if err := client.Resource(crds).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	for _, resource := range all(resources) {
		name := resource + "." + gatewayv1.GroupName
		for {
			_, err := client.Resource(crds).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("remove %s: %w; last answer: %v", name, context.Cause(ctx), err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func all(resources []string) []string {
	if len(resources) == 0 {
		return []string{Gateways, HTTPRoutes, ListenerSets}
	}
	return resources
}
