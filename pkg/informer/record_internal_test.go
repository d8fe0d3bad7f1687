package informer

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// What the record costs an object, next to the strings, which are the object's own.
func TestRecordSize(t *testing.T) {
	const objects = 50_000
	type strings struct{ namespace, name, uid, resourceVersion string }
	var all []strings
	for n := range objects {
		all = append(all, strings{"namespace", fmt.Sprintf("application-%d", n), fmt.Sprintf("%036d", n), fmt.Sprint(1_000_000 + n)})
	}
	before := heap()
	r := newRecord(nil)
	f := r.begin()
	for _, s := range all {
		f.put(cache.NewObjectName(s.namespace, s.name), mark{types.UID(s.uid), s.resourceVersion, 1})
	}
	f.commit("2000000")
	size := (heap() - before) / objects
	runtime.KeepAlive(r)
	runtime.KeepAlive(all)
	t.Logf("%d bytes an object", size)
	if size > 180 {
		t.Errorf("%d bytes an object", size)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
