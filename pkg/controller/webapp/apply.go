package webapp

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

const (
	// fieldManager owns what this controller writes.
	fieldManager = "steadwatch-webapp"
	// replicasManager keeps spec.replicas alive once we no longer own it.
	replicasManager = "steadwatch-replicas"
	// annotationApplied is the hash of the last applied configuration.
	annotationApplied = "platform.tejo.dev/applied-hash"
)

type (
	deployments = child.Kind[*appsv1.Deployment, *appsv1ac.DeploymentApplyConfiguration]
	services    = child.Kind[*corev1.Service, *corev1ac.ServiceApplyConfiguration]
)

// listMapKeys are the keys of the lists that the API server merges by key; any
// other list is one value (listType=atomic).
var listMapKeys = map[string][]string{
	"containers":   {"name"},
	"env":          {"name"},
	"volumes":      {"name"},
	"volumeMounts": {"mountPath"},
}

// listKeys also knows that the ports of a Service are keyed by port, those of a
// container by containerPort.
func listKeys(field string, element map[string]any) []string {
	if field != "ports" {
		return listMapKeys[field]
	}
	if element["containerPort"] != nil {
		return []string{"containerPort", "protocol"}
	}
	return []string{"port", "protocol"}
}

// atomicMaps are the objects that the API server takes as one value
// (mapType=atomic).
var atomicMaps = map[string]bool{"selector": true, "configMapRef": true}

func newDeployments(kube kubernetes.Interface, cached child.Copy[*appsv1.Deployment]) deployments {
	return merged(child.NewKind("Deployment", cached, kube.AppsV1().Deployments))
}

func newServices(kube kubernetes.Interface, cached child.Copy[*corev1.Service]) services {
	return merged(child.NewKind("Service", cached, kube.CoreV1().Services))
}

// merged returns kind with how the API server merges it.
func merged[T child.Object, A child.Configuration[A]](kind child.Kind[T, A]) child.Kind[T, A] {
	kind.Lists, kind.AtomicMaps = listKeys, atomicMaps
	return kind
}

// handOverReplicas makes another manager own the number of replicas if we alone
// do. Server-side apply removes a field that its last owner leaves out, and then
// the default, 1, would take its place.
func (c *Controller) handOverReplicas(app *v1alpha1.WebApp) func(context.Context, *appsv1.Deployment) error {
	return func(ctx context.Context, cached *appsv1.Deployment) error {
		client := c.cfg.Kube.AppsV1().Deployments(app.Namespace)
		// managedFields are not in the cache.
		live, err := client.Get(ctx, app.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the owner of replicas of Deployment %q: %w", app.Name, err)
		}
		if live.UID != cached.UID || live.Spec.Replicas == nil {
			return fmt.Errorf("read the owner of replicas of Deployment %q: it has been replaced: %w", app.Name, controller.ErrStale)
		}
		only, err := onlyOwnerOfReplicas(live.ManagedFields)
		if err != nil || !only {
			return err
		}
		config := appsv1ac.Deployment(app.Name, app.Namespace).WithUID(live.UID).
			WithSpec(appsv1ac.DeploymentSpec().WithReplicas(*live.Spec.Replicas))
		applied, err := client.Apply(ctx, config, metav1.ApplyOptions{FieldManager: replicasManager})
		if apierrors.IsConflict(err) {
			// Somebody has just set another number, and so owns the field.
			return fmt.Errorf("hand over replicas of Deployment %q: %w: %w", app.Name, controller.ErrStale, err)
		}
		if err != nil {
			return fmt.Errorf("hand over replicas of Deployment %q: %w", app.Name, child.StaleIfReplaced(err))
		}
		c.cfg.Writes.WroteObject(ctx, app, deploymentsResource, applied)
		return nil
	}
}

// onlyOwnerOfReplicas says whether our applies own spec.replicas and nobody else
// does.
func onlyOwnerOfReplicas(managers []metav1.ManagedFieldsEntry) (bool, error) {
	ours := false
	for _, m := range managers {
		if m.FieldsV1 == nil {
			continue
		}
		var fields fieldpath.Set
		if err := fields.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
			return false, fmt.Errorf("parse managedFields of %s: %w", m.Manager, err)
		}
		if !fields.Has(fieldpath.MakePathOrDie("spec", "replicas")) {
			continue
		}
		if m.Manager != fieldManager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" {
			return false, nil
		}
		ours = true
	}
	return ours, nil
}
