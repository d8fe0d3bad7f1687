package informer

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The initial events of a WatchList are in no order: none of them says how far
// the copy has got, and the state is not Synced before they have ended.
func TestSawInitialEvents(t *testing.T) {
	l := newListWatch(nil, newCondition(widgets, ""))
	l.condition.failed(errStopped)
	object := func(rv, end string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: end}}}
	}
	initial := true
	for n, step := range []struct {
		event   watch.Event
		initial bool
		rv      string
		state   State
	}{
		{watch.Event{Type: watch.Added, Object: object("90", "")}, true, "", StateUnlistable},
		{watch.Event{Type: watch.Added, Object: object("70", "")}, true, "", StateUnlistable},
		{watch.Event{Type: watch.Bookmark, Object: object("95", "true")}, false, "95", StateHearing},
		{watch.Event{Type: watch.Deleted, Object: object("96", "")}, false, "96", StateHearing},
		{watch.Event{Type: watch.Error, Object: &metav1.Status{}}, false, "96", StateHearing},
	} {
		initial = l.saw(step.event, initial)
		var s Snapshot
		l.describe(&s)
		l.condition.describe(&s, true)
		if initial != step.initial || s.ResourceVersion != step.rv || s.State != step.state || s.LastHeard.IsZero() {
			t.Errorf("after %d: initial %v, %+v, want %+v", n, initial, s, step)
		}
	}
	var s Snapshot
	l.describe(&s)
	if diff := cmp.Diff(map[watch.EventType]uint64{watch.Added: 2, watch.Bookmark: 1, watch.Deleted: 1, watch.Error: 1}, s.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A Reflector that stops takes no more events; neither may hold up the other.
func TestStreamStopsWithEventsNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := watch.NewFakeWithChanSize(2, false)
		s := &stream{inner: inner, events: make(chan watch.Event), stop: make(chan struct{})}
		seen := 0
		go s.run(func(watch.Event) { seen++ })
		inner.Add(&corev1.ConfigMap{})
		inner.Add(&corev1.ConfigMap{})
		synctest.Wait()
		s.Stop()
		s.Stop()
		synctest.Wait()
		if _, open := <-s.ResultChan(); open || seen != 1 || !inner.IsStopped() {
			t.Errorf("events open %v, seen %d, inner stopped %v", open, seen, inner.IsStopped())
		}
	})
}
