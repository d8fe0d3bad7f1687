package informer

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// fakeAPI is an API server for ConfigMaps without a network, for synctest. What it
// does wrong is set by its fields, under mu.
type fakeAPI struct {
	mu       sync.Mutex
	revision int
	opaque   bool // revisions are words
	objects  map[string]*corev1.ConfigMap
	history  []fakeChange
	streams  []*fakeStream
	seen     map[string]int // requests by kind

	frozen          bool                   // watches that are opened from now on deliver nothing and do not end
	delay           time.Duration          // of each frame
	endAfter        time.Duration          // ends each watch
	endWith         *metav1.Status         // with this ERROR
	noEnd           bool                   // no bookmark ends the initial events
	narrow          func(name string) bool // the informer's lists and watches have these alone
	refuse          func(kind string) error
	mute            bool // questions have no answer
	dial            func() net.Conn
	over            net.Conn // what watches are sent over: they end with it
	listRV          *string  // the revision of lists, in place of the right one
	hangs           string   // this kind of request waits for ever
	refuseQuestions error
	down            bool // nothing is answered: every attempt times out after 10 s
	hole            bool // nothing is answered: what is asked now waits for ever
	noMarks         bool // no bookmarks
}

type fakeChange struct {
	revision int
	event    watch.Event
}

type fakeStream struct {
	api    *fakeAPI
	ctx    context.Context
	cancel context.CancelFunc
	events chan watch.Event
	frozen bool
	over   net.Conn
}

func (s *fakeStream) Stop()                          { s.cancel() }
func (s *fakeStream) ResultChan() <-chan watch.Event { return s.events }

func newFakeAPI() *fakeAPI {
	return &fakeAPI{revision: 100, objects: map[string]*corev1.ConfigMap{}, seen: map[string]int{}}
}

func (a *fakeAPI) with(f func(*fakeAPI)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

func (a *fakeAPI) rv(n int) string {
	if a.opaque {
		return fmt.Sprintf("r-%d", n)
	}
	return strconv.Itoa(n)
}

func (a *fakeAPI) number(rv string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(rv, "r-"))
	return n
}

// put writes name; every write is a change of its data.
func (a *fakeAPI) put(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	event, uid := watch.Added, types.UID("uid-"+strconv.Itoa(a.revision))
	if before, ok := a.objects[name]; ok {
		event, uid = watch.Modified, before.UID
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, ResourceVersion: a.rv(a.revision)},
		Data:       map[string]string{"rv": strconv.Itoa(a.revision)},
	}
	a.objects[name] = cm
	a.history = append(a.history, fakeChange{a.revision, watch.Event{Type: event, Object: cm}})
}

func (a *fakeAPI) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	gone := a.objects[name].DeepCopy()
	gone.ResourceVersion = a.rv(a.revision)
	delete(a.objects, name)
	a.history = append(a.history, fakeChange{a.revision, watch.Event{Type: watch.Deleted, Object: gone}})
}

// freezeOpen freezes the watches that are open.
func (a *fakeAPI) freezeOpen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.streams {
		s.frozen = true
	}
}

func (a *fakeAPI) count(kind string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[kind]
}

func (a *fakeAPI) counts() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := map[string]int{}
	for k, n := range a.seen {
		c[k] = n
	}
	return c
}

func (a *fakeAPI) admit(ctx context.Context, kind string) error {
	a.mu.Lock()
	a.seen[kind]++
	down, hole, refuse := a.down, a.hole || a.hangs == kind, a.refuse
	a.mu.Unlock()
	if hole {
		<-ctx.Done()
		return ctx.Err()
	}
	if down {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return context.DeadlineExceeded
		}
	}
	if refuse != nil {
		return refuse(kind)
	}
	return nil
}

