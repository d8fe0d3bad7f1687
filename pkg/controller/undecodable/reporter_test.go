package undecodable_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// story calls Reconcile step by step, in a bubble whose clock the steps move.
type story struct {
	*testing.T
	f *fake
	k cache.ObjectName
}

func (s *story) pass(r *undecodable.Reporter, wantRequests string) controller.Result {
	s.Helper()
	result, err := r.Reconcile(klog.NewContext(s.Context(), klog.Logger{}), s.k)
	if err != nil {
		s.Fatalf("Reconcile: %v", err)
	}
	if got := s.f.sent(); got != wantRequests {
		s.Fatalf("requests: got %q, want %q", got, wantRequests)
	}
	return result
}

const write = "GET a, PATCH a/status"

func TestReportsOnceAndOnTransitionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := &story{t, f, f.bad("a")}
		r, events := f.reporter(t)
		expect := func(wantEvents string) {
			t.Helper()
			if got := f.condition(s.k); got != "False Undecodable" {
				t.Fatalf("condition is %q", got)
			}
			if got := reasons(events); got != wantEvents {
				t.Fatalf("Events: got %q, want %q", got, wantEvents)
			}
		}

		s.pass(r, write)
		expect("Warning Undecodable")
		s.pass(r, "") // the event of the write has not come yet
		f.catchUp(s.k)
		s.pass(r, "") // now it has
		time.Sleep(time.Hour)
		s.pass(r, "") // a recheck of what has not changed
		expect("")

		touch := func() {
			f.with(s.k, func(o *object, _ *informer.Quarantined) { o.resourceVersion++ })
			f.catchUp(s.k)
		}
		touch() // by somebody else, long after
		s.pass(r, "GET a")
		touch() // and again, at once
		if wait := s.pass(r, "").After; wait != time.Minute {
			t.Errorf("looks again after %s, want 1 min", wait)
		}
		time.Sleep(time.Minute)
		s.pass(r, "GET a")

		f.with(s.k, func(o *object, _ *informer.Quarantined) { delete(o.status, "conditions"); o.resourceVersion++ })
		f.catchUp(s.k)
		time.Sleep(time.Minute)
		s.pass(r, write) // somebody has removed it
		expect("Warning Undecodable")

		time.Sleep(time.Second)
		f.with(s.k, func(_ *object, r *informer.Quarantined) {
			r.Fields = []informer.BadField{{Path: "spec.drainTimeout", Value: `"2"`}}
		})
		s.pass(r, write) // bad in another way: no transition
		expect("")

		// Another process takes over, or this one is restarted.
		r, events = f.reporter(t)
		f.catchUp(s.k)
		s.pass(r, "GET a")
		expect("")
	})
}

func TestNeverWritesForAnotherSpecOrObject(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*object, *informer.Quarantined)
	}{
		"newer spec":     {"it may be good by now", func(o *object, _ *informer.Quarantined) { o.generation++ }},
		"another object": {"of the same name", func(o *object, _ *informer.Quarantined) { o.uid = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s := &story{t, f, f.bad("a")}
			f.with(s.k, tc.change)
			r, events := f.reporter(t)
			if result := s.pass(r, "GET a"); result.After <= 0 || reasons(events) != "" {
				t.Errorf("%s: %+v, Events %s", tc.reason, result, reasons(events))
			}
		})
	}
}

