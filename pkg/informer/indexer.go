package informer

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// namespacedView is one read-only cache.Indexer over the indexers of several
// namespaces. It serves generated listers.
//
// A read that spans namespaces is put together from one consistent snapshot
// per namespace, not from one of all.
type namespacedView struct {
	resource   string
	namespaces []string // sorted
	indexers   map[string]cache.Indexer
}

var _ cache.Indexer = &namespacedView{}

func (v *namespacedView) readOnly() error {
	return fmt.Errorf("write to the cache of %s: it is read-only, write to the API server", v.resource)
}

func (v *namespacedView) Add(any) error                    { return v.readOnly() }
func (v *namespacedView) Update(any) error                 { return v.readOnly() }
func (v *namespacedView) Delete(any) error                 { return v.readOnly() }
func (v *namespacedView) Replace([]any, string) error      { return v.readOnly() }
func (v *namespacedView) AddIndexers(cache.Indexers) error { return v.readOnly() }

// Bookmark does nothing: a view has no revision of its own to move.
func (v *namespacedView) Bookmark(string) {}

// Resync does nothing, as everywhere in client-go.
func (v *namespacedView) Resync() error { return nil }

// Get returns the object with obj's key.
func (v *namespacedView) Get(obj any) (any, bool, error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return v.GetByKey(key)
}

// GetByKey asks the indexer of the key's namespace. A namespace that is not
// watched is an error and not "does not exist": nothing is known about it.
func (v *namespacedView) GetByKey(key string) (any, bool, error) {
	namespace, _, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, false, err
	}
	indexer, ok := v.indexers[namespace]
	if !ok {
		return nil, false, fmt.Errorf("get %s %q from the cache: namespace %q is not watched (watched: %s)",
			v.resource, key, namespace, strings.Join(v.namespaces, ", "))
	}
	return indexer.GetByKey(key)
}

func (v *namespacedView) List() []any {
	var all []any
	for _, n := range v.namespaces {
		all = append(all, v.indexers[n].List()...)
	}
	return all
}

func (v *namespacedView) ListKeys() []string {
	var all []string
	for _, n := range v.namespaces {
		all = append(all, v.indexers[n].ListKeys()...)
	}
	return all
}

// LastStoreSyncResourceVersion returns the lowest of the namespaces' revisions,
// the one that all of them have reached, and "" where they cannot be compared.
func (v *namespacedView) LastStoreSyncResourceVersion() string {
	lowest := v.indexers[v.namespaces[0]].LastStoreSyncResourceVersion()
	for _, n := range v.namespaces[1:] {
		rv := v.indexers[n].LastStoreSyncResourceVersion()
		order, err := resourceversion.CompareResourceVersion(rv, lowest)
		if err != nil {
			return ""
		}
		if order < 0 {
			lowest = rv
		}
	}
	return lowest
}

func (v *namespacedView) Index(indexName string, obj any) ([]any, error) {
	return gather(v, func(i cache.Indexer) ([]any, error) { return i.Index(indexName, obj) })
}

func (v *namespacedView) ByIndex(indexName, indexedValue string) ([]any, error) {
	return gather(v, func(i cache.Indexer) ([]any, error) { return i.ByIndex(indexName, indexedValue) })
}

func (v *namespacedView) IndexKeys(indexName, indexedValue string) ([]string, error) {
	return gather(v, func(i cache.Indexer) ([]string, error) { return i.IndexKeys(indexName, indexedValue) })
}

func (v *namespacedView) ListIndexFuncValues(indexName string) []string {
	values, _ := gather(v, func(i cache.Indexer) ([]string, error) { return i.ListIndexFuncValues(indexName), nil })
	slices.Sort(values)
	return slices.Compact(values)
}

func (v *namespacedView) GetIndexers() cache.Indexers {
	return v.indexers[v.namespaces[0]].GetIndexers()
}

func gather[E any](v *namespacedView, read func(cache.Indexer) ([]E, error)) ([]E, error) {
	var all []E
	for _, n := range v.namespaces {
		found, err := read(v.indexers[n])
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}
