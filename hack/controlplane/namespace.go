package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Namespace creates a namespace for one test and returns its name. At the end
// of the test it is deleted with all that is in it, whatever finalizers that
// has, so that the next test does not meet it.
func (c *ControlPlane) Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	template := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		stopped := c.stopped
		c.mu.Unlock()
		if stopped {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := deleteNamespace(ctx, c.Config(), namespace.Name); err != nil {
			t.Logf("delete namespace %s: %v", namespace.Name, err)
		}
	})
	return namespace.Name
}

// deleteNamespace does what the namespace controller does, which runs with Full
// only: no new objects, delete the old ones, finalize. In addition it removes
// the finalizers of objects whose controller went with the test.
func deleteNamespace(ctx context.Context, cfg *rest.Config, name string) error {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{} // Endpoints are deprecated; delete them all the same
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	// From here on the server refuses to create anything in it.
	if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	lists, err := client.Discovery().ServerPreferredNamespacedResources()
	if err != nil && len(lists) == 0 {
		return fmt.Errorf("discover what may be in it: %w", err)
	}
	var errs []error
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "deletecollection") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			if err := empty(ctx, objects.Resource(gv.WithResource(r.Name)).Namespace(name)); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	namespace, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	namespace.Spec.Finalizers = nil
	if _, err = client.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{}); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the namespace controller has it
	}
	return err
}

func empty(ctx context.Context, objects metadata.ResourceInterface) error {
	list, err := objects.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil // its CRD is gone
	}
	if err != nil || len(list.Items) == 0 {
		return err
	}
	now := int64(0)
	background := metav1.DeletePropagationBackground
	if err := objects.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &background}, metav1.ListOptions{}); err != nil {
		return err
	}
	for _, object := range list.Items {
		if len(object.Finalizers) == 0 {
			continue
		}
		_, err := objects.Patch(ctx, object.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
