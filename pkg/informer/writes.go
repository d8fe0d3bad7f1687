package informer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// defaultOverdueAfter is how long a controller waits for its cache to show its
// own write before it has to look for itself.
const defaultOverdueAfter = 30 * time.Second

// Source is a local copy that Writes compares with. Every Informer is one.
type Source interface {
	// Resource is what the copy holds.
	Resource() schema.GroupVersionResource
	// Store returns the store for a namespace, nil if it is not held.
	Store(namespace string) cache.Store
}

// Writes lets one controller read its own writes: it remembers what was written
// on behalf of an owner (a reconciler's key) until the local copy shows it. The
// idea is that of k/k's pkg/controller/util/consistency, per owner and child.
//
// A write counts as seen when, for its resource and namespace,
//   - the copy holds the child at the written resourceVersion or a later one, or
//   - the copy as a whole has got there: then whatever became of the child in
//     the meantime, deleted or made anew by somebody else, is in the copy too.
//
// Later means resourceversion.CompareResourceVersion. Where an API server
// issues opaque versions only equality counts, so that a write which was
// overtaken before the copy saw it becomes overdue. So does, with client-go's
// AtomicFIFO gate switched off, one to a child that somebody else deleted.
//
// Waits concern their owner alone. Nothing is waited for where the copy does
// not hold the resource or the namespace. Safe for concurrent use.
type Writes struct {
	overdueAfter time.Duration
	sources      map[schema.GroupVersionResource]Source

	mu      sync.Mutex
	owners  map[cache.ObjectName][]Awaited // no empty slices
	sweepAt int
}

// Awaited is a write that the local copy does not show yet.
type Awaited struct {
	Resource schema.GroupVersionResource
	Child    cache.ObjectName
	UID      types.UID
	// ResourceVersion that was written. For a delete that of the write before
	// it, if that had not been seen either, else "".
	ResourceVersion string
	Deleted         bool
	Since           time.Time
}

// NewWrites makes a Writes that compares with the given sources, before they run. Of two
// for one resource the later counts. What was written before etcd was set back is dropped
// when an Informer finds that out. overdueAfter 0 means 30 seconds.
func NewWrites(overdueAfter time.Duration, sources ...Source) *Writes {
	if overdueAfter <= 0 {
		overdueAfter = defaultOverdueAfter
	}
	w := &Writes{
		overdueAfter: overdueAfter,
		sources:      make(map[schema.GroupVersionResource]Source, len(sources)),
		owners:       map[cache.ObjectName][]Awaited{},
		sweepAt:      minSweep,
	}
	for _, s := range sources {
		resource := s.Resource()
		w.sources[resource] = s
		if s, ok := s.(interface{ OnRewind(func()) }); ok {
			s.OnRewind(func() { w.Reset(resource) })
		}
	}
	return w
}

// Wrote notes that owner's reconciler has created, updated, patched or applied
// child and got uid and resourceVersion back. Of several writes to one child
// the latest counts. A write that changed nothing is seen at once.
func (w *Writes) Wrote(owner cache.ObjectName, resource schema.GroupVersionResource, child cache.ObjectName, uid types.UID, resourceVersion string) {
	if resourceVersion != "" {
		w.await(owner, Awaited{Resource: resource, Child: child, UID: uid, ResourceVersion: resourceVersion})
	}
}

// Deleted notes that owner's reconciler has asked for the deletion of child.
// It counts as seen when the copy shows the child with a deletionTimestamp,
// not at all, or with another uid. Finalizers may keep the child for long
// after that; those are no matter of the cache.
func (w *Writes) Deleted(owner cache.ObjectName, resource schema.GroupVersionResource, child cache.ObjectName, uid types.UID) {
	w.await(owner, Awaited{Resource: resource, Child: child, UID: uid, Deleted: true})
}

// WroteObject is Wrote for an object as the API server returned it, with a line in the
// log.
func (w *Writes) WroteObject(ctx context.Context, owner metav1.Object, resource schema.GroupVersionResource, written metav1.Object) {
	klog.FromContext(ctx).V(2).Info("Wrote", "resource", resource.GroupResource().String(), "child", klog.KObj(written),
		"resourceVersion", written.GetResourceVersion())
	w.Wrote(cache.MetaObjectToName(owner), resource, cache.MetaObjectToName(written), written.GetUID(), written.GetResourceVersion())
}

// DeletedObject is Deleted for an object as it was before, with a line in the log.
func (w *Writes) DeletedObject(ctx context.Context, owner metav1.Object, resource schema.GroupVersionResource, gone metav1.Object) {
	klog.FromContext(ctx).V(2).Info("Deleted", "resource", resource.GroupResource().String(), "child", klog.KObj(gone))
	w.Deleted(cache.MetaObjectToName(owner), resource, cache.MetaObjectToName(gone), gone.GetUID())
}

