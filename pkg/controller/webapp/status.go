package webapp

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
)

// Reasons of conditions that other code looks at.
const (
	reasonConfigMapMissing     = "ConfigMapMissing"
	reasonDraining             = "Draining"
	reasonNamespaceTerminating = "NamespaceTerminating"
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
	wait *waitError
	// err is what the pass failed with.
	err error
}

// problem is what keeps a WebApp from being Ready.
type problem struct {
	reason, message string
	// lasting: time alone does not mend it.
	lasting bool
}

// maxMessage bounds a server's words in a condition; the API allows 32 KiB.
const maxMessage = 1024

// problemOf sorts an error for people, by types and causes.
func problemOf(err error) *problem {
	if err == nil {
		return nil
	}
	p := &problem{message: err.Error(), lasting: true}
	if len(p.message) > maxMessage {
		// Half a character would be stored as another one, and so be written anew
		// by every pass.
		p.message = strings.ToValidUTF8(p.message[:maxMessage], "") + "…"
	}
	var notOwned notOwnedError
	fields := controller.FieldConflicts(err)
	class := controller.Classify(err)
	switch {
	case namespaceTerminating(err):
		p.reason, p.message = reasonNamespaceTerminating, "the namespace is being deleted: nothing can be created in it"
	case errors.As(err, &notOwned):
		p.reason, p.message = "ChildNotOwned", notOwned.Error()
	case len(fields) > 0:
		p.reason, p.message = "FieldConflict", fmt.Sprintf("%s is owned by field manager %q", fields[0].Field, fields[0].Manager)
	case class == controller.ClassInvalid:
		p.reason = "Invalid"
	case apierrors.IsForbidden(err):
		p.reason = "Forbidden"
	case class == controller.ClassTerminal:
		p.reason = "Terminal"
	default:
		p.reason, p.lasting = string(apierrors.ReasonForError(err)), false
		if p.reason == "" {
			p.reason = "ReconcileError"
		}
	}
	return p
}

func namespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// rolloutProblem is what the Deployment's own conditions complain about.
func rolloutProblem(d *appsv1.Deployment) *problem {
	if d == nil || d.Status.ObservedGeneration < d.Generation {
		return nil // of an older spec
	}
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			return &problem{"ReplicaFailure", c.Message, true}
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded":
			return &problem{"ProgressDeadlineExceeded", c.Message, true}
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

// conditions computes all four, without times, and Decodable where there is one.
// Their order is fixed.
func conditions(app *v1alpha1.WebApp, seen observed) []metav1.Condition {
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

	trouble := problemOf(seen.err)
	if trouble == nil {
		trouble = rolloutProblem(seen.deployment)
	}
	if trouble != nil && trouble.lasting {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, trouble.reason, trouble.message
	}

	complete, message := rollout(seen.deployment)
	say := func(c *metav1.Condition, status metav1.ConditionStatus, reason, message string) {
		c.Status, c.Reason, c.Message = status, reason, message
	}
	switch {
	case seen.draining:
		say(&progressing, metav1.ConditionTrue, reasonDraining, "waiting for the pods to end")
	case trouble != nil && trouble.lasting:
		say(&progressing, metav1.ConditionFalse, trouble.reason, trouble.message)
	case trouble != nil:
		say(&progressing, metav1.ConditionTrue, trouble.reason, trouble.message)
	case seen.wait != nil:
		say(&progressing, metav1.ConditionTrue, seen.wait.reason, seen.wait.message)
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
		say(&ready, metav1.ConditionFalse, trouble.reason, trouble.message)
	case seen.configMissing:
		say(&ready, metav1.ConditionFalse, deps.Reason, deps.Message)
	case seen.wait != nil || !complete:
		say(&ready, metav1.ConditionFalse, progressing.Reason, progressing.Message)
	default:
		say(&ready, metav1.ConditionTrue, "Available", message)
	}
	all := []metav1.Condition{ready, progressing, degraded, deps}
	if meta.FindStatusCondition(app.Status.Conditions, undecodable.Condition) != nil {
		// It was False once; here it has been decoded.
		all = append(all, metav1.Condition{Type: undecodable.Condition, Status: metav1.ConditionTrue, Reason: undecodable.ReasonDecoded})
	}
	return all
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
	for _, c := range conditions(app, seen) {
		c.ObservedGeneration, c.LastTransitionTime = app.Generation, now
		if old := meta.FindStatusCondition(app.Status.Conditions, c.Type); old != nil {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			if seen.err != nil && old.Status == c.Status && old.Reason == c.Reason &&
				old.ObservedGeneration == c.ObservedGeneration && alike(old.Message, c.Message) {
				c.Message = old.Message
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	return status
}

// volatileWord matches words with a digit: ports, addresses, ids, times, counts.
var volatileWord = regexp.MustCompile(`[\w.:-]*\d[\w.:-]*`)

// alike says whether two messages differ in nothing but such words.
func alike(a, b string) bool {
	return volatileWord.ReplaceAllLiteralString(a, "0") == volatileWord.ReplaceAllLiteralString(b, "0")
}

// statusChanged says whether there is anything to write. Conditions of others in
// current do not count.
func statusChanged(current, next *v1alpha1.WebAppStatus) bool {
	if current.ObservedGeneration != next.ObservedGeneration || current.Replicas != next.Replicas ||
		current.ReadyReplicas != next.ReadyReplicas || current.UpdatedReplicas != next.UpdatedReplicas ||
		current.Selector != next.Selector {
		return true
	}
	return slices.ContainsFunc(next.Conditions, func(c metav1.Condition) bool {
		old := meta.FindStatusCondition(current.Conditions, c.Type)
		return old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message ||
			old.ObservedGeneration != c.ObservedGeneration
	})
}

// transition is a change that is worth an Event.
type transition struct{ eventType, reason, message string }

// transitions are the changes from old to next that people want to hear of. There
// are none of a namespace that is being deleted: an Event could not be created.
func transitions(old, next []metav1.Condition) []transition {
	var all []transition
	// changed returns next's condition if it has come to have that status.
	changed := func(conditionType string, status metav1.ConditionStatus) (now, was *metav1.Condition) {
		now, was = meta.FindStatusCondition(next, conditionType), meta.FindStatusCondition(old, conditionType)
		if now == nil || now.Status != status || was != nil && was.Status == status && was.Reason == now.Reason {
			return nil, nil
		}
		return now, was
	}
	if now, _ := changed(v1alpha1.ConditionDependenciesReady, metav1.ConditionFalse); now != nil {
		all = append(all, transition{corev1.EventTypeWarning, now.Reason, now.Message})
	}
	if now, was := changed(v1alpha1.ConditionDependenciesReady, metav1.ConditionTrue); now != nil && was != nil && was.Status == metav1.ConditionFalse {
		all = append(all, transition{corev1.EventTypeNormal, now.Reason, "every dependency exists"})
	}
	if now, _ := changed(v1alpha1.ConditionDegraded, metav1.ConditionTrue); now != nil && now.Reason != reasonNamespaceTerminating {
		all = append(all, transition{corev1.EventTypeWarning, now.Reason, now.Message})
	}
	if now, was := changed(undecodable.Condition, metav1.ConditionTrue); now != nil && was != nil && was.Status == metav1.ConditionFalse {
		all = append(all, transition{corev1.EventTypeNormal, now.Reason, "the object can be decoded again and is reconciled"})
	}
	if now, _ := changed(v1alpha1.ConditionReady, metav1.ConditionTrue); now != nil {
		all = append(all, transition{corev1.EventTypeNormal, "Ready", now.Message})
	}
	if now, _ := changed(v1alpha1.ConditionProgressing, metav1.ConditionTrue); now != nil && now.Reason == reasonDraining {
		all = append(all, transition{corev1.EventTypeNormal, now.Reason, now.Message})
	}
	return all
}
