package informer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

type configMapInformer = informer.Informer[*corev1.ConfigMap]

func newInformer(t *testing.T, a *apiServer, change func(*informer.Config[*corev1.ConfigMap])) *configMapInformer {
	t.Helper()
	clients := a.client(t)
	config := informer.Config[*corev1.ConfigMap]{
		Resource:      configMaps,
		ListerWatcher: informer.ListWatch(clients, clients.CoreV1().ConfigMaps),
	}
	if change != nil {
		change(&config)
	}
	i, err := informer.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// start runs i until the test ends and returns what it logs.
func start(t *testing.T, i interface{ Run(context.Context) error }) ktesting.Buffer {
	t.Helper()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return logger.GetSink().(ktesting.Underlier).GetBuffer()
}

func waitSynced(t *testing.T, checkers ...cache.DoneChecker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logr.Discard()), patience)
	defer cancel()
	if !cache.WaitFor(ctx, "", checkers...) {
		t.Fatalf("not synced within %s", patience)
	}
}

func has(i *configMapInformer, key string) func() (bool, any) {
	return func() (bool, any) {
		_, exists, err := i.Indexer().GetByKey(key)
		return exists && err == nil, i.Snapshot()
	}
}

func lines(b ktesting.Buffer, message string) (found []string) {
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.Contains(line, message) {
			found = append(found, line)
		}
	}
	return found
}

func TestSync(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		refuse func(verb, namespace string) *metav1.Status
		want   informer.Snapshot
	}{
		"WatchList": {
			reason: "the normal path: one watch that begins with the state, no list",
			want:   informer.Snapshot{Watches: 1, Events: map[watch.EventType]uint64{"ADDED": 3, "BOOKMARK": 1, "MODIFIED": 1}},
		},
		"LIST": {
			reason: "a server without WatchList: list, then watch",
			refuse: withoutWatchList,
			want:   informer.Snapshot{Lists: 1, Watches: 2, Events: map[watch.EventType]uint64{"ADDED": 1, "MODIFIED": 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			a.setRefuse(test.refuse)
			a.put("a", "one", nil)
			a.put("b", "two", nil)
			i := newInformer(t, a, nil)

			var mu sync.Mutex
			var got []string
			note := func(event, name string) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, event+" "+name)
			}
			registration, err := i.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{
				AddFunc: func(cm *corev1.ConfigMap, initial bool) {
					if initial {
						note("initial", cm.Name)
					} else {
						note("add", cm.Name)
					}
				},
				UpdateFunc: func(_, cm *corev1.ConfigMap) { note("update", cm.Name) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if s := i.Snapshot(); s.State != informer.StateStarting || i.HasSynced() {
				t.Errorf("before Run: %+v", s)
			}
			log := start(t, i)
			waitSynced(t, registration.HasSyncedChecker(), i.HasSyncedChecker())
			a.put("b", "two", map[string]string{"k": "v"})
			last := a.put("a", "three", nil)
			eventually(t, patience, "all handled", func() (bool, any) {
				mu.Lock()
				defer mu.Unlock()
				return len(got) == 4, slices.Clone(got)
			})
			slices.Sort(got[:2]) // the initial ones have no order
			if diff := cmp.Diff([]string{"initial one", "initial two", "update two", "add three"}, got); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", test.reason, diff)
			}

			lister := corelisters.NewConfigMapLister(i.Indexer())
			if cm, err := lister.ConfigMaps("b").Get("two"); err != nil || cm.Data["k"] != "v" || cm.ManagedFields != nil {
				t.Errorf("b/two: %v, %v", cm, err)
			}
			if in, err := lister.ConfigMaps("a").List(labels.Everything()); err != nil || len(in) != 2 {
				t.Errorf("in a: %v, %v", in, err)
			}

			s := i.Snapshot()
			test.want.Resource, test.want.State, test.want.Objects, test.want.ResourceVersion = "configmaps", informer.StateHearing, 3, last.ResourceVersion
			if diff := cmp.Diff(test.want, s, cmpopts.IgnoreFields(informer.Snapshot{}, "Restarts", "Since", "LastHeard")); diff != "" {
				t.Errorf("%s: snapshot (-want +got):\n%s", test.reason, diff)
			}
			if since := time.Since(s.LastHeard); since < 0 || since > 10*time.Second || s.Since.IsZero() {
				t.Errorf("times: %+v", s)
			}
			if log.String() != "" {
				t.Errorf("logged at verbosity 0: %s", log.String())
			}
		})
	}
}

