package child

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Object is a pointer to an API type.
type Object interface {
	comparable
	runtime.Object
	metav1.Object
}

// Configuration is a generated apply configuration.
type Configuration[A any] interface {
	WithUID(types.UID) A
	WithAnnotations(map[string]string) A
}

// Client is as much of a generated client of one kind as is used here.
type Client[T, A any] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Apply(context.Context, A, metav1.ApplyOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// Kind is one kind of child: where it is read and how it is written. All but
// Undecodable, Lists and AtomicMaps is required.
type Kind[T Object, A Configuration[A]] struct {
	// Name is what people call it, as in "Deployment".
	Name     string
	Resource schema.GroupVersionResource
	// Cached is a lister's Get: an error that apierrors.IsNotFound knows means that
	// there is none.
	Cached func(namespace, name string) (T, error)
	Client func(namespace string) Client[T, A]
	// Undecodable returns the metadata of the object of that name if the rest of it
	// cannot be decoded, so that Cached has none or an older state of it; else nil.
	// Nil: that does not happen.
	Undecodable func(cache.ObjectName) metav1.Object

	// Lists returns by which keys the API server merges the list in that field
	// (listType=map), given an element of it, and nil for a list that is one value
	// (listType=atomic). metadata.ownerReferences is known. Nil: all others are one
	// value.
	Lists func(field string, element map[string]any) (keys []string)
	// AtomicMaps are the objects that the API server takes as one value
	// (mapType=atomic): what others add to them is drift.
	AtomicMaps map[string]bool
}

// Read returns the object of that name from the cache or, if live, from the API
// server; the zero T if there is none. Whose it is remains to be seen.
func (k Kind[T, A]) Read(ctx context.Context, key cache.ObjectName, live bool) (T, error) {
	get := func() (T, error) { return k.Cached(key.Namespace, key.Name) }
	if live {
		get = func() (T, error) { return k.Client(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}) }
	}
	object, err := get()
	if err != nil {
		var none T
		if apierrors.IsNotFound(err) {
			return none, nil
		}
		return none, fmt.Errorf("read %s %q: %w", k.Name, key.Name, err)
	}
	return object, nil
}
