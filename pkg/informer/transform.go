package informer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// transform joins what is dropped from every object with what one Informer is
// asked to do.
func transform[T cache.Object](c *containment, keepManagedFields bool, f func(T) T) cache.TransformFunc {
	return func(obj any) (any, error) {
		if !keepManagedFields {
			obj, _ = stripManagedFields(obj)
		}
		typed, ok := obj.(T)
		if f == nil || !ok {
			return obj, nil
		}
		out := typed
		func() {
			defer c.handled("transform", typed.GetNamespace(), typed.GetName())
			out = f(typed)
		}()
		return out, nil
	}
}

// stripManagedFields is a cache.TransformFunc. managedFields are commonly half
// of an object's size and no controller here reads them from the cache.
//
// It writes only where there is something to drop. A relist may run an object
// that is already in the store, and being read, through the transform once
// more; writing to it again, even the same value, would be a data race. What
// is no object (a DeletedFinalStateUnknown) passes as it is.
func stripManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok && len(o.GetManagedFields()) > 0 {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
