package informer_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

// source is a local copy that a test moves by hand; it holds one namespace.
type source struct {
	resource  schema.GroupVersionResource
	namespace string
	indexer   cache.Indexer
}

func newSource() source {
	return source{configMaps, "ns", cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
}

func (s source) Resource() schema.GroupVersionResource { return s.resource }

func (s source) Store(namespace string) cache.Store {
	if namespace != s.namespace {
		return nil
	}
	return s.indexer
}

// shows puts child into the copy.
func (s source) shows(uid types.UID, rv string, deleting bool) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "child", UID: uid, ResourceVersion: rv}}
	if deleting {
		cm.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	if err := s.indexer.Add(cm); err != nil {
		panic(err)
	}
}

// lost takes child out of the copy, which has then got to rv.
func (s source) lost(rv string) {
	if err := s.indexer.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "child"}}); err != nil {
		panic(err)
	}
	s.indexer.Bookmark(rv)
}

var (
	owner = cache.NewObjectName("ns", "owner")
	child = cache.NewObjectName("ns", "child")
)

func TestWrites(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		do     func(w *informer.Writes, s source)
		want   bool // pending
	}{
		"nothing written": {
			reason: "nothing to wait for",
			do:     func(*informer.Writes, source) {},
		},
		"written, cache knows nothing": {
			reason: "the next pass would create it again (R92)",
			do:     func(w *informer.Writes, _ source) { w.Wrote(owner, configMaps, child, "u1", "100") },
			want:   true,
		},
		"written, cache older": {
			reason: "the next pass would decide on what was before",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "99", false)
				w.Wrote(owner, configMaps, child, "u1", "100")
			},
			want: true,
		},
		"versions are numbers": {
			reason: "99 is less than 100, though not as text",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "99")
				s.shows("u1", "100", false)
			},
		},
		"written, cache equal": {
			reason: "seen",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				s.shows("u1", "100", false)
			},
		},
		"changed nothing": {
			reason: "an apply without effect returns what the cache has",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "100", false)
				w.Wrote(owner, configMaps, child, "u1", "100")
			},
		},
		"written twice, first seen": {
			reason: "the latest counts",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				w.Wrote(owner, configMaps, child, "u1", "110")
				s.shows("u1", "100", false)
			},
			want: true,
		},
		"another child": {
			reason: "is waited for too",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				w.Wrote(owner, configMaps, cache.NewObjectName("ns", "other"), "u2", "110")
				s.shows("u1", "100", false)
			},
			want: true,
		},
		"deleted by somebody else before it was seen": {
			reason: "the store has got past it, without the child",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				s.lost("105")
			},
		},
		"recreated by somebody else": {
			reason: "another object, but from after the write",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				s.shows("u2", "105", false)
			},
		},
		"recreated by us, cache has the one before": {
			reason: "the other object is from before the write",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "90", false)
				w.Wrote(owner, configMaps, child, "u2", "100")
			},
			want: true,
		},
		"bookmark": {
			reason: "the cache as a whole has got there, however quiet the child",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				s.indexer.Bookmark("100")
			},
		},
		"an older version stands in": {
			reason: "the cache got past the write and shows this on purpose, as for an object it cannot decode",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "90", false)
				w.Wrote(owner, configMaps, child, "u1", "100")
				s.indexer.Bookmark("100")
			},
		},
		"opaque, equal": {
			reason: "equality counts",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "x1")
				s.shows("u1", "x1", false)
			},
		},
		"opaque, different": {
			reason: "nothing can be said, not even if it looks later",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "x1")
				s.shows("u1", "x2", false)
			},
			want: true,
		},
		"deleted, still there": {
			reason: "the next pass would delete again, or count it",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "90", false)
				w.Deleted(owner, configMaps, child, "u1")
			},
			want: true,
		},
		"deleted, gone": {
			reason: "seen",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "90", false)
				w.Deleted(owner, configMaps, child, "u1")
				s.lost("100")
			},
		},
		"deleted, going": {
			reason: "seen; a finalizer may hold it for hours",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "90", false)
				w.Deleted(owner, configMaps, child, "u1")
				s.shows("u1", "100", true)
			},
		},
		"deleted, another in its place": {
			reason: "what was deleted is gone",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "90", false)
				w.Deleted(owner, configMaps, child, "u1")
				s.shows("u2", "100", false)
			},
		},
		"written and deleted, cache knows neither": {
			reason: "not there may mean not yet there",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				w.Deleted(owner, configMaps, child, "u1")
				s.indexer.Bookmark("99")
			},
			want: true,
		},
		"written and deleted, cache past the write": {
			reason: "not there means gone",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				w.Deleted(owner, configMaps, child, "u1")
				s.lost("100")
			},
		},
		"recreated and deleted, cache has the one before": {
			reason: "an object of that name from before the write says nothing",
			do: func(w *informer.Writes, s source) {
				s.shows("u0", "90", false)
				w.Wrote(owner, configMaps, child, "u1", "100")
				w.Deleted(owner, configMaps, child, "u1")
			},
			want: true,
		},
		"deleted and made anew": {
			reason: "the write is awaited, not the delete",
			do: func(w *informer.Writes, s source) {
				s.shows("u1", "90", false)
				w.Deleted(owner, configMaps, child, "u1")
				w.Wrote(owner, configMaps, child, "u2", "110")
				s.lost("105")
			},
			want: true,
		},
		"a resource that is not cached": {
			reason: "there is no cache to wait for",
			do: func(w *informer.Writes, _ source) {
				w.Wrote(owner, corev1.SchemeGroupVersion.WithResource("secrets"), child, "u1", "100")
			},
		},
		"a namespace that is not watched": {
			reason: "there is no cache to wait for",
			do: func(w *informer.Writes, _ source) {
				w.Wrote(owner, configMaps, cache.NewObjectName("elsewhere", "child"), "u1", "100")
			},
		},
		"forgotten": {
			reason: "the owner is gone",
			do: func(w *informer.Writes, _ source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				w.Forget(owner)
			},
		},
		"R34 etcd set back": {
			reason: "version 100 may never come",
			do: func(w *informer.Writes, s source) {
				w.Wrote(owner, configMaps, child, "u1", "100")
				s.indexer.Bookmark("50")
				w.Reset(configMaps)
			},
		},
		"R97 another owner": {
			reason: "waits concern their owner alone",
			do: func(w *informer.Writes, _ source) {
				w.Wrote(cache.NewObjectName("ns", "somebody"), configMaps, child, "u1", "100")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource()
			w := informer.NewWrites(0, s)
			test.do(w, s)
			detail, since, pending := w.Pending(owner)
			if pending != test.want || since.IsZero() == pending || (detail == "") == pending {
				t.Errorf("%s: pending %v since %v: %q", test.reason, pending, since, detail)
			}
		})
	}
}

