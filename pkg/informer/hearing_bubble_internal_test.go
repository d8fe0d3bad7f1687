package informer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// heardInformer is an Informer of a fakeAPI that runs in a bubble.
type heardInformer struct {
	*Informer[*corev1.ConfigMap]
	t   *testing.T
	api *fakeAPI
	log func() string
	// arrived is when each revision of an object reached handlers first.
	mu      sync.Mutex
	arrived map[string]time.Time
	last    map[string]int
	deleted map[string]int
}

// hearInBubble runs test with an informer that has synced, unless the API server
// keeps it from that.
func hearInBubble(t *testing.T, c HearingConfig, a *fakeAPI, test func(i *heardInformer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.Config = &rest.Config{Host: "http://127.0.0.1:1"}
		h, err := NewHearing(c)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := New(Config[*corev1.ConfigMap]{
			Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Hearing: h,
			ListerWatcher: func(string) cache.ListerWatcherWithContext { return a },
		})
		if err != nil {
			t.Fatal(err)
		}
		inner.parts[0].listWatch.ear.asker = a
		i := &heardInformer{Informer: inner, t: t, api: a, arrived: map[string]time.Time{}, last: map[string]int{}, deleted: map[string]int{}}
		note := func(cm *corev1.ConfigMap) {
			i.mu.Lock()
			defer i.mu.Unlock()
			n := a.number(cm.ResourceVersion)
			if n < i.last[cm.Name] {
				t.Errorf("%s went back from %d to %d", cm.Name, i.last[cm.Name], n)
			}
			i.last[cm.Name] = n
			if key := cm.Name + "@" + cm.ResourceVersion; i.arrived[key].IsZero() {
				i.arrived[key] = time.Now()
			}
		}
		if _, err := inner.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{
			AddFunc:    func(cm *corev1.ConfigMap, _ bool) { note(cm) },
			UpdateFunc: func(_, cm *corev1.ConfigMap) { note(cm) },
			DeleteFunc: func(d cache.DeletedObject[*corev1.ConfigMap]) {
				i.mu.Lock()
				defer i.mu.Unlock()
				i.deleted[d.GetObjectName().Name]++
				delete(i.last, d.GetObjectName().Name)
			},
		}); err != nil {
			t.Fatal(err)
		}
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
		i.log = func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
		done := make(chan error)
		go func() { done <- inner.Run(ctx) }()
		defer func() {
			if t.Failed() {
				t.Logf("log:\n%s\n%+v\nrequests %v", i.log(), i.Snapshot(), a.counts())
			}
			cancel()
			began := time.Now()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("Run took %s to return", took)
			}
		}()
		i.wait(time.Second)
		test(i)
	})
}

func (i *heardInformer) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// has reports whether the copy is what the API server has.
func (i *heardInformer) current() bool {
	i.api.mu.Lock()
	defer i.api.mu.Unlock()
	if len(i.Indexer().ListKeys()) != len(i.api.objects) {
		return false
	}
	for name, cm := range i.api.objects {
		got, _, _ := i.Indexer().GetByKey("ns/" + name)
		if held, ok := got.(*corev1.ConfigMap); !ok || held.ResourceVersion != cm.ResourceVersion {
			return false
		}
	}
	return true
}

// within waits until ok, at most that long, and returns how long it took.
func (i *heardInformer) within(d time.Duration, what string, ok func() bool) time.Duration {
	i.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			i.t.Fatalf("not within %s: %s", d, what)
		}
		i.wait(100 * time.Millisecond)
	}
	return time.Since(began)
}

func (i *heardInformer) expectState(want State) {
	i.t.Helper()
	if s := i.Snapshot(); s.State != want {
		i.t.Errorf("state %q (%s), want %q", s.State, s.Message, want)
	}
}

func (i *heardInformer) expectRestarts(want map[string]uint64) {
	i.t.Helper()
	got := i.Snapshot().Restarts
	for reason, n := range got {
		if n != want[reason] {
			i.t.Errorf("%d restarts for %s, want %d", n, reason, want[reason])
		}
	}
}
