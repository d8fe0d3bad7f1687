package child

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// Copy is a local copy of a kind of child: an informer.Informer.
type Copy[T any] interface {
	Resource() schema.GroupVersionResource
	Get(namespace, name string) (T, error)
}

// NewKind makes a Kind that is read from copy and written by client, a generated client's
// getter such as kube.AppsV1().Deployments. What is optional is left to be set.
func NewKind[T Object, A Configuration[A], C Client[T, A]](name string, copy Copy[T], client func(namespace string) C) Kind[T, A] {
	return Kind[T, A]{
		Name:     name,
		Resource: copy.Resource(),
		Cached:   copy.Get,
		Client:   func(namespace string) Client[T, A] { return client(namespace) },
	}
}

// OwnerReference says in a child's configuration that owner, of that kind, is its
// controller. A deletion of owner in the foreground waits for the child.
func OwnerReference(owner metav1.Object, kind schema.GroupVersionKind) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(kind.GroupVersion().String()).
		WithKind(kind.Kind).
		WithName(owner.GetName()).
		WithUID(owner.GetUID()).
		WithController(true).
		WithBlockOwnerDeletion(true)
}