func TestWritesDetailNamesWhatIsAwaited(t *testing.T) {
	s := newSource()
	w := informer.NewWrites(0, s)
	s.indexer.Bookmark("90")
	w.Wrote(owner, configMaps, child, "u1", "100")
	if detail, _, _ := w.Pending(owner); detail != "configmaps ns/child at resourceVersion 100, cache is at 90" {
		t.Errorf("got %q", detail)
	}
	s.shows("u1", "100", false)
	w.Deleted(owner, configMaps, child, "u1")
	if detail, _, _ := w.Pending(owner); detail != "delete of configmaps ns/child, cache is at 100" {
		t.Errorf("got %q", detail)
	}
}

// rewindable is a source that can tell that etcd was set back, as an Informer can.
type rewindable struct {
	source
	rewind func()
}

func (r *rewindable) OnRewind(f func()) { r.rewind = f }

// A write of a history that is no more may never be seen: nobody waits for it.
func TestWritesAreForgottenWhenEtcdIsSetBack(t *testing.T) {
	r := &rewindable{source: newSource()}
	w := informer.NewWrites(0, r)
	w.Wrote(owner, configMaps, child, "uid", "7")
	if _, _, pending := w.Pending(owner); !pending {
		t.Fatal("nothing is awaited after a write")
	}
	r.rewind()
	if detail, _, pending := w.Pending(owner); pending {
		t.Errorf("still awaited: %s", detail)
	}
}

