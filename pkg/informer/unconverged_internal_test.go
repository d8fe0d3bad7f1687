package informer

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func TestUnconverged(t *testing.T) {
	of := func(uid types.UID, resourceVersion string, generation int64) mark {
		return mark{uid, resourceVersion, generation}
	}
	key := func(name string) cache.ObjectName { return cache.NewObjectName("ns", name) }
	for name, test := range map[string]struct {
		reason   string
		audits   []held
		then     func(*record)
		aside    held
		observed map[string]int64 // of what is cached now
		want     int              // -1: not known
	}{
		"no audit yet":       {reason: "nothing is known", want: -1},
		"observed":           {reason: "all is well", audits: []held{{"a": of("1", "8", 3)}}, observed: map[string]int64{"a": 3}},
		"observed since":     {reason: "the audit saw 3, and now 4 is observed", audits: []held{{"a": of("1", "8", 3)}}, observed: map[string]int64{"a": 4}},
		"behind":             {reason: "not observed", audits: []held{{"a": of("1", "8", 3)}}, observed: map[string]int64{"a": 2}, want: 1},
		"deaf":               {reason: "the cache has nothing newer, the API server does", audits: []held{{"a": of("1", "10", 4)}}, observed: map[string]int64{"a": 3}, want: 1},
		"deaf and made anew": {reason: "nobody can have observed the new one", audits: []held{{"a": of("2", "10", 1)}}, observed: map[string]int64{"a": 3}, want: 1},
		"never delivered":    {reason: "nobody can have observed it", audits: []held{{"a": of("1", "8", 3), "b": of("2", "10", 1)}}, observed: map[string]int64{"a": 3}, want: 1},
		"delivered meanwhile": {
			reason: "in flight when it was audited", audits: []held{{"a": of("1", "8", 3), "b": of("2", "10", 1)}}, observed: map[string]int64{"a": 3, "b": 0},
			then: func(r *record) { r.see(watch.Added, metaOf("b", of("2", "10", 1))) },
		},
		"changed meanwhile": {
			reason: "a change from after the audit does not count", audits: []held{{"a": of("1", "8", 3)}}, observed: map[string]int64{"a": 3},
			then: func(r *record) { r.see(watch.Modified, metaOf("a", of("1", "11", 4))) },
		},
		"changed meanwhile and behind": {
			reason: "what the audit saw is not observed yet", audits: []held{{"a": of("1", "8", 3)}}, observed: map[string]int64{"a": 2}, want: 1,
			then: func(r *record) { r.see(watch.Modified, metaOf("a", of("1", "11", 4))) },
		},
		"relisted meanwhile": {
			reason: "what the audit has seen outlives a list", audits: []held{{"a": of("1", "8", 3)}}, observed: map[string]int64{"a": 2}, want: 1,
			then: func(r *record) {
				f := r.begin()
				f.put(key("a"), of("1", "8", 3))
				f.commit("12")
			},
		},
		"made anew meanwhile": {
			reason: "another object", audits: []held{{"a": of("1", "8", 3)}}, observed: map[string]int64{"a": 0},
			then: func(r *record) { r.see(watch.Added, metaOf("a", of("9", "11", 1))) },
		},
		"gone from the cache": {reason: "its delete is on its way to the record", audits: []held{{"a": of("1", "8", 3)}}},
		"set aside":           {reason: "counted elsewhere", audits: []held{{"a": of("1", "10", 3)}}, aside: held{"a": of("1", "10", 3)}, observed: map[string]int64{"a": 2}},
		"next audit":          {reason: "the last one counts", audits: []held{{"a": of("1", "8", 3)}, {"a": of("1", "12", 5)}}, observed: map[string]int64{"a": 4}, want: 1},
		"rewound":             {reason: "the generations of another history say nothing", audits: []held{{"a": of("1", "8", 3)}, nil}, observed: map[string]int64{"a": 2}, want: -1},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuarantine(widgets, nil, nil)
			for name, m := range test.aside {
				q.records[key(name)] = &Quarantined{Key: key(name), UID: m.uid, ResourceVersion: m.resourceVersion}
			}
			r := held{"a": of("1", "8", 3)}.record(q, "9")
			l := newLedger(r)
			for _, holds := range test.audits {
				revision := "20"
				if holds == nil {
					revision = "2"
				}
				if _, err := l.audit(t.Context(), auditOf{listing: holds.listing(revision)}); err != nil {
					t.Fatal(err)
				}
			}
			if test.then != nil {
				test.then(r)
			}
			n, known := l.unconverged(func(k cache.ObjectName, uid types.UID) (int64, bool) {
				observed, ok := test.observed[k.Name]
				return observed, ok
			})
			if !known {
				n = -1
			}
			if n != test.want {
				t.Errorf("%s: %d, want %d", test.reason, n, test.want)
			}
		})
	}
}
