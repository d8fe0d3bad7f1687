package informer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var webApps = platformv1alpha1.SchemeGroupVersion.WithResource("webapps")

// apps is an informer of WebApps and what it has told.
type apps struct {
	*informer.Informer[*platformv1alpha1.WebApp]
	log ktesting.Buffer

	mu     sync.Mutex
	events []string
	told   []string
	owners []string // woken by what is told
}

func startApps(t *testing.T, clients versioned.Interface, namespaces ...string) *apps {
	t.Helper()
	a, registration := newApps(t, clients, namespaces...)
	a.log = start(t, a.Informer)
	waitSynced(t, registration, a.HasSyncedChecker())
	return a
}

// newApps makes one and does not run it.
func newApps(t *testing.T, clients versioned.Interface, namespaces ...string) (*apps, cache.DoneChecker) {
	t.Helper()
	i, err := informer.New(informer.Config[*platformv1alpha1.WebApp]{
		Resource:      webApps,
		ListerWatcher: informer.Tolerant(clients.PlatformV1alpha1().RESTClient()),
		Namespaces:    namespaces,
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &apps{Informer: i}
	note := func(into *[]string, format string, args ...any) {
		a.mu.Lock()
		defer a.mu.Unlock()
		*into = append(*into, fmt.Sprintf(format, args...))
	}
	registration, err := i.AddHandler(cache.TypedResourceEventHandlerDetailedFuncs[*platformv1alpha1.WebApp]{
		AddFunc: func(o *platformv1alpha1.WebApp, _ bool) { note(&a.events, "add %s %s", o.Name, o.Spec.Image) },
		UpdateFunc: func(old, o *platformv1alpha1.WebApp) {
			if old.ResourceVersion != o.ResourceVersion {
				note(&a.events, "update %s %s", o.Name, o.Spec.Image)
			}
			if _, bad := a.Quarantined(cache.MetaObjectToName(o)); bad && old.ResourceVersion != o.ResourceVersion {
				t.Errorf("handlers get a good version of %s, which counts as bad", o.Name)
			}
		},
		DeleteFunc: func(d cache.DeletedObject[*platformv1alpha1.WebApp]) {
			image, uid := "", ""
			if d.OptionalObj != nil {
				image, uid = d.OptionalObj.Spec.Image, string(d.OptionalObj.UID)
			}
			note(&a.events, "delete %s %s %s", d.GetObjectName().Name, image, uid)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.OnQuarantine(func(record informer.Quarantined, entered bool) {
		key := record.Key
		for _, o := range record.OwnerReferences {
			note(&a.owners, "%s of %s", o.Name, key.Name)
		}
		_, now := a.Quarantined(key)
		if now != entered {
			t.Errorf("told that %s is bad: %v, but the record says %v", key, entered, now)
		}
		note(&a.told, "%s %v", key.Name, entered)
	})
	return a, registration.HasSyncedChecker()
}

// state is what can be seen of an informer: what is cached ("name image"), what
// is set aside ("name path value"), events and notifications since the last call.
type state struct {
	Cached, Bad, Events, Told []string
}

func (a *apps) state() state {
	s := state{Cached: []string{}, Bad: []string{}}
	for _, o := range a.Indexer().List() {
		app := o.(*platformv1alpha1.WebApp)
		s.Cached = append(s.Cached, strings.TrimSpace(app.Name+" "+app.Spec.Image))
	}
	slices.Sort(s.Cached)
	page, _ := a.QuarantineList(0, cache.ObjectName{})
	for _, q := range page {
		s.Bad = append(s.Bad, q.Key.Name+" "+q.Fields[0].Path+" "+q.Fields[0].Value)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Events, s.Told = slices.Clone(a.events), slices.Clone(a.told)
	return s
}

// expect waits for a state and forgets the events that led there.
func (a *apps) expect(t *testing.T, what string, want state) {
	t.Helper()
	norm := func(s state) state {
		for _, l := range []*[]string{&s.Cached, &s.Bad, &s.Events, &s.Told} {
			if len(*l) == 0 {
				*l = nil
			}
			slices.Sort(*l)
		}
		return s
	}
	want = norm(want)
	eventually(t, patience, what, func() (bool, any) {
		diff := cmp.Diff(want, norm(a.state()))
		return diff == "", diff
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events, a.told = nil, nil
}

// reaches waits for the watch to have handed on everything up to rv: it tells so after
// it has, and who asks because of what came before may be earlier.
func (a *apps) reaches(t *testing.T, rv string) {
	t.Helper()
	eventually(t, patience, "the watch gets to "+rv, func() (bool, any) {
		got := a.Snapshot().ResourceVersion
		return got == rv, got
	})
}

const (
	goodSpec = `{"image":"v1"}`
	badSpec  = `{"image":"v2","drainTimeout":"360d"}`
)

var badField = "spec.drainTimeout \"360d\""

// modes are the ways in which a local copy is filled.
var modes = map[string]func(*rawServer){
	"LIST":      func(s *rawServer) { s.setRefuse(noWatchList) },
	"paged":     func(s *rawServer) { s.setRefuse(noWatchList); s.pageSize = 2 },
	"WatchList": func(*rawServer) {},
}

// The life of bad objects, seen by each way of filling, by relists and by WATCH.
func TestQuarantine(t *testing.T) {
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newRawServer(t)
			modes[mode](s)
			s.put("a", goodSpec, "")
			s.put("bad", badSpec, `,"finalizers":["x/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Own","name":"o","uid":"u"}]`)
			s.put("c", goodSpec, "")
			s.put("d", goodSpec, "")
			a := startApps(t, s.client(t))
			all := []string{"a v1", "c v1", "d v1"}
			a.expect(t, "R04 bad from the start", state{Cached: all, Bad: []string{"bad " + badField},
				Events: []string{"add a v1", "add c v1", "add d v1"}, Told: []string{"bad true"}})
			q, ok := a.Quarantined(cache.NewObjectName("default", "bad"))
			if !ok || q.UID != "uid-102" || q.ResourceVersion != "102" || len(q.Finalizers) != 1 || len(q.OwnerReferences) != 1 || q.Resource != webApps || q.FirstSeen.IsZero() {
				t.Errorf("record %+v, %v", q, ok)
			}
			wantFix := []string{`kubectl patch webapps.v1alpha1.platform.tejo.dev bad -n default --type=merge -p '{"spec":{"drainTimeout":"<duration such as 30s>"}}'`}
			if diff := cmp.Diff(wantFix, q.Fix); diff != "" {
				t.Errorf("fix (-want +got):\n%s", diff)
			}

			rv := s.put("a", badSpec, "")
			a.expect(t, "R01 good→bad", state{Cached: all, Bad: []string{"a " + badField, "bad " + badField}, Told: []string{"a true"}})
			a.reaches(t, rv)
			before := len(s.asked("watch"))
			if rewatch(t, s, a); lastRV(s.asked("watch")) != rv || len(s.asked("watch")) <= before {
				t.Errorf("watched again from %s, want %s: %d watches", lastRV(s.asked("watch")), rv, len(s.asked("watch")))
			}

			s.put("a", `{"image":"v3","replicas":"two"}`, "")
			a.expect(t, "R13 bad→other bad", state{Cached: all, Bad: []string{`a spec.replicas "two"`, "bad " + badField}, Told: []string{"a true"}})
			first, _ := a.Quarantined(cache.NewObjectName("default", "a"))
			s.put("a", `{"image":"v4","replicas":"two"}`, "")
			eventually(t, patience, "written again", func() (bool, any) {
				again, _ := a.Quarantined(first.Key)
				return again.ResourceVersion != first.ResourceVersion && again.FirstSeen.Equal(first.FirstSeen) && !again.LastSeen.Before(first.LastSeen), again
			})

			lists := len(s.asked("list")) + len(s.asked("watchlist"))
			s.relist(func() { s.put("c", `{"image":"v2"}`, "") })
			all = []string{"a v1", "c v2", "d v1"}
			a.expect(t, "relist while bad: nothing is reported as deleted", state{Cached: all,
				Bad: []string{`a spec.replicas "two"`, "bad " + badField}, Events: []string{"update c v2"}})
			if n := len(s.asked("list")) + len(s.asked("watchlist")); n <= lists {
				t.Error("there was no relist")
			}

			s.relist(func() { s.put("d", badSpec, "") })
			a.expect(t, "R10 bad while the watch was down", state{Cached: all,
				Bad: []string{`a spec.replicas "two"`, "bad " + badField, "d " + badField}, Told: []string{"d true"}})

			s.put("bad", `{"image":"fixed"}`, "")
			a.expect(t, "R02 bad→good, never seen good before", state{Cached: []string{"a v1", "bad fixed", "c v2", "d v1"},
				Bad: []string{`a spec.replicas "two"`, "d " + badField}, Events: []string{"add bad fixed"}, Told: []string{"bad false"}})
			s.put("a", `{"image":"v5"}`, "")
			a.expect(t, "bad→good", state{Cached: []string{"a v5", "bad fixed", "c v2", "d v1"}, Bad: []string{"d " + badField},
				Events: []string{"update a v5"}, Told: []string{"a false"}})

			s.remove("d", true)
			a.expect(t, "bad→deleted, with its last good version", state{Cached: []string{"a v5", "bad fixed", "c v2"},
				Events: []string{"delete d v1 uid-104"}, Told: []string{"d false"}})
			s.put("e", badSpec, "")
			a.expect(t, "created bad", state{Cached: []string{"a v5", "bad fixed", "c v2"}, Bad: []string{"e " + badField}, Told: []string{"e true"}})
			e, _ := a.Quarantined(cache.NewObjectName("default", "e"))
			s.remove("e", true)
			a.expect(t, "created bad→deleted, metadata alone", state{Cached: []string{"a v5", "bad fixed", "c v2"},
				Events: []string{"delete e  " + string(e.UID)}, Told: []string{"e false"}})

			s.relist(func() { s.remove("c", false); s.put("c", badSpec, "") })
			a.expect(t, "deleted and created bad while the watch was down: the good one is gone", state{Cached: []string{"a v5", "bad fixed"},
				Bad: []string{"c " + badField}, Events: []string{"delete c v2 uid-103"}, Told: []string{"c true"}})
			s.remove("bad", false)
			rv = s.put("bad", badSpec, "")
			a.expect(t, "another object of that name, its delete not seen", state{Cached: []string{"a v5"},
				Bad: []string{"bad " + badField, "c " + badField}, Events: []string{"delete bad fixed uid-102"}, Told: []string{"bad true"}})
			a.reaches(t, rv)
			s.relist(func() { s.remove("bad", false); s.put("c", `{"image":"v6"}`, "") })
			a.expect(t, "relist without the bad one, and with one mended", state{Cached: []string{"a v5", "c v6"},
				Events: []string{"add c v6"}, Told: []string{"bad false", "c false"}})
			if snapshot := a.Snapshot(); snapshot.Quarantined != 0 || snapshot.QuarantinedTotal != 6 || snapshot.Unreadable != 0 {
				t.Errorf("%+v", snapshot)
			}
			for _, r := range append(s.asked("list"), s.asked("watch")...) {
				if r.Get("accept") != "application/json" {
					t.Errorf("asked for %q", r.Get("accept"))
				}
			}
			checkLog(t, a.log, "Object cannot be decoded, it is set aside", 7)
		})
	}
}

// rewatch ends the open watch and waits for the next. client-go
// lists again after a watch that ended within its first second without events;
// this one has had some.
func rewatch(t *testing.T, s *rawServer, a *apps) {
	t.Helper()
	watches := len(s.asked("watch"))
	s.endWatches()
	eventually(t, patience, "watched again", func() (bool, any) { return len(s.asked("watch")) > watches, a.Snapshot() })
}

func checkLog(t *testing.T, log ktesting.Buffer, message string, want int) {
	t.Helper()
	found := lines(log, message)
	if len(found) != want {
		t.Errorf("%d lines %q, want %d:\n%s", len(found), message, want, log.String())
	}
	for _, line := range found {
		for _, part := range []string{`resource="webapps.platform.tejo.dev"`, `object="default/`, `field="spec.`, "value=", "reason=", "kubectl patch"} {
			if !strings.Contains(line, part) {
				t.Errorf("%q lacks %q", line, part)
			}
		}
	}
}