// What the API server refuses is said once with a way out, and the error goes to
// the controller, which knows when to try again. What only time mends is not said.
func TestRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		method     string
		status     metav1.Status
		class      controller.Class
		wantEvents string
		says       string
	}{
		"invalid": {"the schema was tightened and does not ratchet", http.MethodPatch,
			metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "drainTimeout must have a unit", Details: &metav1.StatusDetails{Kind: "WebApp", Name: "a"}},
			controller.ClassInvalid, "Warning NotReported", "loosen the schema"},
		"forbidden":  {"RBAC", http.MethodPatch, metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: "no"}, controller.ClassRetry, "Warning NotReported", "Grant patch on"},
		"conversion": {"the webhook is down", http.MethodGet, metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "conversion webhook failed"}, controller.ClassRetry, "Warning NotReported", "bring it back"},
		"away":       {"no refusal", http.MethodPatch, metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable}, controller.ClassRetry, "", ""},
		"raced":      {"tried again at once, then later", http.MethodPatch, metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "test failed", Details: &metav1.StatusDetails{}}, controller.ClassConflict, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				k := f.bad("a")
				tc.status.Status = metav1.StatusFailure
				f.answer = func(method string, _ cache.ObjectName) *metav1.Status {
					if method == tc.method {
						return &tc.status
					}
					return nil
				}
				r, events := f.reporter(t)
				for n := range 3 {
					_, err := r.Reconcile(klog.NewContext(t.Context(), klog.Logger{}), k)
					if got := controller.Classify(err); got != tc.class {
						t.Fatalf("%s: class %s, want %s: %v", tc.reason, got, tc.class, err)
					}
					time.Sleep(time.Minute)
					if n > 0 {
						continue
					}
					select {
					case e := <-events.Events:
						if !strings.HasPrefix(e, tc.wantEvents) || tc.wantEvents == "" || !strings.Contains(e, tc.says) || !strings.Contains(e, tc.status.Message) {
							t.Errorf("%s: Event %q", tc.reason, e)
						}
					default:
						if tc.wantEvents != "" {
							t.Errorf("%s: no Event", tc.reason)
						}
					}
				}
				if got := reasons(events); got != "" {
					t.Errorf("%s: said again: %s", tc.reason, got)
				}
				f.answer = nil
				if _, err := r.Reconcile(t.Context(), k); err != nil || f.condition(k) != "False Undecodable" {
					t.Errorf("after it is mended: %v, condition %q", err, f.condition(k))
				}
			})
		})
	}
}

// A status that cannot hold a condition is said so, once, and left as it is.
func TestStatusWithoutPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := &story{t, f, f.bad("a")}
		f.with(s.k, func(o *object, _ *informer.Quarantined) { o.status = map[string]any{"": 3} })
		r, events := f.reporter(t)
		s.pass(r, "GET a")
		if got := reasons(events); got != "Warning NotReported" {
			t.Errorf("Events: %s", got)
		}
		for range 3 {
			time.Sleep(2 * time.Minute)
			f.with(s.k, func(o *object, _ *informer.Quarantined) { o.resourceVersion++ })
			f.catchUp(s.k)
			s.pass(r, "GET a")
		}
		if got := reasons(events); got != "" {
			t.Errorf("said again: %s", got)
		}
	})
}

// Deletion needs nothing but metadata, and no report stands in its way.
func TestDeletion(t *testing.T) {
	boom := errors.New("boom")
	deleted := func(finalizers ...string) func(*informer.Quarantined) {
		return func(r *informer.Quarantined) {
			r.DeletionTimestamp, r.Finalizers = &metav1.Time{Time: time.Unix(1000, 0)}, finalizers
		}
	}
	draining := controller.Result{After: 20 * time.Second, Reason: "draining"}
	for name, tc := range map[string]struct {
		reason    string
		record    func(*informer.Quarantined)
		finalize  controller.Result
		err       error
		refuse    bool
		want      controller.Result
		finalized bool
		requests  string
	}{
		"alive":     {"nothing to finalize", func(r *informer.Quarantined) { r.Finalizers = []string{finalizer} }, draining, nil, false, controller.Result{After: time.Minute, Reason: "reported"}, false, write},
		"not ours":  {"held by others, still to be told about", deleted("other"), draining, nil, false, controller.Result{After: time.Minute, Reason: "reported"}, false, write},
		"draining":  {"told about while it lasts", deleted("other", finalizer), draining, nil, false, draining, true, write},
		"gone":      {"nothing left to tell", deleted(finalizer), controller.Result{}, nil, false, controller.Result{}, true, ""},
		"failed":    {"retried by its class", deleted(finalizer), controller.Result{}, boom, false, controller.Result{}, true, ""},
		"no report": {"a refused condition does not hold it up", deleted(finalizer), draining, nil, true, draining, true, write},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			k := f.bad("a", tc.record)
			if tc.refuse {
				f.answer = func(method string, _ cache.ObjectName) *metav1.Status {
					if method == http.MethodPatch {
						return &metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden}
					}
					return nil
				}
			}
			var got *metav1.PartialObjectMetadata
			r, _ := f.reporter(t, func(cfg *undecodable.Config) {
				cfg.Finalizer = finalizer
				cfg.Finalize = func(_ context.Context, m *metav1.PartialObjectMetadata) (controller.Result, error) {
					got = m
					return tc.finalize, tc.err
				}
			})
			result, err := r.Reconcile(klog.NewContext(t.Context(), klog.Logger{}), k)
			if result != tc.want || !errors.Is(err, tc.err) || (got != nil) != tc.finalized || f.sent() != tc.requests {
				t.Errorf("%s: %+v, %v; finalized: %t", tc.reason, result, err, got != nil)
			}
			if got != nil && (got.UID != "uid-a" || got.Name != "a" || got.Namespace != "ns" || got.Kind != "WebApp" || got.DeletionTimestamp == nil || len(got.Finalizers) == 0) {
				t.Errorf("%s: finalized with %+v", tc.reason, got)
			}
		})
	}
}

