package informer

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// mark is what tells one state of an object from another.
type mark struct {
	uid             types.UID
	resourceVersion string
	generation      int64
}

func markOf(o metav1.Object) mark {
	return mark{o.GetUID(), o.GetResourceVersion(), o.GetGeneration()}
}

// record knows what the Reflector has been given of one namespace of one resource,
// and how far: what an audit compares with. It is not the store, which is behind
// what was given, and lacks what is set aside; objects in the quarantine count as
// delivered.
//
// About 120 bytes an object, next to the strings, which are those of the objects.
// Safe for concurrent use.
type record struct {
	quarantine *quarantine // nil: none

	mu        sync.Mutex
	delivered map[cache.ObjectName]delivered
	revision  string // heard; "" until the first list is complete

	// Where revisions are opaque, and as long as somebody tracks: when each object
	// was last delivered, in whatever state, counted in deliveries.
	deliveries uint64
	last       map[cache.ObjectName]uint64
	filled     uint64 // by a list, which delivers every object, or that it is gone
	trackers   int
}

// delivered is what was delivered last of one object.
type delivered struct {
	mark
	// audited is the generation that the last audit has seen. 0: none has.
	audited int64
}

func newRecord(q *quarantine) *record {
	return &record{quarantine: q, delivered: map[cache.ObjectName]delivered{}, last: map[cache.ObjectName]uint64{}}
}

// see notes an event of a watch that is in the order of revisions, which is how
// the revision heard follows. Not for initial events (fill) and not for ERROR.
func (r *record) see(event watch.EventType, o metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch event {
	case watch.Added, watch.Modified:
		r.set(cache.MetaObjectToName(o), markOf(o))
	case watch.Deleted:
		r.unset(cache.MetaObjectToName(o))
	}
	r.hearUnderLock(o.GetResourceVersion())
}

// put notes that an object was delivered apart from the order of revisions, as
// polling does. The revision heard stays.
func (r *record) put(key cache.ObjectName, m mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(key, m)
}

// drop notes that an object was delivered as deleted, as put.
func (r *record) drop(key cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unset(key)
}

// hear notes that everything up to resourceVersion was delivered.
func (r *record) hear(resourceVersion string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hearUnderLock(resourceVersion)
}

func (r *record) hearUnderLock(resourceVersion string) {
	if resourceVersion != "" && !below(resourceVersion, r.revision) {
		r.revision = resourceVersion
	}
}

// heard is the revision up to which everything was delivered, "" before the first
// list is complete.
func (r *record) heard() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision
}

// get returns what was delivered last, or set aside.
func (r *record) get(key cache.ObjectName) (mark, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now(key)
}

// auditedGeneration is what the last audit has seen of an object that was delivered.
type auditedGeneration struct {
	key        cache.ObjectName
	uid        types.UID
	generation int64
}

// audited returns what the last audit has seen of the objects that were delivered,
// but for those that are set aside.
func (r *record) audited() []auditedGeneration {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]auditedGeneration, 0, len(r.delivered))
	for key, d := range r.delivered {
		if d.audited == 0 {
			continue
		}
		if _, bad := r.quarantine.mark(key); !bad {
			all = append(all, auditedGeneration{key, d.uid, d.audited})
		}
	}
	return all
}

// len is the number of objects delivered, without those set aside.
func (r *record) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.delivered)
}

// now is get. mu is held.
func (r *record) now(key cache.ObjectName) (mark, bool) {
	if m, ok := r.quarantine.mark(key); ok {
		return m, true
	}
	d, ok := r.delivered[key]
	return d.mark, ok
}

func (r *record) set(key cache.ObjectName, m mark) {
	old := r.delivered[key]
	d := delivered{mark: m}
	if old.uid == m.uid {
		d.audited = old.audited
	}
	r.delivered[key] = d
	r.touch(key)
}

func (r *record) unset(key cache.ObjectName) {
	delete(r.delivered, key)
	r.touch(key)
}

func (r *record) touch(key cache.ObjectName) {
	if r.trackers > 0 && !comparable(r.revision, r.revision) {
		r.deliveries++
		r.last[key] = r.deliveries
	}
}

// touched reports whether anything was delivered of an object since. Only where
// revisions are opaque. mu is held.
func (r *record) touched(key cache.ObjectName, since uint64) bool {
	return max(r.filled, r.last[key]) > since
}

// track begins to note what is delivered and returns since when. untrack ends it.
func (r *record) track() (since uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trackers++
	return r.deliveries
}

func (r *record) untrack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trackers--; r.trackers == 0 {
		clear(r.last)
	}
}

// fill collects a list, or the initial events of a WatchList. The record changes
// when it is complete, as a whole, and not at all if it is given up. Not for
// concurrent use.
type fill struct {
	record *record
	all    map[cache.ObjectName]delivered
}

// begin begins a fill.
func (r *record) begin() *fill {
	return &fill{record: r, all: make(map[cache.ObjectName]delivered, r.len())}
}

func (f *fill) put(key cache.ObjectName, m mark) { f.all[key] = delivered{mark: m} }
func (f *fill) drop(key cache.ObjectName)        { delete(f.all, key) }

// see notes an initial event.
func (f *fill) see(event watch.EventType, o metav1.Object) {
	switch event {
	case watch.Added, watch.Modified:
		f.put(cache.MetaObjectToName(o), markOf(o))
	case watch.Deleted:
		f.drop(cache.MetaObjectToName(o))
	}
}

// commit makes what was collected all that was delivered, up to resourceVersion,
// which may be below the one heard: a list is how one gets back after a rewind.
func (f *fill) commit(resourceVersion string) {
	r := f.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, d := range f.all {
		if old, ok := r.delivered[key]; ok && old.uid == d.uid {
			d.audited = old.audited
			f.all[key] = d
		}
	}
	r.deliveries++
	r.filled = r.deliveries
	r.delivered, r.revision = f.all, resourceVersion
	f.all = nil
}

// mark returns what is set aside under key. What is leaving does not count: its new
// state is being delivered.
func (q *quarantine) mark(key cache.ObjectName) (mark, bool) {
	if q == nil {
		return mark{}, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r, ok := q.records[key]
	if !ok {
		return mark{}, false
	}
	return mark{r.UID, r.ResourceVersion, r.Generation}, true
}

// marks are all that is set aside.
func (q *quarantine) marks() map[cache.ObjectName]mark {
	all := map[cache.ObjectName]mark{}
	if q == nil {
		return all
	}
	for _, r := range q.all() {
		all[r.Key] = mark{r.UID, r.ResourceVersion, r.Generation}
	}
	return all
}

// comparable reports whether versions can be put in an order.
func comparable(a, b string) bool {
	_, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil
}

// below reports whether version got is known to be before version want.
func below(got, want string) bool {
	order, err := resourceversion.CompareResourceVersion(got, want)
	return err == nil && order < 0
}