// R34, R97: past the bound an owner is not held up any more; its reconciler is
// told what to read from the API server instead.
func TestWritesOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		w := informer.NewWrites(10*time.Second, s)
		w.Wrote(owner, configMaps, child, "u1", "100")
		began := time.Now()
		time.Sleep(10*time.Second - 1)
		if _, since, pending := w.Pending(owner); !pending || !since.Equal(began) || len(w.Overdue(owner)) != 0 {
			t.Errorf("just before: pending %v since %v, overdue %v", pending, since, w.Overdue(owner))
		}
		time.Sleep(time.Nanosecond)
		want := []informer.Awaited{{Resource: configMaps, Child: child, UID: "u1", ResourceVersion: "100", Since: began}}
		if _, _, pending := w.Pending(owner); pending {
			t.Error("held up for longer than the bound")
		}
		if diff := cmp.Diff(want, w.Overdue(owner)); diff != "" {
			t.Errorf("overdue (-want +got):\n%s", diff)
		}

		// The pass that was let through writes again: no new wait for a child
		// that the cache has not shown for so long, but one for another child.
		w.Wrote(owner, configMaps, child, "u1", "120")
		if _, _, pending := w.Pending(owner); pending || len(w.Overdue(owner)) != 1 {
			t.Errorf("written again: pending %v, overdue %v", pending, w.Overdue(owner))
		}
		w.Wrote(owner, configMaps, cache.NewObjectName("ns", "other"), "u2", "121")
		if detail, _, pending := w.Pending(owner); !pending || !strings.Contains(detail, "ns/other") {
			t.Errorf("another child: pending %v %q", pending, detail)
		}

		s.indexer.Bookmark("121")
		if _, _, pending := w.Pending(owner); pending || w.Overdue(owner) != nil {
			t.Errorf("seen at last: pending %v, overdue %v", pending, w.Overdue(owner))
		}
		w.Wrote(owner, configMaps, child, "u1", "130")
		if _, since, pending := w.Pending(owner); !pending || !since.Equal(time.Now()) {
			t.Errorf("a new wait: pending %v since %v", pending, since)
		}
	})
}

// A child written every second with a lag below the bound is never overdue:
// each write is seen, though never the latest.
func TestWritesUnderSteadyLagAreNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		w := informer.NewWrites(10*time.Second, s)
		for n := range 100 {
			w.Wrote(owner, configMaps, child, "u1", strconv.Itoa(100+n))
			time.Sleep(time.Second)
			s.indexer.Bookmark(strconv.Itoa(100 + n))
		}
		w.Wrote(owner, configMaps, child, "u1", "200")
		if _, since, _ := w.Pending(owner); !since.Equal(time.Now()) || w.Overdue(owner) != nil {
			t.Errorf("pending since %v, overdue %v", since, w.Overdue(owner))
		}
	})
}

// Run with -race. Every owner's wait ends with its own write and not before.
func TestWritesConcurrently(t *testing.T) {
	s := newSource()
	w := informer.NewWrites(time.Hour, s)
	var wg sync.WaitGroup
	const owners, workers = 5000, 8
	for worker := range workers {
		wg.Go(func() {
			for n := worker; n < owners; n += workers {
				key, rv := cache.NewObjectName("ns", "owner"+strconv.Itoa(n)), strconv.Itoa(1000+n)
				w.Wrote(key, configMaps, cache.NewObjectName("ns", "child"+strconv.Itoa(n)), "u", rv)
				w.Deleted(key, configMaps, cache.NewObjectName("ns", "other"), "u")
				w.Pending(key)
				w.Overdue(key)
			}
		})
	}
	wg.Wait()
	s.indexer.Bookmark(strconv.Itoa(1000 + owners/2 - 1))
	for worker := range workers {
		wg.Go(func() {
			for n := worker; n < owners; n += workers {
				if _, _, pending := w.Pending(cache.NewObjectName("ns", "owner"+strconv.Itoa(n))); pending != (n >= owners/2) {
					t.Errorf("owner %d: pending %v", n, pending)
				}
			}
		})
	}
	wg.Wait()
	w.Reset(configMaps)
	for n := range owners {
		if _, _, pending := w.Pending(cache.NewObjectName("ns", fmt.Sprint("owner", n))); pending {
			t.Fatalf("owner %d is pending after Reset", n)
		}
	}
}

func BenchmarkWrites(b *testing.B) {
	s := newSource()
	w := informer.NewWrites(time.Hour, s)
	for n := range 5000 {
		w.Wrote(cache.NewObjectName("ns", "owner"+strconv.Itoa(n)), configMaps, child, "u", strconv.Itoa(1000+n))
	}
	n := 0
	for b.Loop() {
		key := cache.NewObjectName("ns", "owner"+strconv.Itoa(n%5000))
		w.Pending(key)
		w.Wrote(key, configMaps, child, "u", strconv.Itoa(10000+n))
		n++
	}
}
