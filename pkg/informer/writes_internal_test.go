package informer

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Owners that nobody asks about again must not be kept for ever.
func TestWritesMemoryIsBounded(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	w := NewWrites(time.Hour, movable{store})
	most := 0
	for n := range 100_000 {
		rv := strconv.Itoa(1000 + n)
		w.Wrote(cache.NewObjectName("ns", "owner"+rv), widgets, cache.NewObjectName("ns", "child"+rv), "u", rv)
		store.Bookmark(strconv.Itoa(1000 + n - 10)) // the cache is ten writes behind
		most = max(most, len(w.owners))
	}
	if most > minSweep {
		t.Errorf("%d owners remembered at a time, want at most %d", most, minSweep)
	}
}

type movable struct{ store cache.Store }

func (movable) Resource() schema.GroupVersionResource { return widgets }
func (m movable) Store(string) cache.Store            { return m.store }
