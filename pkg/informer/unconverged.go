package informer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Unconverged counts the objects whose generation in the last audit is ahead of the
// one that observed returns for the cached object as it is now, such as its
// status.observedGeneration. It tells what the cache alone cannot: a copy that is
// deaf has no newer generation to compare with. An object that the audit has found
// and that was never delivered counts too.
//
// A change from after the last audit does not count, so that what is being worked
// on does not keep the number above 0; one that is still not observed at the next
// audit does. Objects that cannot be decoded (Quarantined) and those that are being
// deleted do not count.
//
// known is false without Config.Hearing, with audits switched off, before the first
// audit of every namespace and after a rewind until the next one. observed must not
// change its argument.
func (i *Informer[T]) Unconverged(observed func(T) int64) (n int, known bool) {
	for _, p := range i.parts {
		ear := p.listWatch.ear
		if ear == nil {
			return 0, false
		}
		store := p.informer.GetStore()
		some, known := ear.ledger.unconverged(func(key cache.ObjectName, uid types.UID) (int64, bool) {
			found, _, _ := store.GetByKey(key.String())
			m, ok := found.(metav1.Object)
			if !ok || m.GetUID() != uid || m.GetDeletionTimestamp() != nil {
				return 0, false
			}
			o, ok := found.(T)
			return observed(o), ok
		})
		if !known {
			return 0, false
		}
		n += some
	}
	return n, true
}