// With a whole controller: ten thousand bad objects (one thousand in the short form)
// cost one write a second, however
// often they are enqueued, and a deletion among them does not wait.
func TestManyAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 1000
		if os.Getenv("STEADWATCH_LONG") == "1" {
			n = 10_000
		}
		f := newFake()
		var keys []cache.ObjectName
		for i := range n {
			keys = append(keys, f.bad(fmt.Sprintf("a-%05d", i)))
		}
		finalized := make(chan struct{}, 10)
		r, events := f.reporter(t, func(cfg *undecodable.Config) {
			cfg.Finalizer = finalizer
			cfg.Finalize = func(context.Context, *metav1.PartialObjectMetadata) (controller.Result, error) {
				finalized <- struct{}{}
				return controller.Result{}, nil
			}
		})
		var passes atomic.Int64
		c, err := controller.New(controller.Config{
			Name: "test", Workers: 1, Frozen: r, Keys: func() []cache.ObjectName { return keys },
			Reconciler: controller.ReconcilerFunc(func(context.Context, cache.ObjectName) (controller.Result, error) {
				t.Error("a frozen key was reconciled")
				return controller.Result{}, nil
			}),
			Gate: func(cache.ObjectName) controller.Verdict {
				return controller.Verdict{State: controller.Frozen, Reason: "spec.drainTimeout"}
			},
			Observe: func(controller.Class, time.Duration, time.Duration) { passes.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		patches := func() int { return strings.Count(f.sent(), "PATCH") }

		time.Sleep(100*time.Second + time.Millisecond)
		synctest.Wait()
		if got := patches(); got < 95 || got > 101 {
			t.Errorf("%d writes in 100 s, want about 100", got)
		}
		// One of them is written to 20 times a second.
		for range 200 {
			f.with(keys[500], func(o *object, r *informer.Quarantined) {
				o.resourceVersion++
				r.Fields = []informer.BadField{{Path: "spec.drainTimeout", Value: fmt.Sprint(o.resourceVersion)}} // records are shared
			})
			f.catchUp(keys[500])
			c.Enqueue(controller.Normal, keys[500])
			time.Sleep(50 * time.Millisecond)
		}
		synctest.Wait()
		if got := patches(); got > 11 {
			t.Errorf("%d writes in 10 s, want 10", got)
		}
		if f.condition(keys[500]) != "" {
			t.Error("an object that changes all the time has pushed in")
		}
		f.with(keys[900], func(_ *object, r *informer.Quarantined) {
			r.DeletionTimestamp, r.Finalizers = &metav1.Time{Time: time.Now()}, []string{finalizer}
		})
		c.Enqueue(controller.Normal, keys[900])
		synctest.Wait()
		if len(finalized) != 1 {
			t.Error("the deletion waits for its turn")
		}
		time.Sleep(time.Duration(2*n) * time.Second)
		synctest.Wait()
		told := 0
		for _, k := range keys {
			if f.condition(k) == "False Undecodable" {
				told++
			}
		}
		if told < n-1 { // the deleted one has nobody to be told any more
			t.Errorf("%d of %d have the condition in the end", told, n)
		}
		recorded := len(strings.Split(reasons(events), ", "))
		if recorded > n {
			t.Errorf("%d Events for %d objects", recorded, n)
		}
		if got := passes.Load(); got > int64(10*n) {
			t.Errorf("%d passes", got)
		}
		t.Logf("%d bad objects: %d conditions, %d Events, %d passes", n, told, recorded, passes.Load())
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