func (w *Writes) await(owner cache.ObjectName, a Awaited) {
	a.Since = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune(owner)
	all := w.owners[owner]
	at := slices.IndexFunc(all, func(b Awaited) bool { return b.Resource == a.Resource && b.Child == a.Child })
	if at >= 0 {
		before := all[at]
		// Not seen for as long as the write before it.
		a.Since = before.Since
		if a.Deleted {
			// A child that the copy does not hold is either gone again or has
			// not come yet; only the write before can tell.
			a.ResourceVersion = before.ResourceVersion
		}
		all = slices.Delete(all, at, at+1)
	}
	if !w.seen(a) {
		all = append(all, a)
	}
	w.set(owner, all)
	if len(w.owners) >= w.sweepAt {
		w.sweep()
	}
}

// Pending says whether owner has to wait: something written for it is not in
// the local copy yet, and not overdue. detail names what has been awaited
// longest and since when. Overdue writes do not hold up the owner.
func (w *Writes) Pending(owner cache.ObjectName) (detail string, since time.Time, pending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune(owner)
	now := time.Now()
	var oldest *Awaited
	for n, a := range w.owners[owner] {
		if now.Sub(a.Since) < w.overdueAfter && (oldest == nil || a.Since.Before(oldest.Since)) {
			oldest = &w.owners[owner][n]
		}
	}
	if oldest == nil {
		return "", time.Time{}, false
	}
	return w.describe(*oldest), oldest.Since, true
}

// Overdue returns what owner has awaited for too long, longest first. Its
// reconciler has to read those children from the API server, not from the
// cache, and act on that. It stays overdue, and the owner is not held up,
// until the copy shows it; a reconciler that finds it will never (the child's
// live resourceVersion is lower) calls Forget.
func (w *Writes) Overdue(owner cache.ObjectName) []Awaited {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune(owner)
	now := time.Now()
	var overdue []Awaited
	for _, a := range w.owners[owner] {
		if now.Sub(a.Since) >= w.overdueAfter {
			overdue = append(overdue, a)
		}
	}
	slices.SortStableFunc(overdue, func(a, b Awaited) int { return a.Since.Compare(b.Since) })
	return overdue
}

// Forget drops everything awaited for owner. To be called when it is gone.
func (w *Writes) Forget(owner cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owners, owner)
}

// Reset drops everything awaited of a resource: its revision has gone down
// (etcd was restored), so that what was written may never be seen.
func (w *Writes) Reset(resource schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for owner, all := range w.owners {
		w.set(owner, slices.DeleteFunc(all, func(a Awaited) bool { return a.Resource == resource }))
	}
}

// minSweep is the least number of owners that is worth a sweep.
const minSweep = 1024

// sweep drops what has been seen for owners that nobody has asked about since.
// It runs when their number has doubled, so each write pays a constant share.
func (w *Writes) sweep() {
	for owner := range w.owners {
		w.prune(owner)
	}
	w.sweepAt = max(minSweep, 2*len(w.owners))
}

// prune drops what has been seen of one owner.
func (w *Writes) prune(owner cache.ObjectName) {
	if all, ok := w.owners[owner]; ok {
		w.set(owner, slices.DeleteFunc(all, w.seen))
	}
}

func (w *Writes) set(owner cache.ObjectName, all []Awaited) {
	if len(all) == 0 {
		delete(w.owners, owner)
		return
	}
	w.owners[owner] = all
}

func (w *Writes) store(a Awaited) cache.Store {
	source, ok := w.sources[a.Resource]
	if !ok {
		return nil
	}
	return source.Store(a.Child.Namespace)
}

// seen says whether the copy shows a.
func (w *Writes) seen(a Awaited) bool {
	store := w.store(a)
	if store == nil {
		return true
	}
	// The store's version first: if it is read before the child, then a child
	// found missing was missing at that version or later.
	reached := store.LastStoreSyncResourceVersion()
	object, exists, err := store.GetByKey(a.Child.String())
	if err != nil {
		return false
	}
	if !exists {
		return a.Deleted && a.ResourceVersion == "" || atLeast(reached, a.ResourceVersion)
	}
	child, err := meta.Accessor(object)
	if err != nil {
		return false
	}
	there := atLeast(child.GetResourceVersion(), a.ResourceVersion) || atLeast(reached, a.ResourceVersion)
	if !a.Deleted {
		return there
	}
	deleted := child.GetDeletionTimestamp() != nil
	if a.UID == "" || child.GetUID() == a.UID {
		return deleted
	}
	// Another object of that name: made later, if there was nothing unseen
	// before the delete, else only if it is from after that.
	return a.ResourceVersion == "" || there
}

// atLeast says whether version got has reached version want. Versions that
// cannot be compared have to be equal.
func atLeast(got, want string) bool {
	if got == want {
		return got != ""
	}
	order, err := resourceversion.CompareResourceVersion(got, want)
	return err == nil && order >= 0
}

func (w *Writes) describe(a Awaited) string {
	has := "nothing"
	if store := w.store(a); store != nil {
		has = cmp.Or(store.LastStoreSyncResourceVersion(), "an unknown resourceVersion")
	}
	if a.Deleted {
		return fmt.Sprintf("delete of %s %s, cache is at %s", a.Resource.GroupResource(), a.Child, has)
	}
	return fmt.Sprintf("%s %s at resourceVersion %s, cache is at %s", a.Resource.GroupResource(), a.Child, a.ResourceVersion, has)
}
