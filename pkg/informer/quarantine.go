package informer

import (
	"context"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// BadField is one place in an object that does not fit its Go type.
type BadField struct {
	// Path as in spec.backends[2].weight; a key that is no identifier is quoted,
	// as in metadata.annotations["a.b/c"]. Empty for the object itself.
	Path string `json:"path"`
	// Value is the JSON found there, cut.
	Value string `json:"value"`
	// GoType is what should be there, as in *v1.Duration.
	GoType string `json:"goType"`
	// Reason says why it does not fit, in words for the person who wrote it.
	Reason string `json:"reason"`
}

// Quarantined is an object that the API server has and that cannot be decoded.
// What could be read of its metadata is that of its newest version. The slices
// are shared: do not change them.
type Quarantined struct {
	Resource          schema.GroupVersionResource `json:"resource"`
	Key               cache.ObjectName            `json:"key"`
	UID               types.UID                   `json:"uid"`
	ResourceVersion   string                      `json:"resourceVersion"`
	Generation        int64                       `json:"generation,omitempty"`
	DeletionTimestamp *metav1.Time                `json:"deletionTimestamp,omitempty"`
	Finalizers        []string                    `json:"finalizers,omitempty"`
	OwnerReferences   []metav1.OwnerReference     `json:"ownerReferences,omitempty"`
	// FirstSeen is when it was set aside, LastSeen when it last arrived.
	FirstSeen time.Time `json:"firstSeen"`
	LastSeen  time.Time `json:"lastSeen"`
	// Fields are the bad fields, at least one and as many as fit into 8 KiB with
	// Fix (1 KiB for objects beyond the first thousand of a resource).
	Fields []BadField `json:"fields"`
	// Fix are the kubectl commands that mend the object once each <placeholder>
	// has been replaced; more than one where both the status and the rest are
	// bad. Empty where they do not fit, or the object is bad as a whole.
	Fix []string `json:"fix,omitempty"`
	// Error is the decoder's, which often does not say where.
	Error string `json:"error"`
}

const (
	// maxRecordBytes bounds what is said about one object's fields, and
	// maxSmallRecordBytes about one beyond the first manyRecords, so that 10,000
	// objects made to be bad cost less than 20 MB.
	maxRecordBytes      = 8 << 10
	maxSmallRecordBytes = 1 << 10
	manyRecords         = 1000
	// catchUpTimeout bounds each wait for the store to show what client-go has
	// been given. It gets there within milliseconds, unless it cannot tell.
	catchUpTimeout = 5 * time.Second
)

// quarantine holds what was set aside of one namespace of one resource.
//
// An object that becomes good, or is deleted, leaves at once as far as counts
// and lists go. But get goes on reporting it until the cache has its new state:
// in between a reconciler would find the old one, or, after a restart, none, and
// take the object for deleted.
type quarantine struct {
	resource  schema.GroupVersionResource
	store     cache.Store // set before anything runs
	log       *quarantineLog
	listeners *quarantineListeners

	// change is held over an update and its notification, so that those for one
	// object are in order. mu is not held while listeners run.
	change sync.Mutex

	mu        sync.Mutex
	records   map[cache.ObjectName]*Quarantined // replaced, never changed
	leaving   map[cache.ObjectName]leaving
	settling  bool   // a goroutine waits for the store to show what is leaving
	delivered string // resourceVersion of the last event given to client-go
	rewound   bool   // since the last list
	total     uint64
	unread    uint64

	routines sync.WaitGroup
}

// leaving is an object whose new state client-go has been, or is being, given.
type leaving struct {
	record *Quarantined
	until  string // the store has the new state from this resourceVersion on
	since  time.Time
}

// quarantineListeners are an Informer's.
type quarantineListeners struct {
	mu  sync.Mutex
	all []func(record Quarantined, entered bool)
}

func (l *quarantineListeners) add(f func(record Quarantined, entered bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all[:len(l.all):len(l.all)], f)
}

func (l *quarantineListeners) tell(record *Quarantined, entered bool) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, f := range all {
		f(*record, entered)
	}
}

func newQuarantine(resource schema.GroupVersionResource, log *quarantineLog, listeners *quarantineListeners) *quarantine {
	return &quarantine{
		resource: resource, log: log, listeners: listeners,
		records: map[cache.ObjectName]*Quarantined{}, leaving: map[cache.ObjectName]leaving{},
	}
}

// inNamespace gives an object whose namespace cannot be read the one that was
// asked for.
func inNamespace(b *badItem, namespace string) {
	if b.meta.Namespace == "" {
		b.meta.Namespace = namespace
	}
}

func keyOf(b *badItem) cache.ObjectName { return cache.NewObjectName(b.meta.Namespace, b.meta.Name) }

