package webapp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
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
	if took, ok := c.convergence.reached(app, status, c.cfg.Clock.Now()); ok && c.cfg.Converged != nil {
		c.cfg.Converged(took)
	}
	switch {
	case namespaceTerminating(err):
		// No failure that a retry could mend, and not for long: the WebApp is
		// about to be deleted too, which is an event.
		return controller.Result{After: recheckAfter, Reason: "namespace is being deleted"}, nil
	case errors.As(err, new(notOwnedError)):
		return controller.Result{}, controller.Terminal(err)
	case err == nil && seen.wait != nil:
		return controller.Result{After: recheckAfter, Reason: seen.wait.message}, nil
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
	c.wrote(ctx, app, webAppsResource, written)
	c.tell(ctx, app, transitions(app.Status.Conditions, status.Conditions))
	return nil
}

// applyStatus returns nil if app is gone. The API server ignores metadata.uid when
// a status is applied; the resourceVersion that stands in for it, lest the status
// of one WebApp lands on the next of its name, is looked up again when somebody
// else has written in between.
func (c *Controller) applyStatus(ctx context.Context, app *v1alpha1.WebApp, status *v1alpha1.WebAppStatus) (*v1alpha1.WebApp, error) {
	config := platformv1alpha1ac.WebApp(app.Name, app.Namespace).
		WithResourceVersion(app.ResourceVersion).
		WithStatus(statusConfiguration(status))
	for try := 1; ; try++ {
		written, err := c.cfg.Platform.PlatformV1alpha1().WebApps(app.Namespace).
			ApplyStatus(ctx, config, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		switch {
		case err == nil:
			return written, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err) || try == patchTries:
			return nil, err
		}
		live, err := c.cfg.Metadata.Resource(webAppsResource).Namespace(app.Namespace).Get(ctx, app.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		case live.UID != app.UID:
			return nil, nil
		}
		config.WithResourceVersion(live.ResourceVersion)
	}
}

// statusConfiguration has every field, zeros too: one that is left out would be
// given up and removed.
func statusConfiguration(status *v1alpha1.WebAppStatus) *platformv1alpha1ac.WebAppStatusApplyConfiguration {
	config := platformv1alpha1ac.WebAppStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithReplicas(status.Replicas).
		WithReadyReplicas(status.ReadyReplicas).
		WithUpdatedReplicas(status.UpdatedReplicas).
		WithSelector(status.Selector)
	for _, c := range status.Conditions {
		config.WithConditions(metav1ac.Condition().
			WithType(c.Type).
			WithStatus(c.Status).
			WithObservedGeneration(c.ObservedGeneration).
			WithLastTransitionTime(c.LastTransitionTime).
			WithReason(c.Reason).
			WithMessage(c.Message))
	}
	return config
}

// tell records Events. A dying namespace takes its WebApps' ConfigMaps and pods
// along, which looks like trouble; before any Event that this may have caused the
// namespace is looked at, since none could be created there. Where that is not
// permitted Events are tried all the same.
func (c *Controller) tell(ctx context.Context, app *v1alpha1.WebApp, news []transition) {
	if c.cfg.Recorder == nil {
		return
	}
	if slices.ContainsFunc(news, func(n transition) bool { return n.eventType == corev1.EventTypeWarning || n.reason == reasonDraining }) {
		namespace, err := c.cfg.Kube.CoreV1().Namespaces().Get(ctx, app.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil {
			return
		}
	}
	for _, n := range news {
		c.cfg.Recorder.Event(app, n.eventType, n.reason, n.message)
	}
}
