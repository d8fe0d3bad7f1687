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
//
// The cache, which has to have synced, decides whether to look at all: a child that it
// does not show to be owner's is left alone without a request, and wakes its owner when
// the cache shows it. Then the API server's word counts. The delete carries the UID and
// the resourceVersion of the object whose owner was read, so that neither another one
// of that name nor one that has been given away meanwhile is hit.
func Withdraw[T Object, A Configuration[A]](ctx context.Context, a *Applier, k Kind[T, A], owner metav1.Object) error {
	var none T
	key := cache.MetaObjectToName(owner)
	cached, err := k.Read(ctx, key, false)
	if err != nil || cached == none || !metav1.IsControlledBy(cached, owner) {
		return err
	}
	for try := 1; ; try++ {
		live, err := k.Read(ctx, key, true)
		if err != nil || live == none || !metav1.IsControlledBy(live, owner) || live.GetDeletionTimestamp() != nil {
			return err
		}
		uid, resourceVersion := live.GetUID(), live.GetResourceVersion()
		err = k.Client(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion}})
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
