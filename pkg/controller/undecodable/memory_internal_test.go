package undecodable

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

// What is remembered of an object goes with its record, also if that is gone before
// the pass that reports it has ended.
func TestForget(t *testing.T) {
	key := cache.NewObjectName("ns", "a")
	bad := true
	r := &Reporter{told: map[cache.ObjectName]told{}, cfg: Config{Quarantined: func(cache.ObjectName) (informer.Quarantined, bool) {
		return informer.Quarantined{}, bad
	}}}
	left := func() int { return len(r.told) + len(r.turns.due) }

	now := time.Unix(0, 0)
	r.turns.take(cache.NewObjectName("ns", "before"), now)
	r.turns.take(key, now)
	r.remember(key, told{message: "x"})
	if left() != 2 {
		t.Fatalf("%d things remembered, want 2", left())
	}
	r.Forget(key)
	if left() != 0 {
		t.Errorf("%d things remembered after Forget", left())
	}
	bad = false
	r.remember(key, told{message: "x"})
	if left() != 0 {
		t.Errorf("%d things remembered of an object without a record", left())
	}
	r.turns.take(key, now)
	if _, err := r.Reconcile(t.Context(), key); err != nil || left() != 0 {
		t.Errorf("after a pass that found no record: %v, %d things remembered", err, left())
	}
}
