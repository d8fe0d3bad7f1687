package child

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// Owners says whom an event of a child concerns.
type Owners struct {
	// Kind of the owners.
	Kind schema.GroupKind
	// Exists says whether there is one of that name, as far as the cache knows.
	Exists func(cache.ObjectName) bool
}

// Of returns the owners of children, and those whose child's place one of them takes,
// each once. There are two at most for each child.
func (o Owners) Of(children ...metav1.Object) []cache.ObjectName {
	var keys []cache.ObjectName
	add := func(more ...cache.ObjectName) {
		for _, key := range more {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	for _, child := range children {
		owner := metav1.GetControllerOf(child)
		if owner != nil && IsOf(owner, o.Kind) {
			add(cache.NewObjectName(child.GetNamespace(), owner.Name))
		}
		if owner == nil || !IsOf(owner, o.Kind) || owner.Name != child.GetName() {
			add(o.named(cache.MetaObjectToName(child))...)
		}
	}
	return keys
}

// named returns key if there is an owner of that name.
func (o Owners) named(key cache.ObjectName) []cache.ObjectName {
	if !o.Exists(key) {
		return nil
	}
	return []cache.ObjectName{key}
}

// Handlers enqueue the owners of a child that an event is about.
func Handlers[T Object](owners Owners, enqueue func(controller.Lane, ...cache.ObjectName)) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	var none T
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc: func(child T, initial bool) { enqueue(controller.AddedLane(initial), owners.Of(child)...) },
		UpdateFunc: func(old, child T) {
			// The old owner has lost a child, the new one has got one.
			enqueue(controller.ChangedLane(old, child), owners.Of(old, child)...)
		},
		DeleteFunc: func(child cache.DeletedObject[T]) {
			if child.OptionalObj == none {
				enqueue(controller.Normal, owners.named(child.GetObjectName())...)
				return
			}
			enqueue(controller.Normal, owners.Of(child.OptionalObj)...)
		},
	}
}
