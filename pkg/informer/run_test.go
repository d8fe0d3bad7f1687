package informer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

// listerWatcher needs no network, so that it can run in a synctest bubble.
type listerWatcher struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (l listerWatcher) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return l.list(ctx, o)
}

func (l listerWatcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return l.watch(ctx, o)
}

func initialEvents(objects ...*corev1.ConfigMap) *watch.FakeWatcher {
	w := watch.NewFakeWithChanSize(len(objects)+10, false)
	for _, o := range objects {
		w.Add(o)
	}
	w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "10", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	return w
}

// Run returns when ctx ends and leaves nothing behind: synctest fails a bubble
// whose goroutines do not all end.
func TestRunJoinsWhatItStarted(t *testing.T) {
	hang := func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		<-ctx.Done()
		// A real call takes a moment to notice.
		time.Sleep(time.Second)
		return nil, ctx.Err()
	}
	// Whether a Reflector whose context has ended still lists is left to chance.
	onlyAtTheEnd := func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		if ctx.Err() == nil {
			t.Error("listed, although the WatchList is to be tried again")
		}
		return nil, ctx.Err()
	}
	noWatchList := func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		return nil, apierrors.NewBadRequest("no WatchList")
	}
	for name, test := range map[string]struct {
		reason string
		lw     listerWatcher
		synced bool
		within time.Duration
	}{
		"watching": {
			reason: "with more events under way than anybody takes",
			lw: listerWatcher{watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				w := initialEvents(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "9"}})
				for range 5 {
					w.Modify(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "11"}})
				}
				return w, nil
			}},
			synced: true,
		},
		"list hangs": {
			reason: "the Reflector does not wait for a list that its context has cancelled; Run does",
			lw:     listerWatcher{watch: noWatchList, list: hang}, within: time.Second,
		},
		"connection refused": {
			reason: "the Reflector's own wait between WatchLists does not heed its context and takes up to 60 s",
			lw: listerWatcher{list: onlyAtTheEnd, watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
			}},
		},
		"throttled": {
			reason: "the same",
			lw: listerWatcher{list: onlyAtTheEnd, watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, apierrors.NewTooManyRequests("later", 1)
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i, err := informer.New(informer.Config[*corev1.ConfigMap]{
					Resource: configMaps, Namespaces: []string{"a", "b"},
					ListerWatcher: func(string) cache.ListerWatcherWithContext { return test.lw },
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := i.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error)
				go func() { done <- i.Run(ctx) }()
				time.Sleep(10 * time.Minute) // well into the backoff
				synctest.Wait()
				if i.HasSynced() != test.synced || cache.IsDone(i.HasSyncedChecker()) != test.synced {
					t.Errorf("%s: synced %v, done %v", test.reason, i.HasSynced(), cache.IsDone(i.HasSyncedChecker()))
				}
				cancel()
				began := time.Now()
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(began); took > test.within {
					t.Errorf("%s: Run took %s to return, want at most %s", test.reason, took, test.within)
				}
				if err := i.Run(ctx); err == nil {
					t.Error("a second Run is not refused")
				}
				if _, err := i.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{}); err == nil {
					t.Error("a handler is accepted that will never be called")
				}
			})
		})
	}
}

