package informer

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// feeder gets objects for polling, apart from the Reflector's lists.
type feeder interface {
	// feed reads one list, or page of one, and yields the wanted objects as MODIFIED,
	// or, if the cache holds another object in the place of one that is set aside,
	// that one as DELETED. It returns the token of the next page.
	feed(ctx context.Context, opts metav1.ListOptions, wanted func(cache.ObjectName) bool, yield func(watch.Event)) (next string, err error)
	// gone returns the DELETED event of an object that was delivered in that version.
	gone(ctx context.Context, key cache.ObjectName, delivered mark, resourceVersion string) watch.Event
}

// eachItem calls f for the items of a list.
func eachItem(list runtime.Object, f func(metav1.Object)) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		if o, ok := item.(metav1.Object); ok {
			f(o)
		}
		return nil
	})
}

// listFeeder is the feeder of every ListerWatcher but Tolerant's.
type listFeeder struct {
	inner cache.ListerWithContext
	cached
}

func (l *listFeeder) feed(ctx context.Context, opts metav1.ListOptions, wanted func(cache.ObjectName) bool, yield func(watch.Event)) (string, error) {
	list, err := l.inner.ListWithContext(ctx, opts)
	if err != nil {
		return "", err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	err = eachItem(list, func(o metav1.Object) {
		if wanted(cache.MetaObjectToName(o)) {
			// A copy, or it would keep the whole list in memory.
			yield(watch.Event{Type: watch.Modified, Object: o.(runtime.Object).DeepCopyObject()})
		}
	})
	return m.GetContinue(), err
}

// cached makes DELETED events of what the cache holds.
type cached struct {
	quarantine *quarantine
	new        func() object
}

// gone returns the object as handlers know it, so that they find whom it concerns.
func (c *cached) gone(ctx context.Context, key cache.ObjectName, delivered mark, resourceVersion string) watch.Event {
	c.quarantine.catchUp(ctx, "")
	last := c.quarantine.cached(key)
	if last != nil && same(last.GetUID(), delivered.uid) {
		last = last.DeepCopyObject().(object)
	} else {
		last = c.new()
		last.SetNamespace(key.Namespace)
		last.SetName(key.Name)
		last.SetUID(delivered.uid)
	}
	last.SetResourceVersion(resourceVersion)
	return watch.Event{Type: watch.Deleted, Object: last}
}

// feed reads as a list does, but what is bad is set aside at once, as on a watch: a
// list of a few objects says nothing about the others.
func (t *tolerant) feed(ctx context.Context, opts metav1.ListOptions, wanted func(cache.ObjectName) bool, yield func(watch.Event)) (string, error) {
	body, err := t.request(opts).Stream(ctx)
	if err != nil {
		return "", err
	}
	w := &tolerantWatch{tolerant: t, informing: informing(ctx), ctx: ctx, events: make(chan watch.Event, 1), fed: true}
	m, err := t.decoder.list(ctx, body, func(i item) error {
		var key cache.ObjectName
		if i.bad == nil {
			key = cache.MetaObjectToName(metav1.Object(i.object))
		} else {
			inNamespace(i.bad, t.namespace)
			key = keyOf(i.bad)
		}
		if !wanted(key) {
			return nil
		}
		if err := w.handle(frame{event: watch.Modified, item: i}); err != nil {
			return err
		}
		select {
		case event := <-w.events:
			yield(event)
		default:
		}
		return nil
	})
	return m.Continue, err
}

// gone is cached's, but for an object that is set aside: that goes by its record.
func (t *tolerant) gone(ctx context.Context, key cache.ObjectName, delivered mark, resourceVersion string) watch.Event {
	r, bad := t.quarantine.get(key)
	if !bad || !same(r.UID, delivered.uid) {
		c := cached{t.quarantine, t.decoder.new}
		return c.gone(ctx, key, delivered, resourceVersion)
	}
	w := &tolerantWatch{tolerant: t, informing: informing(ctx), ctx: ctx, events: make(chan watch.Event, 1), fed: true}
	_ = w.deleted(&badItem{meta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: r.UID, ResourceVersion: resourceVersion, Generation: r.Generation,
		DeletionTimestamp: r.DeletionTimestamp, Finalizers: r.Finalizers, OwnerReferences: r.OwnerReferences,
	}})
	select {
	case event := <-w.events:
		return event
	default: // stopped
		return watch.Event{Type: watch.Deleted, Object: t.decoder.new()}
	}
}