// A kind that is refused is named and retried; the process stays up, others
// are not affected, and it heals by itself.
func TestUnlistableThenHealed(t *testing.T) {
	onlyWatch := func(verb, namespace string) *metav1.Status {
		if verb == "list" {
			return nil
		}
		return forbidden(verb, namespace)
	}
	for name, test := range map[string]struct {
		reason  string
		refuse  func(verb, namespace string) *metav1.Status
		want    informer.Reason
		message string
		remedy  string
		tries   []string
	}{
		"forbidden": {
			reason: "RBAC without list and watch", refuse: forbidden, want: informer.Forbidden,
			message: `configmaps is forbidden: User "test" cannot list resource`,
			remedy:  `grant list and watch on configmaps in namespace \"bad\" (Role) to the ServiceAccount`,
			tries:   []string{"watchlist", "list"},
		},
		"not found": {
			reason: "CRD missing", refuse: notFound, want: informer.NotFound,
			message: "the server could not find the requested resource",
			remedy:  "install the CRD that serves configmaps in version v1",
			tries:   []string{"watchlist", "list"},
		},
		"watch forbidden": {
			reason: "list granted, watch forgotten: looks synced, sees changes only when it lists", refuse: onlyWatch, want: informer.Forbidden,
			message: `configmaps is forbidden: User "test" cannot watch resource`,
			remedy:  "grant list and watch on configmaps",
			tries:   []string{"watchlist", "list", "watch"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPIServer(t)
			a.put("bad", "one", nil)
			a.put("good", "two", nil)
			a.setRefuse(func(verb, namespace string) *metav1.Status {
				if namespace == "good" {
					return nil
				}
				return test.refuse(verb, namespace)
			})
			bad := newInformer(t, a, func(c *informer.Config[*corev1.ConfigMap]) { c.Namespaces = []string{"bad"} })
			good := newInformer(t, a, func(c *informer.Config[*corev1.ConfigMap]) { c.Namespaces = []string{"good"} })
			log := start(t, bad)
			start(t, good)
			waitSynced(t, good.HasSyncedChecker())

			eventually(t, patience, "two tries refused", func() (bool, any) {
				requests := refusedRequests(a)
				return len(requests) >= 2*len(test.tries), requests
			})
			eventually(t, patience, "named", func() (bool, any) {
				s := bad.Snapshot()
				return s.State == informer.StateUnlistable && s.Reason == test.want && s.Message == test.message && !s.Since.IsZero(), s
			})
			if got := refusedRequests(a)[:len(test.tries)]; !slices.Equal(got, test.tries) {
				t.Errorf("%s: requests of a try: %v, want %v", test.reason, got, test.tries)
			}
			if s := good.Snapshot(); s.State != informer.StateHearing || s.Lists != 0 {
				t.Errorf("the other informer is affected: %+v", s)
			}
			named := lines(log, "Cannot list or watch")
			if len(named) != 1 || !strings.Contains(named[0], test.remedy) {
				t.Errorf("%s: want one line with %q, got %q", test.reason, test.remedy, named)
			}

			if healed := lines(log, "Can list and watch again"); len(healed) != 0 {
				t.Errorf("%s: said to be over while it lasts: %q", test.reason, healed)
			}

			a.setRefuse(nil)
			waitSynced(t, bad.HasSyncedChecker())
			eventually(t, patience, "healed", func() (bool, any) {
				s := bad.Snapshot()
				return s.State == informer.StateHearing && s.Reason == "" && s.Message == "" && s.Objects == 1, s
			})
			if healed := lines(log, "Can list and watch again"); len(healed) != 1 {
				t.Errorf("want one line that it is over, got %q", healed)
			}
			if other := strings.Count(log.String(), "\n"); other != 2 {
				t.Errorf("want two lines in all, got %d:\n%s", other, log.String())
			}
		})
	}
}

