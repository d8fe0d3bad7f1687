package conditions

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
)

// The condition types, which are the same in every API of this module.
const (
	ready             = "Ready"
	degraded          = "Degraded"
	dependenciesReady = "DependenciesReady"
)

// Transition is a change that is worth an Event.
type Transition struct {
	// EventType is corev1.EventTypeNormal or EventTypeWarning.
	EventType       string
	Reason, Message string
	// OfNamespace: the death of its namespace brings such a change about too, and
	// there no Event can be created.
	OfNamespace bool
}

// Transitions are the changes from old to next that people want to hear of. There
// are none of a namespace that is being deleted: an Event could not be created.
func Transitions(old, next []metav1.Condition) []Transition {
	var all []Transition
	if now, _ := Turned(old, next, dependenciesReady, metav1.ConditionFalse); now != nil {
		all = append(all, Transition{corev1.EventTypeWarning, now.Reason, now.Message, true})
	}
	if now, was := Turned(old, next, dependenciesReady, metav1.ConditionTrue); now != nil && was != nil && was.Status == metav1.ConditionFalse {
		all = append(all, Transition{corev1.EventTypeNormal, now.Reason, "every dependency exists", false})
	}
	if now, _ := Turned(old, next, degraded, metav1.ConditionTrue); now != nil && now.Reason != reasonNamespaceTerminating {
		all = append(all, Transition{corev1.EventTypeWarning, now.Reason, now.Message, true})
	}
	if now, was := Turned(old, next, undecodable.Condition, metav1.ConditionTrue); now != nil && was != nil && was.Status == metav1.ConditionFalse {
		all = append(all, Transition{corev1.EventTypeNormal, now.Reason, "the object can be decoded again and is reconciled", false})
	}
	if now, _ := Turned(old, next, ready, metav1.ConditionTrue); now != nil {
		all = append(all, Transition{corev1.EventTypeNormal, "Ready", now.Message, false})
	}
	return all
}

// Turned returns next's condition of that type, and old's or nil, if it has come to have
// that status, or has it for another reason than before; else nil.
func Turned(old, next []metav1.Condition, conditionType string, status metav1.ConditionStatus) (now, was *metav1.Condition) {
	now, was = meta.FindStatusCondition(next, conditionType), meta.FindStatusCondition(old, conditionType)
	if now == nil || now.Status != status || was != nil && was.Status == status && was.Reason == now.Reason {
		return nil, nil
	}
	return now, was
}
