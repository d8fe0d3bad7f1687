package informer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

// Records of several namespaces, page by page, and what listeners that panic do.
func TestQuarantineList(t *testing.T) {
	i, err := New(Config[*gadget]{Resource: gadgetResource, Namespaces: []string{"b", "a"}, ListerWatcher: Tolerant(gadgetClientNone(t))})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	i.OnQuarantine(func(cache.ObjectName, bool) { panic("listener") })
	i.OnQuarantine(func(cache.ObjectName, bool) { told++ })
	d := gadgets(t, false)
	for _, p := range i.parts {
		for _, name := range []string{"z", "x", "y"} {
			b := badGadget(t, d, wire(name, "u", "1", unfit))
			b.meta.Namespace = p.namespace
			p.quarantine.enter(b)
		}
	}
	if told != 6 || i.Snapshot().HandlerPanics != 6 {
		t.Errorf("told %d times of 6, %d panics", told, i.Snapshot().HandlerPanics)
	}
	for name, test := range map[string]struct {
		limit int
		after cache.ObjectName
		want  []string
		more  bool
	}{
		"All":         {0, cache.ObjectName{}, []string{"a/x", "a/y", "a/z", "b/x", "b/y", "b/z"}, false},
		"First":       {2, cache.ObjectName{}, []string{"a/x", "a/y"}, true},
		"Across":      {2, cache.NewObjectName("a", "y"), []string{"a/z", "b/x"}, true},
		"AfterGone":   {9, cache.NewObjectName("a", "yy"), []string{"a/z", "b/x", "b/y", "b/z"}, false},
		"Last":        {1, cache.NewObjectName("b", "y"), []string{"b/z"}, false},
		"AfterLast":   {1, cache.NewObjectName("b", "z"), nil, false},
		"ExactlyFull": {6, cache.ObjectName{}, []string{"a/x", "a/y", "a/z", "b/x", "b/y", "b/z"}, false},
	} {
		page, more := i.QuarantineList(test.limit, test.after)
		var got []string
		for _, q := range page {
			got = append(got, q.Key.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" || more != test.more {
			t.Errorf("%s: more %v (-want +got):\n%s", name, more, diff)
		}
	}
	if s := i.Snapshot(); s.Quarantined != 6 || s.QuarantinedTotal != 6 || len(s.Namespaces) != 2 || s.Namespaces[0].Quarantined != 3 {
		t.Errorf("%+v", s)
	}
	if _, bad := i.Quarantined(cache.NewObjectName("b", "y")); !bad {
		t.Error("b/y is not set aside")
	}
	for _, key := range []cache.ObjectName{cache.NewObjectName("b", "w"), cache.NewObjectName("c", "y")} {
		if _, bad := i.Quarantined(key); bad {
			t.Errorf("%s is set aside", key)
		}
	}
}
