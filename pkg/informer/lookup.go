package informer

import (
	"cmp"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// Get returns the cached object of that name, which is to be read only; as of a
// generated lister, an error that apierrors.IsNotFound knows if there is none. With
// Config.Namespaces any other namespace is another error: nothing is known about it.
func (i *Informer[T]) Get(namespace, name string) (T, error) {
	var none T
	object, exists, err := i.indexer.GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil {
		return none, err
	}
	if !exists {
		return none, apierrors.NewNotFound(i.resource.GroupResource(), name)
	}
	return object.(T), nil
}

// Has says whether an object is cached.
func (i *Informer[T]) Has(key cache.ObjectName) bool {
	_, err := i.Get(key.Namespace, key.Name)
	return err == nil
}

// Keys returns the keys of all objects that there are, each once: those cached, and
// those that are not because they cannot be decoded.
func (i *Informer[T]) Keys() []cache.ObjectName {
	keys := parseKeys(i.indexer.ListKeys())
	for _, record := range i.allQuarantined() {
		if !i.Has(record.Key) {
			keys = append(keys, record.Key)
		}
	}
	return keys
}

// ByIndex returns the keys of the cached objects for which the function of that name in
// Config.Indexers returned value; none if there is no such index.
func (i *Informer[T]) ByIndex(index, value string) []cache.ObjectName {
	keys, err := i.indexer.IndexKeys(index, value)
	if err != nil {
		return nil
	}
	return parseKeys(keys)
}

// Referring finds the cached objects that refer to another one, by an index of
// "namespace/name".
func (i *Informer[T]) Referring(index string) func(to cache.ObjectName) []cache.ObjectName {
	return func(to cache.ObjectName) []cache.ObjectName { return i.ByIndex(index, to.String()) }
}

// parseKeys returns keys as the cache and its indexes have them as names.
func parseKeys(keys []string) []cache.ObjectName {
	names := make([]cache.ObjectName, 0, len(keys))
	for _, key := range keys {
		if name, err := cache.ParseObjectName(key); err == nil {
			names = append(names, name)
		}
	}
	return slices.Clip(names)
}

// Undecodable is Quarantined in words, for a condition or a log: the first bad field,
// its value and what is wrong with it.
func (i *Informer[T]) Undecodable(key cache.ObjectName) (reason string, bad bool) {
	record, bad := i.Quarantined(key)
	if !bad {
		return "", false
	}
	return record.Reason(), true
}

// Reason is the first bad field, its value and what is wrong with it.
func (q Quarantined) Reason() string {
	if len(q.Fields) == 0 {
		return q.Error
	}
	f := q.Fields[0]
	return fmt.Sprintf("%s is %s: %s", cmp.Or(f.Path, "the object"), f.Value, f.Reason)
}
