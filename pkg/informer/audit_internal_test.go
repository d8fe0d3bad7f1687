package informer

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// held is a listing, or what was delivered: name to UID and resourceVersion.
type held map[string]mark

func (h held) listing(resourceVersion string) *listing {
	l := &listing{resourceVersion: resourceVersion, objects: map[cache.ObjectName]mark{}}
	for name, m := range h {
		l.objects[cache.NewObjectName("ns", name)] = m
	}
	return l
}

func (h held) record(q *quarantine, heard string) *record {
	r := newRecord(q)
	f := r.begin()
	for name, m := range h {
		f.put(cache.NewObjectName("ns", name), m)
	}
	f.commit(heard)
	return r
}

func at(uid types.UID, resourceVersion string) mark {
	return mark{uid: uid, resourceVersion: resourceVersion}
}

// auditOf is an auditor with one answer.
type auditOf struct {
	*listing
	during func()
}

func (a auditOf) list(context.Context) (*listing, error) {
	if a.during != nil {
		a.during()
	}
	return a.listing, nil
}

func metaOf(name string, m mark) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: m.uid, ResourceVersion: m.resourceVersion, Generation: m.generation,
	}}
}

func TestAuditCompares(t *testing.T) {
	for name, test := range map[string]struct {
		reason    string
		delivered held
		heard     string
		aside     held
		during    func(*record) // while the API server is listing
		holds     held
		revision  string
		rewound   bool
		want      map[string]bool // differences; true: passed
	}{
		"equal": {
			reason:    "nothing to find",
			delivered: held{"a": at("1", "10")}, heard: "20", holds: held{"a": at("1", "10")}, revision: "20",
		},
		"missing": {
			reason:    "created, and not delivered yet",
			delivered: held{}, heard: "9", holds: held{"a": at("1", "10")}, revision: "20", want: map[string]bool{"a": false},
		},
		"outdated": {
			reason:    "changed, and not delivered yet",
			delivered: held{"a": at("1", "8")}, heard: "9", holds: held{"a": at("1", "10")}, revision: "20", want: map[string]bool{"a": false},
		},
		"deleted": {
			reason:    "deleted, and not delivered yet",
			delivered: held{"a": at("1", "8")}, heard: "9", holds: held{}, revision: "20", want: map[string]bool{"a": false},
		},
		"made anew": {
			reason:    "deleted and created",
			delivered: held{"a": at("1", "8")}, heard: "9", holds: held{"a": at("2", "15")}, revision: "20", want: map[string]bool{"a": false},
		},
		"lost": {
			reason:    "the watch has gone on without it: no watch from there brings it",
			delivered: held{"a": at("1", "8"), "c": at("3", "8")}, heard: "30",
			holds: held{"a": at("1", "10"), "b": at("2", "12")}, revision: "30", want: map[string]bool{"a": true, "b": true, "c": true},
		},
		"newer than the listing": {
			reason:    "delivered while the API server was listing: no difference",
			delivered: held{"a": at("1", "8")}, heard: "20", holds: held{"a": at("1", "8")}, revision: "20",
			during: func(r *record) {
				r.see(watch.Modified, metaOf("a", at("1", "21")))
				r.see(watch.Added, metaOf("b", at("2", "22")))
			},
		},
		"deleted after the listing": {
			reason:    "cannot be told from lost yet: a doubt, not a difference that a watch would bring",
			delivered: held{"a": at("1", "8")}, heard: "20", holds: held{"a": at("1", "8")}, revision: "20",
			during: func(r *record) { r.see(watch.Deleted, metaOf("a", at("1", "21"))) },
			want:   map[string]bool{"a": true},
		},
		"set aside": {
			reason:    "bad objects differ from the cache by design: they count as delivered",
			delivered: held{"a": at("1", "8")}, heard: "20", aside: held{"a": at("1", "10"), "b": at("2", "12")},
			holds: held{"a": at("1", "10"), "b": at("2", "12")}, revision: "20",
		},
		"set aside and changed": {
			reason:    "so that what is bad still has to be delivered",
			delivered: held{"a": at("1", "8")}, heard: "9", aside: held{"a": at("1", "9"), "b": at("2", "9")},
			holds: held{"a": at("1", "10")}, revision: "20", want: map[string]bool{"a": false, "b": false},
		},
		"set back": {
			reason:    "etcd's revision was higher once",
			delivered: held{"a": at("1", "8")}, heard: "30", holds: held{"a": at("1", "8")}, revision: "20", rewound: true,
		},
		"set back and outgrown": {
			reason:    "the revision has grown beyond the one heard since, but what was delivered at 15 cannot have been at 12 at revision 40",
			delivered: held{"a": at("1", "15")}, heard: "30", holds: held{"a": at("1", "12")}, revision: "40", rewound: true,
		},
		"opaque": {
			reason:    "equality only",
			delivered: held{"a": at("1", "x"), "b": at("2", "y"), "c": at("3", "z")}, heard: "h",
			holds: held{"a": at("1", "x"), "b": at("2", "Y")}, revision: "i", want: map[string]bool{"b": false, "c": false},
		},
		"opaque and delivered meanwhile": {
			reason:    "whether before or after the listing nobody knows",
			delivered: held{"b": at("2", "y")}, heard: "h", holds: held{"b": at("2", "Y")}, revision: "i",
			during: func(r *record) { r.see(watch.Modified, metaOf("b", at("2", "Z"))) },
		},
		"opaque and set aside": {
			reason:    "nobody notes when",
			delivered: held{"a": at("1", "x")}, heard: "h", aside: held{"a": at("1", "y"), "b": at("2", "y")},
			holds: held{"a": at("1", "Y")}, revision: "i",
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuarantine(widgets, nil, nil)
			for name, m := range test.aside {
				key := cache.NewObjectName("ns", name)
				q.records[key] = &Quarantined{Key: key, UID: m.uid, ResourceVersion: m.resourceVersion}
			}
			r := test.delivered.record(q, test.heard)
			a := auditOf{listing: test.holds.listing(test.revision)}
			if test.during != nil {
				a.during = func() { test.during(r) }
			}
			got, err := newLedger(r).audit(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			var found map[string]bool
			for _, d := range got.differences {
				if found == nil {
					found = map[string]bool{}
				}
				found[d.key.Name] = d.passed
				m, ok := r.get(d.key)
				if _, held := test.holds[d.key.Name]; d.missing() == ok || d.gone() == held || ok && d.delivered != m {
					t.Errorf("%s: %+v, delivered %+v", d.key, d, m)
				}
			}
			if diff := gocmp.Diff(test.want, found); diff != "" || got.rewound != test.rewound {
				t.Errorf("%s: rewound %t; -want +got:\n%s", test.reason, got.rewound, diff)
			}
		})
	}
}

