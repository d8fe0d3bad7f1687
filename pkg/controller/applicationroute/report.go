package applicationroute

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	networkingv1alpha1ac "github.com/steadwatch/steadwatch/pkg/generated/applyconfiguration/networking/v1alpha1"
)

const (
	// recheckAfter is when a pass that waits for an event looks again all the same.
	recheckAfter = time.Minute
	// unavailableRecheck is the same for what every route may be waiting for.
	unavailableRecheck = 10 * time.Minute
)

// report ends a pass: it writes the status if that has changed, and says when to
// look again. A pass that is about to be repeated reports nothing: what it would
// say is over before anybody has read it.
func (c *Controller) report(ctx context.Context, route *v1alpha1.ApplicationRoute, seen observed) (controller.Result, error) {
	err := seen.err
	if ctx.Err() != nil {
		return controller.Result{}, errors.Join(err, context.Cause(ctx))
	}
	if class := controller.Classify(err); err != nil && (class == controller.ClassStale || class == controller.ClassConflict) {
		return controller.Result{}, err
	}
	status := computeStatus(route, seen, metav1.NewTime(c.cfg.Clock.Now()))
	if statusErr := c.updateStatus(ctx, route, status); statusErr != nil {
		return controller.Result{}, errors.Join(err, fmt.Errorf("write status: %w", statusErr))
	}
	if took, ok := c.convergence.Reached(route, status.Conditions, c.cfg.Clock.Now()); ok && c.cfg.Converged != nil {
		c.cfg.Converged(took)
	}
	switch {
	case conditions.NamespaceTerminating(err):
		// No failure that a retry could mend, and not for long: the route is about
		// to be deleted too, which is an event.
		return controller.Result{After: recheckAfter, Reason: "namespace is being deleted"}, nil
	case err == nil && seen.wait != nil:
		return controller.Result{After: recheckAfter, Reason: seen.wait.Message}, nil
	case err == nil && seen.unavailable != nil:
		return controller.Result{After: unavailableRecheck, Reason: seen.unavailable.Message}, nil
	case err == nil && seen.secretUnchecked != "" && c.secretsKind != nil && c.secretsKind.problem(route.Namespace) == nil:
		// Secrets are listed and this one must not be read: no event tells when it may be.
		return controller.Result{After: unavailableRecheck, Reason: seen.secretUnchecked}, nil
	}
	return controller.Result{}, err
}

// updateStatus writes the status and, once it is written, the Events of what has
// changed: an Event that came first would be repeated while the write fails.
func (c *Controller) updateStatus(ctx context.Context, route *v1alpha1.ApplicationRoute, status *v1alpha1.ApplicationRouteStatus) error {
	if !statusChanged(&route.Status, status) {
		return nil
	}
	config := networkingv1alpha1ac.ApplicationRoute(route.Name, route.Namespace).WithStatus(
		networkingv1alpha1ac.ApplicationRouteStatus().
			WithObservedGeneration(status.ObservedGeneration).
			WithConditions(conditions.Configurations(status.Conditions)...))
	written, err := conditions.ApplyStatus(route, func(resourceVersion string) (*v1alpha1.ApplicationRoute, error) {
		return c.cfg.Networking.NetworkingV1alpha1().ApplicationRoutes(route.Namespace).ApplyStatus(ctx, config.WithResourceVersion(resourceVersion),
			metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	}, func() (*metav1.PartialObjectMetadata, error) {
		return c.cfg.Metadata.Resource(routesResource).Namespace(route.Namespace).Get(ctx, route.Name, metav1.GetOptions{})
	})
	if err != nil || written == nil {
		return err
	}
	c.cfg.Writes.WroteObject(ctx, route, routesResource, written)
	conditions.Tell(ctx, c.cfg.Kube.CoreV1().Namespaces(), c.cfg.Recorder, route, conditions.Transitions(route.Status.Conditions, status.Conditions))
	return nil
}
