package child

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// withdrawTries bounds how often one call looks again because somebody else has
// written in between, as the controllers that report in a child's status do.
const withdrawTries = 5

// Withdraw deletes owner's child of that kind. It returns nil if the API server has
// accepted that, and if there is nothing to delete: no such object, one that is not
// owner's, or one that is being deleted already. That the child has gone is an event.
// It needs no more of the child than its metadata, so that one that cannot be decoded
// goes too.
//
// The cache, which has to have synced, decides whether to look at all: a child that it
// does not show to be owner's is left alone without a request, and wakes its owner when
// the cache shows it. Then the API server's word counts. The delete carries the UID and
// the resourceVersion of the object whose owner was read, so that neither another one
// of that name nor one that has been given away meanwhile is hit.
func Withdraw[T Object, A Configuration[A]](ctx context.Context, a *Applier, k Kind[T, A], owner metav1.Object) error {
	key := cache.MetaObjectToName(owner)
	known, err := k.metadata(ctx, key)
	if err != nil || known == nil || !metav1.IsControlledBy(known, owner) {
		return err
	}
	for try := 1; ; try++ {
		live, err := a.Metadata(ctx, k.Resource, key)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("read %s %q: %w", k.Name, key.Name, err)
		case !metav1.IsControlledBy(live, owner) || live.DeletionTimestamp != nil:
			return nil
		}
		err = k.Client(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}})
		switch {
		case err == nil:
			a.Deleted(ctx, owner, k.Resource, live)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == withdrawTries:
			return fmt.Errorf("delete %s %q: %w", k.Name, key.Name, err)
		}
	}
}

// metadata returns what is known here of the object of that name, nil if it is not known.
func (k Kind[T, A]) metadata(ctx context.Context, key cache.ObjectName) (metav1.Object, error) {
	if k.Undecodable != nil {
		if object := k.Undecodable(key); object != nil {
			return object, nil
		}
	}
	var none T
	cached, err := k.Read(ctx, key, false)
	if err != nil || cached == none {
		return nil, err
	}
	return cached, nil
}
