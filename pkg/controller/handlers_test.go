package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

func service(name, resourceVersion string, generation int64) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", ResourceVersion: resourceVersion, Generation: generation}}
}

// Who is enqueued, and how urgently, by handlers for an object itself and by those for
// its users.
func TestHandlersLanes(t *testing.T) {
	web := service("web", "1", 1)
	gone := cache.DeletedObject[*corev1.Service]{OptionalObj: web}
	users := func(key cache.ObjectName) []cache.ObjectName {
		return []cache.ObjectName{cache.NewObjectName(key.Namespace, "of-"+key.Name), cache.NewObjectName(key.Namespace, "too")}
	}
	newGeneration := func(old, s *corev1.Service) bool { return old.Generation != s.Generation }
	type handlers = cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Service]
	for name, test := range map[string]struct {
		reason     string
		event      func(handlers)
		object     string
		users, all string // of users: those that hear of new generations only, and of everything
	}{
		"Initial": {"there is much of it, and nobody waits", func(h handlers) { h.AddFunc(web, true) },
			"Background shop/web", "Background shop/of-web shop/too", "Background shop/of-web shop/too"},
		"Added": {"somebody waits for what comes of a new object", func(h handlers) { h.AddFunc(web, false) },
			"Urgent shop/web", "Normal shop/of-web shop/too", "Normal shop/of-web shop/too"},
		"Spec": {"and of a changed one", func(h handlers) { h.UpdateFunc(web, service("web", "2", 2)) },
			"Urgent shop/web", "Normal shop/of-web shop/too", "Normal shop/of-web shop/too"},
		"Status": {"that is what controllers write", func(h handlers) { h.UpdateFunc(web, service("web", "2", 1)) },
			"Normal shop/web", "", "Normal shop/of-web shop/too"},
		"Relist": {"nothing has changed", func(h handlers) { h.UpdateFunc(web, web) },
			"Background shop/web", "", "Background shop/of-web shop/too"},
		"Deleted": {"what is left to do for it is little", func(h handlers) { h.DeleteFunc(gone) },
			"Normal shop/web", "Normal shop/of-web shop/too", "Normal shop/of-web shop/too"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			enqueue := func(lane controller.Lane, keys ...cache.ObjectName) {
				line := fmt.Sprint(lane)
				for _, key := range keys {
					line += " " + key.String()
				}
				got = append(got, line)
			}
			for _, h := range []struct {
				what string
				handlers
				want string
			}{
				{"the object", controller.ObjectHandlers[*corev1.Service](enqueue), test.object},
				{"users that hear of some changes", controller.ReferenceHandlers(enqueue, users, newGeneration), test.users},
				{"users that hear of all", controller.ReferenceHandlers[*corev1.Service](enqueue, users, nil), test.all},
			} {
				got = nil
				test.event(h.handlers)
				if strings.Join(got, ", ") != h.want {
					t.Errorf("%s: %s: enqueued %q, want %q", test.reason, h.what, got, h.want)
				}
			}
		})
	}
}

// registry is an informer that takes one handler, or none.
type registry struct {
	handlers []cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Service]
	err      error
}

func (r *registry) AddHandler(h cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Service]) (cache.ResourceEventHandlerRegistration, error) {
	r.handlers = append(r.handlers, h)
	return registration{}, r.err
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSyncedChecker() cache.DoneChecker { return nil }

func TestAddHandlersProtects(t *testing.T) {
	q, r := &protectingQueue{}, &registry{}
	users := func(cache.ObjectName) []cache.ObjectName { panic("an index's") }
	if _, err := controller.AddHandlers(q, r, "WebApps by Service", controller.ReferenceHandlers[*corev1.Service](q.Enqueue, users, nil)); err != nil {
		t.Fatal(err)
	}
	r.handlers[0].AddFunc(service("web", "1", 1), false)
	if want := []string{"WebApps by Service shop/web"}; !slices.Equal(q.madeUp, want) {
		t.Errorf("made up for %q, want %q", q.madeUp, want)
	}
	r.err = errors.New("informer has stopped")
	if _, err := controller.AddHandlers(q, r, "WebApps by Service", controller.ObjectHandlers[*corev1.Service](q.Enqueue)); !errors.Is(err, r.err) ||
		!strings.Contains(err.Error(), "WebApps by Service") {
		t.Errorf("error %v, want the informer's, with what it was for", err)
	}
}

func TestHoldBack(t *testing.T) {
	key := cache.NewObjectName("shop", "web")
	for name, test := range map[string]struct {
		reason  string
		bad     string
		pending string
		want    controller.Verdict
	}{
		"Nothing": {"it may run", "", "", controller.Verdict{}},
		"Bad":     {"no pass over it", "spec.timeout is 1", "", controller.Verdict{State: controller.Frozen, Reason: "cannot be decoded: spec.timeout is 1"}},
		"Stale":   {"not yet", "", "the status", controller.Verdict{State: controller.Stale, Reason: "the status"}},
		"Both":    {"a write that has arrived would not help", "spec.timeout is 1", "the status", controller.Verdict{State: controller.Frozen, Reason: "cannot be decoded: spec.timeout is 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			gate := controller.HoldBack(
				func(k cache.ObjectName) (string, bool) { return test.bad, k == key && test.bad != "" },
				func(k cache.ObjectName) (string, time.Time, bool) {
					return test.pending, time.Time{}, k == key && test.pending != ""
				})
			if diff := cmp.Diff(test.want, gate(key)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
			if got := gate(cache.NewObjectName("shop", "other")); got != (controller.Verdict{}) {
				t.Errorf("another key: %v, want none", got)
			}
		})
	}
}