// What an audit finds counts once it has outlived the grace, and no longer if it is
// delivered before.
func TestLedgerGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := held{"a": at("1", "8"), "b": at("2", "8"), "c": at("3", "8"), "d": at("4", "8")}.record(nil, "9")
		l := newLedger(r)
		now := held{"a": at("1", "10"), "b": at("5", "12"), "d": at("4", "14"), "e": at("6", "16")}
		if _, err := l.audit(t.Context(), auditOf{listing: now.listing("20")}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		overdue := func() (names []string) {
			all, _ := l.overdue(5 * time.Second)
			slices.SortFunc(all, func(a, b difference) int { return cmp.Compare(a.key.Name, b.key.Name) })
			for _, d := range all {
				names = append(names, d.key.Name)
			}
			return names
		}
		if names := overdue(); len(names) > 0 {
			t.Errorf("overdue at once: %v", names)
		}
		if _, next := l.overdue(5 * time.Second); !next.Equal(began.Add(5 * time.Second)) {
			t.Errorf("next: %v", next)
		}
		time.Sleep(4 * time.Second)
		r.put(cache.NewObjectName("ns", "a"), at("1", "10"))
		r.put(cache.NewObjectName("ns", "e"), at("6", "21"))
		r.drop(cache.NewObjectName("ns", "c"))
		time.Sleep(time.Second)
		if diff := gocmp.Diff([]string{"b", "d"}, overdue()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		r.hear("13")
		if diff := gocmp.Diff([]string{"d"}, overdue()); diff != "" {
			t.Errorf("the revision heard has passed b: -want +got:\n%s", diff)
		}
		// Another audit does not make it younger, and brings back what has settled by
		// the revision alone.
		if _, err := l.audit(t.Context(), auditOf{listing: now.listing("20")}); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]string{"b", "d"}, overdue()); diff != "" {
			t.Errorf("after another audit: -want +got:\n%s", diff)
		}
	})
}

