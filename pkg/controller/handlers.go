package controller

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Queue is what event handlers enqueue to: a Controller.
type Queue interface {
	Enqueue(lane Lane, keys ...cache.ObjectName)
	// Protect calls f, contains a panic in it and makes up for it by a pass over key.
	Protect(origin string, key cache.ObjectName, f func()) bool
}

// Protected returns h so that it loses no event to a panic: the object's own name,
// which for a child is its owner's, is enqueued all the same. All three functions of h
// are required.
func Protected[T cache.Object](q Queue, origin string, h cache.TypedResourceEventHandlerDetailedFuncs[T]) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc:    func(o T, initial bool) { q.Protect(origin, nameOf(o), func() { h.AddFunc(o, initial) }) },
		UpdateFunc: func(old, o T) { q.Protect(origin, nameOf(o), func() { h.UpdateFunc(old, o) }) },
		DeleteFunc: func(o cache.DeletedObject[T]) { q.Protect(origin, o.GetObjectName(), func() { h.DeleteFunc(o) }) },
	}
}

// AddHandlers registers h with an informer, Protected. The local copy may be relied on
// once what it returns is done. origin is a constant text such as "WebApps by ConfigMap".
func AddHandlers[T cache.Object](q Queue, to interface {
	AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[T]) (cache.ResourceEventHandlerRegistration, error)
}, origin string, h cache.TypedResourceEventHandlerDetailedFuncs[T]) (cache.DoneChecker, error) {
	registration, err := to.AddHandler(Protected(q, origin, h))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	return registration.HasSyncedChecker(), nil
}

// object is a pointer to an API type.
type object interface {
	cache.Object
	metav1.Object
}

// ObjectHandlers enqueue the objects themselves: Urgent if somebody waits for what comes
// of it, which is a new one and what SpecLane says.
func ObjectHandlers[T object](enqueue func(Lane, ...cache.ObjectName)) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc: func(o T, initial bool) {
			if initial {
				enqueue(Background, nameOf(o))
				return
			}
			enqueue(Urgent, nameOf(o))
		},
		UpdateFunc: func(old, o T) { enqueue(SpecLane(old, o), nameOf(o)) },
		DeleteFunc: func(o cache.DeletedObject[T]) { enqueue(Normal, o.GetObjectName()) },
	}
}

// ReferenceHandlers enqueue the users of an object, which refer to it by name. changed
// says whether they have to hear of an update; nil: of every one.
func ReferenceHandlers[T object](enqueue func(Lane, ...cache.ObjectName), users func(cache.ObjectName) []cache.ObjectName,
	changed func(old, o T) bool) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc: func(o T, initial bool) { enqueue(AddedLane(initial), users(nameOf(o))...) },
		UpdateFunc: func(old, o T) {
			if changed == nil || changed(old, o) {
				enqueue(ChangedLane(old, o), users(nameOf(o))...)
			}
		},
		DeleteFunc: func(o cache.DeletedObject[T]) { enqueue(Normal, users(o.GetObjectName())...) },
	}
}

func nameOf[T cache.Object](o T) cache.ObjectName {
	return cache.NewObjectName(o.GetNamespace(), o.GetName())
}

// AddedLane is for what depends on an object that has been added: Background for one
// that was there before.
func AddedLane(initial bool) Lane {
	if initial {
		return Background
	}
	return Normal
}

// ChangedLane is for what depends on an object that has been updated: Background for
// what a relist reports without a change.
func ChangedLane(old, object metav1.Object) Lane {
	if old.GetResourceVersion() == object.GetResourceVersion() {
		return Background
	}
	return Normal
}

// SpecLane is for an object that has been updated itself: Urgent if somebody waits for
// what comes of it, a change of its spec or its deletion.
func SpecLane(old, object metav1.Object) Lane {
	if old.GetUID() != object.GetUID() || old.GetGeneration() != object.GetGeneration() ||
		(old.GetDeletionTimestamp() == nil) != (object.GetDeletionTimestamp() == nil) {
		return Urgent
	}
	return ChangedLane(old, object)
}
