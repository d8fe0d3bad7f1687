package conditions

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// applyTries bounds how often one pass looks again because somebody else was quicker.
const applyTries = 5

// Configurations has every field, zeros too: one that is left out would be given up
// and removed.
func Configurations(conditions []metav1.Condition) []*metav1ac.ConditionApplyConfiguration {
	all := make([]*metav1ac.ConditionApplyConfiguration, 0, len(conditions))
	for _, c := range conditions {
		all = append(all, metav1ac.Condition().
			WithType(c.Type).
			WithStatus(c.Status).
			WithObservedGeneration(c.ObservedGeneration).
			WithLastTransitionTime(c.LastTransitionTime).
			WithReason(c.Reason).
			WithMessage(c.Message))
	}
	return all
}

// ApplyStatus applies a status to object, and to no other of its name: apply is given
// the resourceVersion to apply against. Where somebody else has written in between it
// is looked up by live, which needs no more than metadata, and apply is called again.
// The result is apply's, the zero T without an error if object is gone.
func ApplyStatus[T any](object metav1.Object, apply func(resourceVersion string) (T, error),
	live func() (*metav1.PartialObjectMetadata, error)) (T, error) {
	var none T
	resourceVersion := object.GetResourceVersion()
	for try := 1; ; try++ {
		written, err := apply(resourceVersion)
		switch {
		case err == nil:
			return written, nil
		case apierrors.IsNotFound(err):
			return none, nil
		case !apierrors.IsConflict(err) || try == applyTries:
			return none, err
		}
		now, err := live()
		switch {
		case apierrors.IsNotFound(err):
			return none, nil
		case err != nil:
			return none, err
		case now.UID != object.GetUID():
			return none, nil
		}
		resourceVersion = now.ResourceVersion
	}
}

// Tell records Events; recorder nil: none. A dying namespace takes what is in it along,
// which looks like trouble; before any Event that this may have caused the namespace is
// looked at, since none could be created there. Where that is not permitted Events are
// tried all the same.
func Tell(ctx context.Context, namespaces corev1client.NamespaceInterface, recorder record.EventRecorder, object interface {
	runtime.Object
	metav1.Object
}, news []Transition) {
	if recorder == nil {
		return
	}
	if slices.ContainsFunc(news, func(t Transition) bool { return t.OfNamespace }) {
		namespace, err := namespaces.Get(ctx, object.GetNamespace(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil {
			return
		}
	}
	for _, t := range news {
		recorder.Event(object, t.EventType, t.Reason, t.Message)
	}
}
