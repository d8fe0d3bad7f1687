package informer

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// What the store holds is behind what client-go has been given, if only for
// moments: events wait in its FIFO. Where that could make a difference (is there
// a good version to stand in?) the quarantine waits for the store.

// reached reports whether the store shows resourceVersion or later.
func (q *quarantine) reached(resourceVersion string) bool {
	return atLeast(q.store.LastStoreSyncResourceVersion(), resourceVersion)
}

func (q *quarantine) setDelivered(resourceVersion string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if resourceVersion != "" && resourceVersion != "0" {
		q.delivered = resourceVersion
	}
}

// catchUp waits until the store shows resourceVersion, or if that is none what
// was delivered last.
func (q *quarantine) catchUp(ctx context.Context, resourceVersion string) {
	if resourceVersion == "" || resourceVersion == "0" {
		q.mu.Lock()
		resourceVersion = q.delivered
		q.mu.Unlock()
	}
	if resourceVersion == "" || q.store.LastStoreSyncResourceVersion() == "" {
		return // nothing there, or a client-go whose AtomicFIFO is off cannot tell
	}
	end := time.Now().Add(catchUpTimeout)
	for delay := 50 * time.Microsecond; !q.reached(resourceVersion) && time.Now().Before(end); delay = min(2*delay, 20*time.Millisecond) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// cached returns the object that the store has under key, nil if none.
func (q *quarantine) cached(key cache.ObjectName) object {
	found, _, _ := q.store.GetByKey(key.String())
	o, _ := found.(object)
	return o
}

// same reports whether two UIDs are, or may be, of one object.
func same(a, b types.UID) bool { return a == b || a == "" || b == "" }

// held returns the last good version of b, nil if the cache has none.
func (q *quarantine) held(ctx context.Context, b *badItem) object {
	for try := range 2 {
		if try > 0 {
			q.catchUp(ctx, "")
		}
		if o := q.cached(keyOf(b)); o != nil && same(o.GetUID(), b.meta.UID) {
			return o
		}
	}
	return nil
}

// replaced returns what the cache has under the key of b although b is another
// object, nil if there is no such thing.
func (q *quarantine) replaced(ctx context.Context, b *badItem) object {
	o := q.cached(keyOf(b))
	if o == nil || same(o.GetUID(), b.meta.UID) {
		return nil
	}
	q.catchUp(ctx, "") // its delete may be on the way
	if o = q.cached(keyOf(b)); o == nil || same(o.GetUID(), b.meta.UID) {
		return nil
	}
	return o
}

// stage collects what is bad in one list, or in the initial events of a
// WatchList, until it is complete. Not for concurrent use.
type stage struct {
	q         *quarantine
	alone     bool // nothing stands in
	namespace string
	bad       map[cache.ObjectName]*Quarantined
}

// stage begins a list for a Reflector that has seen resourceVersion. The store
// has all of that when it returns, and nothing is added to it before the list is
// complete: what the store says in between is final.
func (q *quarantine) stage(ctx context.Context, namespace, resourceVersion string) *stage {
	q.catchUp(ctx, resourceVersion)
	q.mu.Lock()
	alone := q.rewound
	q.mu.Unlock()
	return &stage{q: q, alone: alone, namespace: namespace, bad: map[cache.ObjectName]*Quarantined{}}
}

// resolve returns what to list for an item: itself if it is good, its last good
// version, so that the relist reports no delete, or nil.
func (s *stage) resolve(i item) object {
	if i.bad == nil {
		if len(s.bad) > 0 {
			s.drop(cache.MetaObjectToName(metav1.Object(i.object)))
		}
		return i.object
	}
	if !i.bad.hasKey() {
		s.q.unreadable(i.bad)
		return nil
	}
	inNamespace(i.bad, s.namespace)
	s.bad[keyOf(i.bad)] = s.q.record(i.bad, len(s.bad) >= manyRecords)
	if o := s.q.cached(keyOf(i.bad)); o != nil && !s.alone && same(o.GetUID(), i.bad.meta.UID) {
		return o
	}
	return nil
}

// standInNever makes the next list leave every bad object out: the good versions in
// the cache are of a history that the API server does not have, and might be newer
// than what it holds.
func (q *quarantine) standInNever() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rewound = true
}

// drop forgets what a later event has replaced.
func (s *stage) drop(key cache.ObjectName) { delete(s.bad, key) }

// commit makes the list's bad objects those that are set aside. Who is not among
// them has become good or is gone, as client-go is about to learn: it gets the
// whole list at resourceVersion.
func (s *stage) commit(ctx context.Context, resourceVersion string) {
	q := s.q
	q.setDelivered(resourceVersion)
	q.change.Lock()
	defer q.change.Unlock()
	type news struct {
		record *Quarantined
		what   recordChange
	}
	var all []news
	q.mu.Lock()
	q.rewound = q.rewound && !s.alone
	now := time.Now()
	for key, r := range q.records {
		if _, still := s.bad[key]; !still {
			delete(q.records, key)
			q.leaving[key] = leaving{r, resourceVersion, now}
		}
	}
	for _, r := range s.bad {
		all = append(all, news{r, q.put(r)})
	}
	n := len(q.records)
	q.mu.Unlock()
	q.log.count(q, n)
	for _, n := range all {
		q.tell(n.record, n.what)
	}
	q.settle(ctx)
}