// record describes a bad object; many says that there are many others.
func (q *quarantine) record(b *badItem, many bool) *Quarantined {
	now := time.Now()
	r := &Quarantined{
		Resource: q.resource, Key: keyOf(b), UID: b.meta.UID, ResourceVersion: b.meta.ResourceVersion, Generation: b.meta.Generation,
		DeletionTimestamp: b.meta.DeletionTimestamp, Finalizers: b.meta.Finalizers, OwnerReferences: b.meta.OwnerReferences,
		FirstSeen: now, LastSeen: now, Error: cut(b.err.Error()),
	}
	room := maxRecordBytes
	if many {
		room = maxSmallRecordBytes
	}
	for _, f := range b.fields {
		field := BadField{Path: cut(f.Path), Value: f.Value, GoType: cut(f.GoType), Reason: f.Reason}
		room -= len(field.Path) + len(field.Value) + len(field.GoType) + len(field.Reason)
		if room < 0 && len(r.Fields) > 0 {
			break
		}
		r.Fields = append(r.Fields, field)
	}
	kind := q.resource.Resource + "." + q.resource.Version + "." + q.resource.Group
	for _, command := range fixCommands(kind, r.Key, b.fields[:len(r.Fields)]) {
		if room -= len(command); room < 0 {
			break
		}
		r.Fix = append(r.Fix, command)
	}
	return r
}

// change is what put has done.
type recordChange int

const (
	seenAgain     recordChange = iota
	changed                    // in what listeners act on, but not in its fields
	fieldsChanged              // so that there is something new to say
	entered
)

// put stores r in place of an older record. mu is held.
func (q *quarantine) put(r *Quarantined) recordChange {
	delete(q.leaving, r.Key)
	old := q.records[r.Key]
	q.records[r.Key] = r
	if old == nil || old.UID != r.UID {
		q.total++
		return entered
	}
	r.FirstSeen = old.FirstSeen
	switch {
	case !reflect.DeepEqual(old.Fields, r.Fields):
		return fieldsChanged
	case !old.DeletionTimestamp.Equal(r.DeletionTimestamp), !reflect.DeepEqual(old.Finalizers, r.Finalizers),
		!reflect.DeepEqual(old.OwnerReferences, r.OwnerReferences):
		return changed
	}
	return seenAgain
}

// tell says what put has done. change is held, mu is not.
func (q *quarantine) tell(r *Quarantined, what recordChange) {
	if what >= fieldsChanged {
		q.log.bad(r)
	}
	if what > seenAgain {
		q.listeners.tell(r, true)
	}
}

// enter sets an object aside.
func (q *quarantine) enter(b *badItem) {
	q.change.Lock()
	defer q.change.Unlock()
	q.mu.Lock()
	r := q.record(b, len(q.records) >= manyRecords)
	what := q.put(r)
	n := len(q.records)
	q.mu.Unlock()
	q.log.count(q, n)
	q.tell(r, what)
}

// leave lets go of an object whose new state, of that resourceVersion, client-go
// is about to be given, and reports whether it was set aside. settle follows.
func (q *quarantine) leave(key cache.ObjectName, resourceVersion string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, ok := q.records[key]
	if ok {
		delete(q.records, key)
		q.leaving[key] = leaving{r, resourceVersion, time.Now()}
	}
	return ok
}

// settle tells about those that leave, each as soon as the store has its new
// state. ctx ends it.
func (q *quarantine) settle(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.settling || len(q.leaving) == 0 {
		return
	}
	q.settling = true
	q.routines.Go(func() {
		for delay := time.Millisecond; q.settleOnce(); delay = min(2*delay, 100*time.Millisecond) {
			select {
			case <-ctx.Done():
				q.mu.Lock()
				q.settling = false
				q.mu.Unlock()
				return
			case <-time.After(delay):
			}
		}
	})
}

// settleOnce reports whether any are left.
func (q *quarantine) settleOnce() bool {
	q.change.Lock()
	defer q.change.Unlock()
	q.mu.Lock()
	var gone []*Quarantined
	for key, l := range q.leaving {
		if q.reached(l.until) || time.Since(l.since) > catchUpTimeout {
			delete(q.leaving, key)
			gone = append(gone, l.record)
		}
	}
	q.settling = len(q.leaving) > 0
	more, n := q.settling, len(q.records)
	q.mu.Unlock()
	if len(gone) > 0 {
		q.log.count(q, n)
	}
	for _, r := range gone {
		_, exists, _ := q.store.GetByKey(r.Key.String())
		q.log.left(r, exists)
		q.listeners.tell(r, false)
	}
	return more
}

// unreadable counts an object of which not even the name can be read.
func (q *quarantine) unreadable(b *badItem) {
	q.mu.Lock()
	q.unread++
	q.mu.Unlock()
	q.log.unreadable(b)
}

// get returns the record of an object that is set aside, or is leaving and
// whose new state the store does not have yet.
func (q *quarantine) get(key cache.ObjectName) (Quarantined, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r, ok := q.records[key]; ok {
		return *r, true
	}
	if l, ok := q.leaving[key]; ok && !q.reached(l.until) {
		return *l.record, true
	}
	return Quarantined{}, false
}

// all returns the records in no order.
func (q *quarantine) all() []*Quarantined {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]*Quarantined, 0, len(q.records))
	for _, r := range q.records {
		all = append(all, r)
	}
	return all
}

func (q *quarantine) describe(s *Snapshot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Quarantined, s.QuarantinedTotal, s.Unreadable = len(q.records), q.total, q.unread
}
