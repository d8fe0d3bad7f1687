package controller_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// protectingQueue contains panics as a controller.Controller does.
type protectingQueue struct{ madeUp []string }

func (q *protectingQueue) Enqueue(controller.Lane, ...cache.ObjectName) { panic("a map function's") }

func (q *protectingQueue) Protect(origin string, key cache.ObjectName, f func()) (ok bool) {
	defer func() {
		if recover() != nil {
			q.madeUp = append(q.madeUp, origin+" "+key.String())
		}
	}()
	f()
	return true
}

// A panic in a handler must neither reach client-go, which ends the process, nor
// cost the object its pass.
func TestPanicInHandlerIsMadeUpFor(t *testing.T) {
	q := &protectingQueue{}
	panics := func(*corev1.Service) { q.Enqueue(controller.Normal) }
	h := controller.Protected(q, "WebApps by Service", cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Service]{
		AddFunc:    func(s *corev1.Service, _ bool) { panics(s) },
		UpdateFunc: func(_, s *corev1.Service) { panics(s) },
		DeleteFunc: func(s cache.DeletedObject[*corev1.Service]) { panics(s.OptionalObj) },
	})
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	}
	h.AddFunc(service("added"), false)
	h.UpdateFunc(service("updated"), service("updated"))
	h.DeleteFunc(cache.DeletedObject[*corev1.Service]{OptionalObj: service("deleted")})
	want := []string{"WebApps by Service shop/added", "WebApps by Service shop/updated", "WebApps by Service shop/deleted"}
	if !slices.Equal(q.madeUp, want) {
		t.Errorf("made up for %q, want %q", q.madeUp, want)
	}
}
