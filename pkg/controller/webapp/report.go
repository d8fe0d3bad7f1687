package webapp

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	platformv1alpha1ac "github.com/steadwatch/steadwatch/pkg/generated/applyconfiguration/platform/v1alpha1"
)

// recheckAfter is when a pass that waits for an event looks again all the same.
const recheckAfter = time.Minute

// report ends a pass: it writes the status if that has changed, and says when to
// look again. A pass that is about to be repeated reports nothing: what it would
// say is over before anybody has read it.
func (c *Controller) report(ctx context.Context, app *v1alpha1.WebApp, seen observed) (controller.Result, error) {
	err := seen.err
	if ctx.Err() != nil {
		return controller.Result{}, errors.Join(err, context.Cause(ctx))
	}
	if class := controller.Classify(err); err != nil && (class == controller.ClassStale || class == controller.ClassConflict) {
		return controller.Result{}, err
	}
	status := computeStatus(app, seen, metav1.NewTime(c.cfg.Clock.Now()))
	if statusErr := c.updateStatus(ctx, app, status); statusErr != nil {
		return controller.Result{}, errors.Join(err, fmt.Errorf("write status: %w", statusErr))
	}
	if took, ok := c.convergence.Reached(app, status.Conditions, c.cfg.Clock.Now()); ok && c.cfg.Converged != nil {
		c.cfg.Converged(took)
	}
	switch {
	case conditions.NamespaceTerminating(err):
		// No failure that a retry could mend, and not for long: the WebApp is
		// about to be deleted too, which is an event.
		return controller.Result{After: recheckAfter, Reason: "namespace is being deleted"}, nil
	case err == nil && seen.wait != nil:
		return controller.Result{After: recheckAfter, Reason: seen.wait.Message}, nil
	}
	return controller.Result{}, err
}

// updateStatus writes the status and, once it is written, the Events of what has
// changed: an Event that came first would be repeated while the write fails.
func (c *Controller) updateStatus(ctx context.Context, app *v1alpha1.WebApp, status *v1alpha1.WebAppStatus) error {
	if !statusChanged(&app.Status, status) {
		return nil
	}
	written, err := c.applyStatus(ctx, app, status)
	if err != nil || written == nil {
		return err
	}
	c.cfg.Writes.WroteObject(ctx, app, webAppsResource, written)
	conditions.Tell(ctx, c.cfg.Kube.CoreV1().Namespaces(), c.cfg.Recorder, app, transitions(app.Status.Conditions, status.Conditions))
	return nil
}

// applyStatus returns nil if app is gone.
func (c *Controller) applyStatus(ctx context.Context, app *v1alpha1.WebApp, status *v1alpha1.WebAppStatus) (*v1alpha1.WebApp, error) {
	config := platformv1alpha1ac.WebApp(app.Name, app.Namespace).WithStatus(statusConfiguration(status))
	return conditions.ApplyStatus(app, func(resourceVersion string) (*v1alpha1.WebApp, error) {
		return c.cfg.Platform.PlatformV1alpha1().WebApps(app.Namespace).ApplyStatus(ctx, config.WithResourceVersion(resourceVersion),
			metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	}, func() (*metav1.PartialObjectMetadata, error) {
		return c.cfg.Metadata.Resource(webAppsResource).Namespace(app.Namespace).Get(ctx, app.Name, metav1.GetOptions{})
	})
}

// statusConfiguration has every field, zeros too: one that is left out would be
// given up and removed.
func statusConfiguration(status *v1alpha1.WebAppStatus) *platformv1alpha1ac.WebAppStatusApplyConfiguration {
	return platformv1alpha1ac.WebAppStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithReplicas(status.Replicas).
		WithReadyReplicas(status.ReadyReplicas).
		WithUpdatedReplicas(status.UpdatedReplicas).
		WithSelector(status.Selector).
		WithConditions(conditions.Configurations(status.Conditions)...)
}