// A kind that stays away costs two requests a try and is back within 60 s. The
// Reflector's backoff grows to 30 s and starts over every two minutes.
func TestRetryIsCappedAndHealsWithin60s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var missing atomic.Bool
		var requests atomic.Int64
		missing.Store(true)
		no := apierrors.NewGenericServerResponse(404, "get", configMaps.GroupResource(), "", "", 0, true)
		lw := listerWatcher{
			watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				if requests.Add(1); missing.Load() {
					return nil, no
				}
				return initialEvents(), nil
			},
			list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				requests.Add(1)
				return nil, no
			},
		}
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{Resource: configMaps, ListerWatcher: func(string) cache.ListerWatcherWithContext { return lw }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error)
		go func() { done <- i.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		requests.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := requests.Load(); n > 480 || n < 120 {
			t.Errorf("%d requests in an hour, want 120 to 480", n)
		}
		missing.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := i.Snapshot(); s.State != informer.StateHearing {
			t.Errorf("not back after 60 s: %+v", s)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Watches of fakes and of anything else are passed through as they are.
func TestWatchListIsSwitchedOffForClientsWithoutIt(t *testing.T) {
	for name, test := range map[string]struct {
		reason      string
		unsupported bool
		want        string
	}{
		"real": {reason: "clients support it unless they say otherwise", want: "watchlist"},
		"fake": {reason: "would never sync", unsupported: true, want: "list"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			clients := a.client(t)
			i, err := informer.New(informer.Config[*corev1.ConfigMap]{
				Resource:      configMaps,
				ListerWatcher: informer.ListWatch(semantics{test.unsupported}, clients.CoreV1().ConfigMaps),
			})
			if err != nil {
				t.Fatal(err)
			}
			start(t, i)
			waitSynced(t, i.HasSyncedChecker())
			if got := a.seen()[0]; got != test.want+" /api/v1/configmaps" {
				t.Errorf("%s: first request %q, want %q", test.reason, got, test.want)
			}
		})
	}
}

type semantics struct{ unsupported bool }

func (s semantics) IsWatchListSemanticsUnSupported() bool { return s.unsupported }

func TestNamespacedViewIsReadOnlyAndHonest(t *testing.T) {
	a := newAPIServer(t)
	a.put("a", "one", map[string]string{"ref": "x"})
	a.put("b", "two", map[string]string{"ref": "x"})
	i := newInformer(t, a, func(c *informer.Config[*corev1.ConfigMap]) {
		c.Namespaces = []string{"a", "b"}
		c.Indexers = cache.TypedIndexers[*corev1.ConfigMap]{"ref": func(cm *corev1.ConfigMap) ([]string, error) { return []string{cm.Data["ref"]}, nil }}
	})
	start(t, i)
	waitSynced(t, i.HasSyncedChecker())
	view := i.Indexer()

	if keys, err := view.IndexKeys("ref", "x"); err != nil || len(keys) != 2 {
		t.Errorf("IndexKeys: %v, %v", keys, err)
	}
	if found, err := view.ByIndex(cache.NamespaceIndex, "b"); err != nil || len(found) != 1 {
		t.Errorf("ByIndex: %v, %v", found, err)
	}
	if found, err := view.Index(cache.NamespaceIndex, &metav1.ObjectMeta{Namespace: "a"}); err != nil || len(found) != 1 {
		t.Errorf("Index: %v, %v", found, err)
	}
	if values := view.ListIndexFuncValues("ref"); len(values) != 1 {
		t.Errorf("ListIndexFuncValues: %v", values)
	}
	if len(view.List()) != 2 || len(view.ListKeys()) != 2 || len(view.GetIndexers()) != 2 {
		t.Errorf("List: %v, keys %v, indexers %v", view.List(), view.ListKeys(), view.GetIndexers())
	}
	if _, err := view.ByIndex("nope", "x"); err == nil {
		t.Error("an unknown index is no error")
	}
	two := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "two"}}
	if _, exists, err := view.Get(two); err != nil || !exists {
		t.Errorf("Get: %v, %v", exists, err)
	}
	if _, exists, err := view.GetByKey("b/none"); err != nil || exists {
		t.Errorf("GetByKey of an object that is not there: %v, %v", exists, err)
	}
	if _, _, err := view.GetByKey("c/three"); err == nil {
		t.Error("GetByKey in a namespace that is not watched says that the object does not exist")
	}
	for name, err := range map[string]error{
		"Add": view.Add(two), "Update": view.Update(two), "Delete": view.Delete(two),
		"Replace": view.Replace(nil, ""), "AddIndexers": view.AddIndexers(nil),
	} {
		if err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if errors.Join(view.Resync()) != nil || len(view.List()) != 2 {
		t.Error("changed")
	}
	if rv := view.LastStoreSyncResourceVersion(); rv != "102" {
		t.Errorf("LastStoreSyncResourceVersion: %q", rv)
	}
}
