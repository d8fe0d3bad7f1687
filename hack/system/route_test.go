package system_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

var gatewayCRDs sync.Once

// routeWorld is a world with the Gateway API, and no gateway that reports.
type routeWorld struct {
	*world
	metadata metadata.Interface
}

// routeChildren are the resources of an ApplicationRoute with a tlsSecret.
var routeChildren = []string{gateway.HTTPRoutes, gateway.ListenerSets}

func newRouteWorld(t *testing.T) *routeWorld {
	t.Helper()
	w := newWorld(t)
	gatewayCRDs.Do(func() {
		if err := gateway.Install(t.Context(), w.plane); err != nil {
			t.Fatal(err)
		}
	})
	return &routeWorld{w, metadata.NewForConfigOrDie(w.plane.Config())}
}

func (w *routeWorld) of(resource string) metadata.ResourceInterface {
	return w.metadata.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: resource}).Namespace(w.namespace)
}

func (w *routeWorld) createRoute(name string) types.UID {
	w.Helper()
	route, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Create(w.Context(), &v1alpha1.ApplicationRoute{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ApplicationRouteSpec{
			Hostnames: []string{name + ".example.com"},
			Backends:  []v1alpha1.Backend{{Service: "web", Port: 80}},
			TLSSecret: "web-tls",
			Gateway:   &v1alpha1.GatewayReference{Name: "public"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return route.UID
}

func (w *routeWorld) deleteRoute(name string, policy metav1.DeletionPropagation) {
	w.Helper()
	if err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Delete(w.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		w.Fatal(err)
	}
	w.eventually(patience, "ApplicationRoute "+name+" to be gone", func() (bool, string) {
		route, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		return false, fmt.Sprintf("finalizers %q", route.Finalizers)
	})
}

func (w *routeWorld) says(name, conditionType, want string) {
	w.Helper()
	w.eventually(patience, fmt.Sprintf("%s of %s to be %s", conditionType, name, want), func() (bool, string) {
		route, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(route.Status.Conditions, conditionType)
		return c != nil && string(c.Status)+" "+c.Reason == want, fmt.Sprintf("%+v", route.Status.Conditions)
	})
}

// owned waits until both children of that name are the route's, and returns their UIDs.
func (w *routeWorld) owned(name string, route types.UID) map[string]types.UID {
	w.Helper()
	uids := map[string]types.UID{}
	for _, resource := range routeChildren {
		w.eventually(patience, fmt.Sprintf("%s %s to be of ApplicationRoute %s", resource, name, route), func() (bool, string) {
			child, err := w.of(resource).Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			owner := metav1.GetControllerOf(child)
			uids[resource] = child.UID
			return owner != nil && owner.UID == route && child.DeletionTimestamp == nil, fmt.Sprintf("%+v", child.ObjectMeta)
		})
	}
	return uids
}

// collected waits until both children of that name are gone.
func (w *routeWorld) collected(name string) {
	w.Helper()
	for _, resource := range routeChildren {
		w.eventually(patience, resource+" "+name+" to be collected", func() (bool, string) {
			child, err := w.of(resource).Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				return apierrors.IsNotFound(err), err.Error()
			}
			return false, fmt.Sprintf("%+v", child.ObjectMeta)
		})
	}
}

// hold keeps both children of that name from going, or no longer.
func (w *routeWorld) hold(name, finalizers string) {
	w.Helper()
	for _, resource := range routeChildren {
		if _, err := w.of(resource).Patch(w.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers), metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// made counts how often the controller has made a child of that name since then.
func (w *routeWorld) made(resource, name string, since time.Time) int {
	w.Helper()
	return len(w.requests(since, func(e controlplane.AuditEvent) bool {
		return e.Resource == resource && e.Name == name && e.Code == 201
	}))
}

// What a route has made goes with it, by the garbage collector alone, and what the next
// route of that name has made stays. The controller makes nothing for a route that is
// going, and touches nothing of one that has gone.
func TestRouteChildrenAndTheGarbageCollector(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t)
	p := w.start(nil)
	since := time.Now()
	names := []string{"background", "foreground", "held", "orphaned", "again"}
	uids := map[string]types.UID{}
	for _, name := range names {
		uids[name] = w.createRoute(name)
	}
	for _, name := range names {
		w.owned(name, uids[name])
	}
	p.settles()

	w.hold("held", `["example.com/hold"]`)
	deleted := time.Now()
	w.deleteRoute("background", metav1.DeletePropagationBackground)
	w.deleteRoute("held", metav1.DeletePropagationBackground)
	w.deleteRoute("foreground", metav1.DeletePropagationForeground)
	w.collected("foreground")
	w.collected("background")
	p.settles()
	w.silent("the children of routes were collected", deleted)

	// The old children are going, and held; the new route waits, and gets its own.
	began := time.Now()
	uids["held"] = w.createRoute("held")
	w.says("held", v1alpha1.ConditionReady, "False WaitingForGarbageCollection")
	p.settles()
	if got := w.made(gateway.HTTPRoutes, "held", began) + w.made(gateway.ListenerSets, "held", began); got > 0 {
		t.Errorf("%d children were made while the old ones were there", got)
	}
	w.hold("held", "null")
	current := map[string]map[string]types.UID{"held": w.owned("held", uids["held"])}

	// The new route is there before the old one's children have been looked at.
	for range 3 {
		w.deleteRoute("again", metav1.DeletePropagationBackground)
		uids["again"] = w.createRoute("again")
		current["again"] = w.owned("again", uids["again"])
	}

	// Orphans belong to nobody: the new route takes nothing over, until they are gone.
	w.deleteRoute("orphaned", metav1.DeletePropagationOrphan)
	uids["orphaned"] = w.createRoute("orphaned")
	w.says("orphaned", v1alpha1.ConditionDegraded, "True ChildNotOwned")
	for _, resource := range routeChildren {
		if err := w.of(resource).Delete(t.Context(), "orphaned", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	current["orphaned"] = w.owned("orphaned", uids["orphaned"])

	// Nothing of what is there now goes, and nothing was made more than once.
	p.settles()
	quiet := time.Now()
	w.pass(3 * time.Second)
	w.silent("nothing has happened", quiet)
	want := map[string]int{"background": 1, "foreground": 1, "held": 2, "orphaned": 2, "again": 4}
	for name, n := range want {
		for _, resource := range routeChildren {
			if got := w.made(resource, name, since); got != n {
				t.Errorf("%s %s was made %d times, want %d", resource, name, got, n)
			}
		}
	}
	for name, children := range current {
		for resource, uid := range children {
			child, err := w.of(resource).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || child.UID != uid || child.DeletionTimestamp != nil {
				t.Errorf("%s %s of the new route: %+v, %v, want the one with uid %s", resource, name, child, err, uid)
			}
		}
	}
}