// A list replaces the record at its end and as a whole; polling does not move the
// revision heard before it says so.
func TestRecord(t *testing.T) {
	a, b, c := cache.NewObjectName("ns", "a"), cache.NewObjectName("ns", "b"), cache.NewObjectName("ns", "c")
	r := held{"a": at("1", "8"), "b": at("2", "8")}.record(nil, "9")
	f := r.begin()
	f.see(watch.Added, metaOf("b", at("2", "12")))
	f.see(watch.Added, metaOf("c", at("3", "13")))
	f.see(watch.Deleted, metaOf("c", at("3", "14")))
	if _, ok := r.get(a); !ok || r.heard() != "9" {
		t.Error("changed before the list is complete")
	}
	f.commit("5") // after a rewind
	if _, ok := r.get(a); ok || r.heard() != "5" || r.len() != 1 {
		t.Errorf("after the list: heard %s, %d objects", r.heard(), r.len())
	}
	r.put(c, at("3", "20"))
	if r.heard() != "5" {
		t.Errorf("polling moved the revision heard to %s", r.heard())
	}
	r.hear("20")
	r.hear("19")
	r.see(watch.Deleted, metaOf("b", at("2", "21")))
	if _, ok := r.get(b); ok || r.heard() != "21" {
		t.Errorf("heard %s", r.heard())
	}
}

// What was deleted while the API server listed, and delivered as that, is missing and
// passed: no reason to do anything unless the next audit finds it again.
func TestLedgerDoubtsOnce(t *testing.T) {
	r := held{"a": at("1", "8")}.record(nil, "9")
	l := newLedger(r)
	a := auditOf{
		listing: held{"a": at("1", "8")}.listing("20"),
		during:  func() { r.see(watch.Deleted, metaOf("a", at("1", "21"))) },
	}
	got, err := l.audit(t.Context(), a)
	if err != nil || len(got.differences) != 1 || !got.differences[0].passed {
		t.Fatalf("%+v, %v", got, err)
	}
	if all, next := l.overdue(0); len(all) > 0 || !next.IsZero() {
		t.Errorf("after one audit: %+v", all)
	}
	if _, err := l.audit(t.Context(), auditOf{listing: held{}.listing("30")}); err != nil {
		t.Fatal(err)
	}
	if all, _ := l.overdue(0); len(all) > 0 {
		t.Errorf("after another audit: %+v", all)
	}
}

// What is set aside has been told, as far as a difference goes.
func TestLedgerSettlesByQuarantine(t *testing.T) {
	q := newQuarantine(widgets, nil, nil)
	r := held{"a": at("1", "8")}.record(q, "9")
	l := newLedger(r)
	if _, err := l.audit(t.Context(), auditOf{listing: held{"a": at("1", "10")}.listing("20")}); err != nil {
		t.Fatal(err)
	}
	if all, _ := l.overdue(0); len(all) != 1 {
		t.Fatalf("before: %+v", all)
	}
	key := cache.NewObjectName("ns", "a")
	q.mu.Lock()
	q.records[key] = &Quarantined{Key: key, UID: "1", ResourceVersion: "10"}
	q.mu.Unlock()
	if all, _ := l.overdue(0); len(all) > 0 {
		t.Errorf("after: %+v", all)
	}
}
