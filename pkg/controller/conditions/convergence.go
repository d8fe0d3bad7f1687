package conditions

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Convergence times a change of spec until it is Ready, the time in the queue
// included: what users wait for. A generation that is replaced before it is Ready is
// not counted; the one that replaces it is, from its own beginning. Nor is what had
// changed before this process started. A standby follows changes too, so that one
// that outlasts a change of leader is counted whole. The zero value is ready to use,
// by several goroutines.
type Convergence struct {
	mu    sync.Mutex
	since map[cache.ObjectName]specChange
}

type specChange struct {
	uid        types.UID
	generation int64
	at         time.Time
}

// Changed notes a new generation when it is first seen.
func (c *Convergence) Changed(object metav1.Object, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cache.MetaObjectToName(object)
	if was, ok := c.since[key]; ok && was.uid == object.GetUID() && was.generation >= object.GetGeneration() {
		return
	}
	if c.since == nil {
		c.since = map[cache.ObjectName]specChange{}
	}
	c.since[key] = specChange{object.GetUID(), object.GetGeneration(), now}
}

// Reached returns how long object's generation took, once, if conditions, which are
// of that generation, say that it is Ready.
func (c *Convergence) Reached(object metav1.Object, conditions []metav1.Condition, now time.Time) (took time.Duration, ok bool) {
	if !meta.IsStatusConditionTrue(conditions, ready) {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cache.MetaObjectToName(object)
	was, ok := c.since[key]
	if !ok || was.uid != object.GetUID() || was.generation != object.GetGeneration() {
		return 0, false
	}
	delete(c.since, key)
	return now.Sub(was.at), true
}

// Forget drops what is known of an object: it is gone, or another process led and got
// it there.
func (c *Convergence) Forget(key cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, key)
}

// ReadyAt says whether a status, of the given generation, says that the object's latest
// spec is Ready.
func ReadyAt(object metav1.Object, observedGeneration int64, conditions []metav1.Condition) bool {
	return observedGeneration == object.GetGeneration() && meta.IsStatusConditionTrue(conditions, ready)
}
