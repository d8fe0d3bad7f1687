package controller

import (
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
	name := func(o T) cache.ObjectName { return cache.NewObjectName(o.GetNamespace(), o.GetName()) }
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc:    func(o T, initial bool) { q.Protect(origin, name(o), func() { h.AddFunc(o, initial) }) },
		UpdateFunc: func(old, o T) { q.Protect(origin, name(o), func() { h.UpdateFunc(old, o) }) },
		DeleteFunc: func(o cache.DeletedObject[T]) { q.Protect(origin, o.GetObjectName(), func() { h.DeleteFunc(o) }) },
	}
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

// CachedKeys returns the keys of all objects in indexer.
func CachedKeys(indexer cache.Indexer) []cache.ObjectName {
	return ParseKeys(indexer.ListKeys())
}

// ParseKeys returns keys as the cache and its indexes have them as names.
func ParseKeys(keys []string) []cache.ObjectName {
	names := make([]cache.ObjectName, 0, len(keys))
	for _, key := range keys {
		if name, err := cache.ParseObjectName(key); err == nil {
			names = append(names, name)
		}
	}
	return names
}
