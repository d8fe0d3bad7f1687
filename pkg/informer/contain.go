package informer

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// maxIndexFailures bounds the keys remembered per index, maxShown those in
	// a Snapshot.
	maxIndexFailures = 1000
	maxShown         = 20
	// complainAfter is the least time between two log lines about the same
	// index, or about handlers: a relist calls them for every object.
	complainAfter = 10 * time.Second
)

// IndexFailure says that an index function has panicked or returned an error.
// Objects it failed for are not found by that index.
type IndexFailure struct {
	Index string `json:"index"`
	// Calls that failed so far. One change of an object takes up to two.
	Calls uint64 `json:"calls"`
	// Objects in the local copy that are missing from the index, counted up to
	// 1000, and the keys of the first 20.
	Objects int      `json:"objects"`
	Keys    []string `json:"keys,omitempty"`
	// Error is the last one.
	Error string `json:"error"`
}

// containment keeps panics (and index errors) in registered functions from
// ending the process: client-go's crash handler ends it for a handler, and its
// store panics when an index function returns an error.
type containment struct {
	resource string

	mu            sync.Mutex
	logger        klog.Logger
	indexes       map[string]*indexFailures
	handlerPanics uint64
	complainedAt  time.Time // about handlers
}

type indexFailures struct {
	calls        uint64
	keys         map[string]struct{}
	err          string
	complainedAt time.Time
}

func newContainment(resource string) *containment {
	return &containment{resource: resource, logger: klog.Background(), indexes: map[string]*indexFailures{}}
}

// indexFunc wraps f so that for an object it cannot handle it has no values.
func indexFunc[T cache.Object](c *containment, name string, f cache.TypedIndexFunc[T]) cache.IndexFunc {
	return func(obj any) (values []string, err error) {
		defer func() {
			var stack []byte
			if p := recover(); p != nil {
				err, stack = fmt.Errorf("panic: %v", p), debug.Stack()
			}
			if c.indexed(name, obj, err, stack); err != nil {
				values, err = nil, nil
			}
		}()
		return f(obj.(T))
	}
}

// indexed notes how an index function fared. It is called under the store's
// lock and takes c.mu: nothing may call into a store while holding c.mu.
func (c *containment) indexed(index string, obj any, err error, stack []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failures := c.indexes[index]
	if err == nil && (failures == nil || len(failures.keys) == 0) {
		return
	}
	key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err == nil {
		delete(failures.keys, key)
		return
	}
	if failures == nil {
		failures = &indexFailures{keys: map[string]struct{}{}}
		c.indexes[index] = failures
	}
	failures.calls++
	failures.err = cut(err.Error())
	if len(failures.keys) < maxIndexFailures {
		failures.keys[key] = struct{}{}
	}
	if now := time.Now(); now.Sub(failures.complainedAt) >= complainAfter {
		failures.complainedAt = now
		c.logger.Error(nil, "Index function failed, the object is missing from the index", "resource", c.resource,
			"index", index, "object", key, "err", failures.err, "calls", failures.calls, "stack", string(stack))
	}
}

// indexFailures describes what failed; exists says whether a key is (still) in
// the local copy. A deleted object cannot tell on its way out.
func (c *containment) indexFailures(exists func(key string) bool) []IndexFailure {
	c.mu.Lock()
	suspects := map[string]bool{}
	for _, failures := range c.indexes {
		for key := range failures.keys {
			suspects[key] = false
		}
	}
	c.mu.Unlock()
	for key := range suspects {
		suspects[key] = exists(key)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	var all []IndexFailure
	for index, failures := range c.indexes {
		f := IndexFailure{Index: index, Calls: failures.calls, Error: failures.err}
		for key := range failures.keys {
			if here, asked := suspects[key]; asked && !here {
				delete(failures.keys, key)
				continue
			}
			f.Keys = append(f.Keys, key)
		}
		slices.Sort(f.Keys)
		f.Objects = len(f.Keys)
		f.Keys = f.Keys[:min(len(f.Keys), maxShown)]
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b IndexFailure) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// handler wraps h so that a panic in it loses that one event and no more.
func handler[T cache.Object](c *containment, h cache.TypedResourceEventHandlerDetailedFuncs[T]) cache.TypedResourceEventHandler[T] {
	wrapped := h
	if h.AddFunc != nil {
		wrapped.AddFunc = func(obj T, isInInitialList bool) {
			defer c.handled("add", obj.GetNamespace(), obj.GetName())
			h.AddFunc(obj, isInInitialList)
		}
	}
	if h.UpdateFunc != nil {
		wrapped.UpdateFunc = func(oldObj, newObj T) {
			defer c.handled("update", newObj.GetNamespace(), newObj.GetName())
			h.UpdateFunc(oldObj, newObj)
		}
	}
	if h.DeleteFunc != nil {
		wrapped.DeleteFunc = func(obj cache.DeletedObject[T]) {
			defer c.handled("delete", obj.GetNamespace(), obj.GetName())
			h.DeleteFunc(obj)
		}
	}
	return wrapped
}

// handled is deferred around a handler and swallows its panic.
func (c *containment) handled(event, namespace, name string) {
	p := recover()
	if p == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlerPanics++
	if now := time.Now(); now.Sub(c.complainedAt) >= complainAfter {
		c.complainedAt = now
		c.logger.Error(nil, "Event handler panicked, the event is lost to it", "resource", c.resource, "event", event,
			"object", klog.KRef(namespace, name), "panic", cut(fmt.Sprint(p)), "panics", c.handlerPanics, "stack", string(debug.Stack()))
	}
}

func (c *containment) panics() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handlerPanics
}

func (c *containment) logTo(logger klog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logger = logger
}
