package informer

import (
	"cmp"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// Quarantined returns the record of an object that cannot be decoded. While
// there is one the local copy has the last good version of the object or none,
// and neither says what the object is now: do not act on it.
//
// It stays true until the local copy has the object's new state, so that who
// finds nothing here can trust what the copy says. Always false for an Informer
// whose ListerWatcher is not Tolerant's.
func (i *Informer[T]) Quarantined(key cache.ObjectName) (Quarantined, bool) {
	for _, p := range i.parts {
		if p.namespace == "" || p.namespace == key.Namespace {
			return p.quarantine.get(key)
		}
	}
	return Quarantined{}, false
}

// QuarantineList returns up to limit records in the order of their keys, those
// after one key only (the zero key: from the first), and whether there are more.
// A limit of 0 or less means all.
func (i *Informer[T]) QuarantineList(limit int, after cache.ObjectName) (page []Quarantined, more bool) {
	all := i.allQuarantined()
	start, found := slices.BinarySearchFunc(all, after, func(r *Quarantined, key cache.ObjectName) int { return compareKeys(r.Key, key) })
	if found {
		start++
	}
	all = all[start:]
	if limit > 0 && len(all) > limit {
		all, more = all[:limit], true
	}
	page = make([]Quarantined, len(all))
	for n, r := range all {
		page[n] = *r
	}
	return page, more
}

// OnQuarantine registers f, before Run. It is called after the record of an
// object has been updated: with entered set when the object is set aside, and
// again when its bad fields, deletionTimestamp, finalizers or owner references
// change, and with entered not set when it no longer is. By then the local copy
// has its new state. The record is the one that holds or, at the end, the last one:
// Quarantined does not have it any more then.
//
// f must not block: it enqueues the key, and where the object is somebody's child
// the keys of its owners, from the record's OwnerReferences. An object that was
// bad and is deleted is reported to handlers as well, by its metadata alone if
// there was no good version; but one that was never good, and whose deletion no
// watch has seen, is reported here alone.
func (i *Informer[T]) OnQuarantine(f func(record Quarantined, entered bool)) {
	i.listeners.add(func(record Quarantined, entered bool) {
		defer i.containment.handled("quarantine", record.Key.Namespace, record.Key.Name)
		f(record, entered)
	})
}

// allQuarantined returns the records of all namespaces in the order of their keys.
func (i *Informer[T]) allQuarantined() []*Quarantined {
	var all []*Quarantined
	for _, p := range i.parts {
		all = append(all, p.quarantine.all()...)
	}
	slices.SortFunc(all, func(a, b *Quarantined) int { return compareKeys(a.Key, b.Key) })
	return all
}

func compareKeys(a, b cache.ObjectName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
