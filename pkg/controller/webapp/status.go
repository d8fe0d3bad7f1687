package webapp

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
)

// Reasons of conditions that other code looks at.
const (
	reasonConfigMapMissing = "ConfigMapMissing"
	reasonDraining         = "Draining"
)

// observed is what a pass has found out, all that a status is computed from.
type observed struct {
	// deployment is ours, as last read or written; nil if there is none.
	deployment *appsv1.Deployment
	// configMissing: spec.configRef names a ConfigMap that does not exist.
	configMissing bool
	// draining: the WebApp is being deleted.
	draining bool
	// wait is set if something has to go before the pass can do its work.
	wait *child.WaitError
	// err is what the pass failed with.
	err error
}

// rolloutProblem is what the Deployment's own conditions complain about.
func rolloutProblem(d *appsv1.Deployment) *conditions.Problem {
	if d == nil || d.Status.ObservedGeneration < d.Generation {
		return nil // of an older spec
	}
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			return &conditions.Problem{Reason: "ReplicaFailure", Message: c.Message, Lasting: true}
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded":
			return &conditions.Problem{Reason: "ProgressDeadlineExceeded", Message: c.Message, Lasting: true}
		}
	}
	return nil
}

// rollout says whether every pod is new and available, and how far it is.
func rollout(d *appsv1.Deployment) (complete bool, message string) {
	if d == nil {
		return false, "the Deployment has not been created yet"
	}
	want, s := int32(1), d.Status
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	if s.ObservedGeneration < d.Generation {
		return false, "the Deployment's latest spec has not been taken up yet"
	}
	complete = s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas >= want
	if complete {
		return true, fmt.Sprintf("%d of %d pods are available", s.AvailableReplicas, want)
	}
	return false, fmt.Sprintf("%d of %d pods are up to date, %d available, %d of an older template",
		s.UpdatedReplicas, want, s.AvailableReplicas, max(0, s.Replicas-s.UpdatedReplicas))
}

// computeConditions computes all four, without times and generations. Their order is
// fixed.
func computeConditions(app *v1alpha1.WebApp, seen observed) []metav1.Condition {
	var (
		ready       = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
		progressing = metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse}
		degraded    = metav1.Condition{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: "AsExpected"}
		deps        = metav1.Condition{Type: v1alpha1.ConditionDependenciesReady, Status: metav1.ConditionTrue}
	)
	switch {
	case app.Spec.ConfigRef == "":
		deps.Reason = "NoDependencies"
	case seen.configMissing:
		deps.Status, deps.Reason = metav1.ConditionFalse, reasonConfigMapMissing
		deps.Message = fmt.Sprintf("ConfigMap %q does not exist in namespace %q", app.Spec.ConfigRef, app.Namespace)
	default:
		deps.Reason = "DependenciesFound"
	}

	trouble := conditions.ProblemOf(seen.err)
	if trouble == nil {
		trouble = rolloutProblem(seen.deployment)
	}
	if trouble != nil && trouble.Lasting {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, trouble.Reason, trouble.Message
	}

	complete, message := rollout(seen.deployment)
	say := func(c *metav1.Condition, status metav1.ConditionStatus, reason, message string) {
		c.Status, c.Reason, c.Message = status, reason, message
	}
	switch {
	case seen.draining:
		say(&progressing, metav1.ConditionTrue, reasonDraining, "waiting for the pods to end")
	case trouble != nil && trouble.Lasting:
		say(&progressing, metav1.ConditionFalse, trouble.Reason, trouble.Message)
	case trouble != nil:
		say(&progressing, metav1.ConditionTrue, trouble.Reason, trouble.Message)
	case seen.wait != nil:
		say(&progressing, metav1.ConditionTrue, seen.wait.Reason, seen.wait.Message)
	case seen.configMissing && seen.deployment == nil:
		say(&progressing, metav1.ConditionFalse, deps.Reason, deps.Message)
	case !complete:
		say(&progressing, metav1.ConditionTrue, "RollingOut", message)
	default:
		say(&progressing, metav1.ConditionFalse, "RolledOut", message)
	}

	switch {
	case seen.draining:
		say(&ready, metav1.ConditionFalse, reasonDraining, "the WebApp is being deleted")
	case trouble != nil:
		say(&ready, metav1.ConditionFalse, trouble.Reason, trouble.Message)
	case seen.configMissing:
		say(&ready, metav1.ConditionFalse, deps.Reason, deps.Message)
	case seen.wait != nil || !complete:
		say(&ready, metav1.ConditionFalse, progressing.Reason, progressing.Message)
	default:
		say(&ready, metav1.ConditionTrue, "Available", message)
	}
	return []metav1.Condition{ready, progressing, degraded, deps}
}

// computeStatus is the whole status that seen amounts to. Conditions that are not
// ours are not in it.
func computeStatus(app *v1alpha1.WebApp, seen observed, now metav1.Time) *v1alpha1.WebAppStatus {
	status := &v1alpha1.WebAppStatus{
		ObservedGeneration: app.Generation,
		Selector:           selectorString(app),
	}
	switch {
	case seen.deployment != nil:
		s := seen.deployment.Status
		status.Replicas, status.ReadyReplicas, status.UpdatedReplicas = s.Replicas, s.ReadyReplicas, s.UpdatedReplicas
	case seen.err != nil: // nothing new is known
		s := app.Status
		status.Replicas, status.ReadyReplicas, status.UpdatedReplicas = s.Replicas, s.ReadyReplicas, s.UpdatedReplicas
	}
	status.Conditions = conditions.Carry(app.Status.Conditions, computeConditions(app, seen), app.Generation, seen.err != nil, now)
	return status
}

// statusChanged says whether there is anything to write. Conditions of others in
// current do not count.
func statusChanged(current, next *v1alpha1.WebAppStatus) bool {
	return current.ObservedGeneration != next.ObservedGeneration || current.Replicas != next.Replicas ||
		current.ReadyReplicas != next.ReadyReplicas || current.UpdatedReplicas != next.UpdatedReplicas ||
		current.Selector != next.Selector || conditions.Changed(current.Conditions, next.Conditions)
}

// transitions are the changes from old to next that are worth an Event.
func transitions(old, next []metav1.Condition) []conditions.Transition {
	all := conditions.Transitions(old, next)
	if now, _ := conditions.Turned(old, next, v1alpha1.ConditionProgressing, metav1.ConditionTrue); now != nil && now.Reason == reasonDraining {
		all = append(all, conditions.Transition{EventType: corev1.EventTypeNormal, Reason: now.Reason, Message: now.Message, OfNamespace: true})
	}
	return all
}
