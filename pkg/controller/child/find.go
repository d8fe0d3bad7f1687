package child

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// Find returns owner's child of that kind, the zero T if there is none. If live is
// false it is the cache's. When the cache has none the API server is asked, which
// happens once in a child's life: a cache that lags must not lead to a second create,
// nor to a merge into somebody else's object.
//
// Errors are a [NotOwnedError] if the object of that name is not owner's, a
// [WaitError] if it has to go first, and those of the read.
func Find[T Object, A Configuration[A]](ctx context.Context, a *Applier, k Kind[T, A], owner metav1.Object, live bool) (T, error) {
	var none T
	key := cache.MetaObjectToName(owner)
	object, err := k.Read(ctx, key, live)
	if err == nil && object == none && !live {
		object, err = k.Read(ctx, key, true)
	}
	if err != nil || object == none {
		return none, err
	}
	if err := a.Claim(k.Name, owner, object); err != nil {
		return none, err
	}
	return object, nil
}

// Claim returns nil if object, which has the place of owner's child of that kind, may be
// written on its behalf, and else the error of [Find]. It needs metadata alone.
func (a *Applier) Claim(kind string, owner, object metav1.Object) error {
	by := metav1.GetControllerOf(object)
	switch {
	case by == nil:
		return a.notOwned(kind, object, "nobody")
	case by.UID == owner.GetUID():
		if object.GetDeletionTimestamp() != nil {
			return WaitError{"ChildTerminating", fmt.Sprintf("%s %q is being deleted and is made anew when it is gone", kind, object.GetName())}
		}
		return nil
	case IsOf(by, a.Owner) && by.Name == owner.GetName():
		return WaitError{"WaitingForGarbageCollection", fmt.Sprintf("%s %q belongs to an earlier %s of this name (uid %s) and has to go first",
			kind, object.GetName(), a.Owner.Kind, by.UID)}
	}
	return a.notOwned(kind, object, fmt.Sprintf("%s %q", by.Kind, by.Name))
}

// notOwned is marked where it is made, so that what it is joined with may still be
// retried.
func (a *Applier) notOwned(kind string, object metav1.Object, by string) error {
	return controller.Terminal(NotOwnedError{Kind: kind, Name: object.GetName(), Owner: by, For: a.Owner.Kind})
}

// IsOf says whether ref refers to an object of that kind, in any version.
func IsOf(ref *metav1.OwnerReference, kind schema.GroupKind) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == kind.Group && ref.Kind == kind.Kind
}

// NotOwnedError says that the place of a child is taken. No retry helps: it is returned
// as one of class controller.ClassTerminal.
type NotOwnedError struct {
	// Kind and Name are the object's that takes it.
	Kind, Name string
	// Owner is who controls that object, in words.
	Owner string
	// For is the kind of the object whose child's place it is.
	For string
}

func (e NotOwnedError) Error() string {
	return fmt.Sprintf("%s %q is controlled by %s and not by this %s: delete or rename it, or choose another name for the %s",
		e.Kind, e.Name, e.Owner, e.For, e.For)
}

// WaitError says that something has to go first, whose end is an event. Reason is
// one of a condition.
type WaitError struct{ Reason, Message string }

func (e WaitError) Error() string { return e.Message }
