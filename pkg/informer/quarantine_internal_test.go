package informer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
)

// Records of several namespaces, page by page, and what listeners that panic do.
func TestQuarantineList(t *testing.T) {
	i, err := New(Config[*gadget]{Resource: gadgetResource, Namespaces: []string{"b", "a"}, ListerWatcher: Tolerant(gadgetClientNone(t))})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	i.OnQuarantine(func(Quarantined, bool) { panic("listener") })
	i.OnQuarantine(func(Quarantined, bool) { told++ })
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

// Who asks whether an object is bad must hear so until the cache has its good
// version; lists and counts have let go of it before.
func TestQuarantineHoldsUntilTheCacheHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lw := boundTo(t, gadgetClientNone(t))
		q := lw.quarantine
		var told []string
		q.listeners.add(func(r Quarantined, entered bool) { told = append(told, fmt.Sprint(r.Key.Name, " ", entered)) })
		q.enter(badGadget(t, lw.decoder, wire("x", "u", "100", unfit)))
		key := cache.NewObjectName("ns", "x")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if !q.leave(key, "101") || q.leave(key, "101") {
			t.Error("leaves once")
		}
		q.settle(ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, bad := q.get(key); !bad || len(q.all()) != 0 || len(told) != 1 {
			t.Errorf("before the cache has it: bad %v, records %d, told %q", bad, len(q.all()), told)
		}
		q.store.Bookmark("101")
		if _, bad := q.get(key); bad {
			t.Error("the cache has it, and it still counts as bad")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"x true", "x false"}, told); diff != "" {
			t.Error(diff)
		}
		// A store that cannot tell does not hold it for ever.
		q.enter(badGadget(t, lw.decoder, wire("x", "u", "102", unfit)))
		q.leave(key, "999")
		q.settle(ctx)
		time.Sleep(2 * catchUpTimeout)
		synctest.Wait()
		if _, bad := q.get(key); bad {
			t.Error("held for ever")
		}
	})
}

// What the Reflector has been given may still be on its way to the store when it
// lists again: a good version that is not there yet stands in all the same.
func TestStageWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lw := boundTo(t, gadgetClientNone(t))
		q := lw.quarantine
		q.store.Bookmark("100")
		go func() {
			time.Sleep(time.Second)
			if err := q.store.Add(heldGadget("x", "u", "101")); err != nil {
				t.Error(err)
			}
			q.store.Bookmark("101")
		}()
		s := q.stage(t.Context(), "ns", "101")
		if s.resolve(item{bad: badGadget(t, lw.decoder, wire("x", "u", "102", unfit))}) == nil {
			t.Error("left out: the relist would report a delete")
		}
		if began := time.Now(); q.stage(t.Context(), "ns", "103") == nil || time.Since(began) < catchUpTimeout {
			t.Error("did not wait")
		}
	})
}

// 10,000 bad objects: a few log lines, reminders every 10 minutes, bounded memory.
func TestQuarantineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lw := boundTo(t, gadgetClientNone(t))
		q := lw.quarantine
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		log := func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
		q.log.logTo(logger)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go q.log.remind(ctx, q.all)

		var labels []string
		for n := range maxBadFields {
			labels = append(labels, fmt.Sprintf(`"%s%d":[%q]`, strings.Repeat("k", 2000), n, strings.Repeat("v", 2000)))
		}
		wide := `{"labels":{` + strings.Join(labels, ",") + `}}`
		s := q.stage(ctx, "ns", "")
		wideItem := badGadget(t, lw.decoder, wire("x", "u", "1", wide))
		for n := range 10000 {
			b := *wideItem
			b.meta.Name = fmt.Sprintf("x%d", n)
			s.resolve(item{bad: &b})
		}
		s.commit(ctx, "200")
		bytes := 0
		for _, r := range q.all() {
			for _, f := range r.Fields {
				bytes += len(f.Path) + len(f.Value) + len(f.GoType) + len(f.Reason)
			}
			bytes += len(r.Error) + len(strings.Join(r.Fix, ""))
			if len(r.Fields) == 0 {
				t.Fatal("no field")
			}
		}
		if bytes > 30<<20 {
			t.Errorf("%d MB of text", bytes>>20)
		}
		if n := strings.Count(log(), "\n"); n != 1 || !strings.Contains(log(), "objects=10000") {
			t.Errorf("want one line for all, got %d:\n%.2000s", n, log())
		}
		time.Sleep(remindAfter + time.Second)
		synctest.Wait()
		if n := strings.Count(log(), "\n"); n != 2 {
			t.Errorf("after 10 min: %d lines", n)
		}

		// Three of them last, then one is written without end, bad in another way
		// each time.
		s = q.stage(ctx, "ns", "")
		for n := range 3 {
			s.resolve(item{bad: badGadget(t, lw.decoder, wire(fmt.Sprintf("y%d", n), "u", "201", unfit))})
		}
		s.commit(ctx, "300")
		q.store.Bookmark("300")
		time.Sleep(time.Second)
		synctest.Wait()
		before := strings.Count(log(), "it is set aside")
		if before != 3 {
			t.Errorf("%d lines of single objects, want 3:\n%s", before, log())
		}
		for n := range 1000 {
			q.enter(badGadget(t, lw.decoder, wire("y0", "u", fmt.Sprint(400+n), fmt.Sprintf(`{"interval":"%dd"}`, n))))
		}
		if got := strings.Count(log(), "it is set aside"); got > maxLogged+1 {
			t.Errorf("%d lines of single objects", got)
		}
		before = strings.Count(log(), "it is set aside")
		time.Sleep(remindAfter)
		synctest.Wait()
		if got := strings.Count(log(), "it is set aside"); got != before+3 {
			t.Errorf("reminded of %d objects, want 3", got-before)
		}
		cancel()
		synctest.Wait()
	})
}