func refusedRequests(a *apiServer) (verbs []string) {
	for _, r := range a.seen() {
		if verb, path, _ := strings.Cut(r, " "); strings.Contains(path, "/bad/") {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// R83: a CRD deleted while running and installed again later.
func TestR83CRDDeletedWhileRunning(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		told   bool
	}{
		"with DELETED events": {reason: "what the API server does", told: true},
		"DELETED missed":      {reason: "the connection broke before: the relist finds out", told: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPIServer(t)
			a.put("a", "old", nil)
			i := newInformer(t, a, nil)
			start(t, i)
			waitSynced(t, i.HasSyncedChecker())

			a.setRefuse(notFound)
			a.remove("a", "old", test.told)
			eventually(t, patience, "told or not", func() (bool, any) {
				return i.Snapshot().Objects == 0 == test.told, i.Snapshot()
			})
			a.endWatches()
			eventually(t, patience, "named", func() (bool, any) {
				s := i.Snapshot()
				return s.State == informer.StateUnlistable && s.Reason == informer.NotFound, s
			})
			a.setRefuse(nil)
			a.put("a", "new", nil)
			eventually(t, patience, "the new object only: "+test.reason, func() (bool, any) {
				s := i.Snapshot()
				ok, _ := has(i, "a/new")()
				return ok && s.Objects == 1 && s.State == informer.StateHearing, s
			})
		})
	}
}

// R82: limited to namespaces, no request may need more than a Role.
func TestR82NamespacesSendNoClusterWideRequest(t *testing.T) {
	a := newAPIServer(t)
	a.put("a", "one", nil)
	a.put("b", "two", nil)
	a.put("c", "three", nil)
	a.setRefuse(func(verb, namespace string) *metav1.Status {
		if namespace == "" {
			return forbidden(verb, namespace)
		}
		return withoutWatchList(verb, namespace) // lists too
	})
	i := newInformer(t, a, func(c *informer.Config[*corev1.ConfigMap]) { c.Namespaces = []string{"b", "a"} })
	var mu sync.Mutex
	handled := 0
	registration, err := i.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{
		AddFunc: func(*corev1.ConfigMap, bool) {
			mu.Lock()
			defer mu.Unlock()
			handled++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, i)
	waitSynced(t, registration.HasSyncedChecker(), i.HasSyncedChecker())
	if !registration.HasSynced() || !i.HasSynced() {
		t.Error("HasSynced differs from its checker")
	}
	if late, err := i.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{}); err != nil {
		t.Error(err)
	} else {
		waitSynced(t, late.HasSyncedChecker()) // a handler added while running
	}
	a.put("b", "four", nil)
	eventually(t, patience, "b/four", has(i, "b/four"))
	eventually(t, patience, "handled", func() (bool, any) {
		mu.Lock()
		defer mu.Unlock()
		return handled == 3, handled
	})
	for _, r := range a.seen() {
		if !strings.Contains(r, "/namespaces/a/") && !strings.Contains(r, "/namespaces/b/") {
			t.Errorf("request outside of the namespaces: %s", r)
		}
	}

	s := i.Snapshot()
	if s.Objects != 3 || s.Lists != 2 || s.State != informer.StateHearing || s.ResourceVersion != "" || len(s.Namespaces) != 2 || s.Namespaces[1].Namespace != "b" || s.Namespaces[1].Objects != 2 {
		t.Errorf("snapshot: %+v", s)
	}

	a.setRefuse(func(verb, namespace string) *metav1.Status {
		if namespace == "b" {
			return forbidden(verb, namespace)
		}
		return nil
	})
	a.endWatches()
	eventually(t, patience, "the worst state wins", func() (bool, any) {
		s := i.Snapshot()
		return s.State == informer.StateUnlistable && s.Reason == informer.Forbidden && s.Namespaces[0].State == informer.StateHearing && s.Namespaces[1].State == informer.StateUnlistable, s
	})
}

func TestIndexFailureIsContained(t *testing.T) {
	a := newAPIServer(t)
	a.put("a", "good", map[string]string{"ref": "x"})
	a.put("a", "panics", map[string]string{"ref": "panic"})
	a.put("a", "errs", map[string]string{"ref": "error"})
	i := newInformer(t, a, func(c *informer.Config[*corev1.ConfigMap]) {
		c.Indexers = cache.TypedIndexers[*corev1.ConfigMap]{"ref": func(cm *corev1.ConfigMap) ([]string, error) {
			switch cm.Data["ref"] {
			case "panic":
				panic("no such thing")
			case "error":
				return nil, errors.New("cannot say")
			}
			return []string{cm.Data["ref"]}, nil
		}}
	})
	log := start(t, i)
	waitSynced(t, i.HasSyncedChecker())
	if found, err := i.Indexer().IndexKeys("ref", "x"); err != nil || !slices.Equal(found, []string{"a/good"}) {
		t.Errorf("by index: %v, %v", found, err)
	}
	s := i.Snapshot()
	if s.Objects != 3 || len(s.IndexFailures) != 1 {
		t.Fatalf("snapshot: %+v", s)
	}
	if f := s.IndexFailures[0]; f.Index != "ref" || f.Objects != 2 || !slices.Equal(f.Keys, []string{"a/errs", "a/panics"}) || f.Calls < 2 || f.Error == "" {
		t.Errorf("failures: %+v", f)
	}
	if named := lines(log, "Index function failed"); len(named) != 1 {
		t.Errorf("want one line, got %q", named)
	}

	a.put("a", "panics", map[string]string{"ref": "x"})
	a.remove("a", "errs", true)
	eventually(t, patience, "mended, and gone", func() (bool, any) {
		found, _ := i.Indexer().IndexKeys("ref", "x")
		s := i.Snapshot()
		return len(found) == 2 && s.Objects == 2 && len(s.IndexFailures) == 1 && s.IndexFailures[0].Objects == 0 && s.IndexFailures[0].Calls > 2, s
	})
}

func TestHandlerPanicIsContained(t *testing.T) {
	a := newAPIServer(t)
	a.put("a", "one", nil)
	i := newInformer(t, a, nil)
	boom := cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{
		AddFunc:    func(*corev1.ConfigMap, bool) { panic("add") },
		UpdateFunc: func(*corev1.ConfigMap, *corev1.ConfigMap) { panic("update") },
		DeleteFunc: func(cache.DeletedObject[*corev1.ConfigMap]) { panic("delete") },
	}
	registration, err := i.AddHandler(boom)
	if err != nil {
		t.Fatal(err)
	}
	log := start(t, i)
	waitSynced(t, registration.HasSyncedChecker())
	a.put("a", "one", map[string]string{"k": "v"})
	a.remove("a", "one", true)
	eventually(t, patience, "three panics counted", func() (bool, any) {
		s := i.Snapshot()
		return s.HandlerPanics == 3 && s.Objects == 0, s
	})
	if named := lines(log, "Event handler panicked"); len(named) != 1 || !strings.Contains(log.String(), "TestHandlerPanicIsContained") {
		t.Errorf("want one line, with the stack, got:\n%s", log.String())
	}
}

func TestKeepManagedFields(t *testing.T) {
	a := newAPIServer(t)
	a.put("a", "one", nil)
	i := newInformer(t, a, func(c *informer.Config[*corev1.ConfigMap]) { c.KeepManagedFields = true })
	start(t, i)
	waitSynced(t, i.HasSyncedChecker())
	cm, err := corelisters.NewConfigMapLister(i.Indexer()).ConfigMaps("a").Get("one")
	if err != nil || len(cm.ManagedFields) != 1 {
		t.Errorf("a/one: %v, %v", cm, err)
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	type config = informer.Config[*corev1.ConfigMap]
	for name, test := range map[string]struct {
		reason string
		change func(*config)
		want   string
	}{
		"no resource":         {reason: "required", change: func(c *config) { c.Resource.Resource = "" }, want: "Config.Resource"},
		"no ListerWatcher":    {reason: "required", change: func(c *config) { c.ListerWatcher = nil }, want: "Config.ListerWatcher is nil"},
		"nil ListerWatcher":   {reason: "would panic later", change: func(c *config) { c.ListerWatcher = func(string) cache.ListerWatcherWithContext { return nil } }, want: `Config.ListerWatcher("") returned nil`},
		"empty namespace":     {reason: "would mean all", change: func(c *config) { c.Namespaces = []string{"a", ""} }, want: "Config.Namespaces[1] is empty"},
		"duplicate namespace": {reason: "would deliver twice", change: func(c *config) { c.Namespaces = []string{"a", "b", "a"} }, want: `Config.Namespaces names "a" twice`},
		"reserved index":      {reason: "listers need the real one", change: func(c *config) { c.Indexers = cache.TypedIndexers[*corev1.ConfigMap]{"namespace": nil} }, want: `Config.Indexers has "namespace"`},
		"nil index function":  {reason: "would panic on every object", change: func(c *config) { c.Indexers = cache.TypedIndexers[*corev1.ConfigMap]{"x": nil} }, want: `Config.Indexers["x"] is nil`},
	} {
		t.Run(name, func(t *testing.T) {
			clients := newAPIServer(t).client(t)
			c := config{Resource: configMaps, ListerWatcher: informer.ListWatch(clients, clients.CoreV1().ConfigMaps)}
			test.change(&c)
			if _, err := informer.New(c); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v, want an error with %q", test.reason, err, test.want)
			}
		})
	}
	_, err := informer.New(informer.Config[*metav1.ObjectMeta]{Resource: configMaps, ListerWatcher: func(string) cache.ListerWatcherWithContext { return nil }})
	if err == nil || !strings.Contains(err.Error(), "no pointer to an API type") {
		t.Errorf("a type that is no runtime.Object: %v", err)
	}
}
