package webapp

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
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

func newDeployments(kube kubernetes.Interface, lister appslisters.DeploymentLister) deployments {
	return deployments{
		Name: "Deployment", Resource: deploymentsResource,
		Cached: func(namespace, name string) (*appsv1.Deployment, error) {
			return lister.Deployments(namespace).Get(name)
		},
		Client: func(namespace string) child.Client[*appsv1.Deployment, *appsv1ac.DeploymentApplyConfiguration] {
			return kube.AppsV1().Deployments(namespace)
		},
		Lists: listKeys, AtomicMaps: atomicMaps,
	}
}

func newServices(kube kubernetes.Interface, lister corelisters.ServiceLister) services {
	return services{
		Name: "Service", Resource: servicesResource,
		Cached: func(namespace, name string) (*corev1.Service, error) {
			return lister.Services(namespace).Get(name)
		},
		Client: func(namespace string) child.Client[*corev1.Service, *corev1ac.ServiceApplyConfiguration] {
			return kube.CoreV1().Services(namespace)
		},
		Lists: listKeys, AtomicMaps: atomicMaps,
	}
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
		c.wrote(ctx, app, deploymentsResource, applied)
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

// wrote remembers a write until the cache shows it.
func (c *Controller) wrote(ctx context.Context, app metav1.Object, resource schema.GroupVersionResource, written metav1.Object) {
	klog.FromContext(ctx).V(2).Info("Wrote", "resource", resource.GroupResource().String(), "child", klog.KObj(written),
		"resourceVersion", written.GetResourceVersion())
	c.cfg.Writes.Wrote(nameOf(app), resource, nameOf(written), written.GetUID(), written.GetResourceVersion())
}