func (a *fakeAPI) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	kind := "list"
	if opts.FieldSelector != "" {
		kind = "get"
	}
	if err := a.admit(ctx, kind); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if from := a.number(opts.ResourceVersion); from > a.revision {
		return nil, apierrors.NewTimeoutError("Too large resource version", 1)
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: a.rv(a.revision)}}
	if a.listRV != nil {
		list.ResourceVersion = *a.listRV
	}
	for _, cm := range a.objects {
		if a.narrow != nil && !a.narrow(cm.Name) {
			continue
		}
		if opts.FieldSelector == "" || strings.HasPrefix(opts.FieldSelector, "metadata.name="+cm.Name+",") {
			list.Items = append(list.Items, *cm)
		}
	}
	return list, nil
}

func (a *fakeAPI) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	kind := "watch"
	if opts.SendInitialEvents != nil {
		kind = "watchlist"
	}
	if err := a.admit(ctx, kind); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &fakeStream{api: a, events: make(chan watch.Event), frozen: a.frozen}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if a.over != nil && !isOpen(a.over) && a.dial != nil {
		a.over = a.dial()
	}
	s.over = a.over
	var initial []watch.Event
	from := a.number(opts.ResourceVersion)
	if kind == "watchlist" {
		if from > a.revision {
			return nil, apierrors.NewTimeoutError("Too large resource version", 1)
		}
		for _, cm := range a.objects {
			if a.narrow != nil && !a.narrow(cm.Name) {
				continue
			}
			initial = append(initial, watch.Event{Type: watch.Added, Object: cm})
		}
		if !a.noEnd {
			initial = append(initial, a.bookmark(a.revision, "true"))
		}
		from = a.revision
	}
	a.streams = append(a.streams, s)
	go s.run(initial, from, time.Duration(*opts.TimeoutSeconds)*time.Second, a.endAfter, a.delay)
	return s, nil
}

func (a *fakeAPI) bookmark(revision int, end string) watch.Event {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: a.rv(revision)}}
	if end != "" {
		cm.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: end}
	}
	return watch.Event{Type: watch.Bookmark, Object: cm}
}

func (s *fakeStream) run(pending []watch.Event, from int, life, endAfter, delay time.Duration) {
	defer func() {
		s.api.mu.Lock()
		s.api.streams = slices.DeleteFunc(s.api.streams, func(o *fakeStream) bool { return o == s })
		s.api.mu.Unlock()
		close(s.events)
	}()
	if endAfter > 0 {
		life = endAfter
	}
	end := time.Now().Add(life)
	mark := time.Now().Add(time.Minute)
	type late struct {
		event watch.Event
		at    time.Time
	}
	var queue []late
	for _, e := range pending {
		queue = append(queue, late{e, time.Now().Add(delay)})
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		a := s.api
		a.mu.Lock()
		if s.over != nil && !isOpen(s.over) {
			a.mu.Unlock()
			return
		}
		now, frozen := time.Now(), s.frozen || a.down || a.hole
		if !frozen {
			for _, c := range a.history {
				if c.revision > from {
					if name := c.event.Object.(metav1.Object).GetName(); a.narrow == nil || a.narrow(name) {
						queue = append(queue, late{c.event, now.Add(delay)})
					}
					from = c.revision
				}
			}
			if endAfter == 0 && !a.noMarks && (now.After(mark) || end.Sub(now) < 2*time.Second && end.Sub(now) > 1900*time.Millisecond && life > 2*time.Second) {
				mark = now.Add(time.Minute)
				from = max(from, a.revision)
				queue = append(queue, late{a.bookmark(from, ""), now.Add(delay)})
			}
		}
		a.mu.Unlock()
		if frozen {
			if endAfter > 0 && !now.Before(end) {
				return
			}
			continue
		}
		for len(queue) > 0 && !queue[0].at.After(now) {
			select {
			case <-s.ctx.Done():
				return
			case s.events <- queue[0].event:
				queue = queue[1:]
			}
		}
		if !now.Before(end) {
			a.mu.Lock()
			with := a.endWith
			a.mu.Unlock()
			if with != nil {
				select {
				case <-s.ctx.Done():
				case s.events <- watch.Event{Type: watch.Error, Object: with}:
				}
			}
			return
		}
	}
}
