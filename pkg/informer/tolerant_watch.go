package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// tolerantWatch is a watch whose bad objects are set aside. It ends as
// client-go's own does (watch.StreamWatcher), since that decides whether the
// Reflector watches again or lists again.
type tolerantWatch struct {
	*tolerant
	informing context.Context // outlives the stream
	ctx       context.Context
	cancel    context.CancelFunc
	events    chan watch.Event

	// initial is set until a WatchList's initial events have ended; what is bad
	// among them is staged.
	initial bool
	stage   *stage
	// ordered: events come in the order of their resourceVersion, so that a
	// bookmark of ours tells the Reflector nothing wrong. Not so among the events
	// that make up an initial state.
	ordered bool
	// fed: what is sent is delivered later, if at all, by who feeds it.
	fed bool
}

func (w *tolerantWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch. The channel is closed when all its goroutines have ended.
func (w *tolerantWatch) Stop() { w.cancel() }

func (w *tolerantWatch) run(body io.ReadCloser) {
	defer close(w.events)
	defer w.cancel()
	err := w.decoder.frames(w.ctx, body, w.handle)
	switch {
	case err == nil, w.ctx.Err() != nil:
	case errors.Is(err, errMalformed):
		w.fail(err)
	case errors.Is(err, io.ErrUnexpectedEOF), utilnet.IsProbableEOF(err), utilnet.IsTimeout(err):
		// Watched again from where it broke off.
	default:
		w.fail(err)
	}
}

// fail ends the watch in a way that makes the Reflector list again.
func (w *tolerantWatch) fail(err error) {
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	_ = w.send(watch.Error, reporter.AsObject(fmt.Errorf("unable to decode an event from the watch stream: %w", err)))
}

// send hands an event on. The error is that the watch was stopped.
func (w *tolerantWatch) send(event watch.EventType, object runtime.Object) error {
	select {
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	case w.events <- watch.Event{Type: event, Object: object}:
	}
	if o, ok := object.(metav1.Object); ok && w.ordered && !w.fed {
		w.quarantine.setDelivered(o.GetResourceVersion())
	}
	return nil
}

func (w *tolerantWatch) handle(f frame) error {
	if f.event == watch.Error {
		return w.send(watch.Error, f.status)
	}
	if !w.initial && w.stage == nil && f.event != watch.Added {
		w.ordered = true
	}
	switch {
	case f.event == watch.Bookmark:
		return w.bookmark(f.item.object)
	case f.item.bad == nil:
		return w.good(f.event, f.item.object)
	}
	b := f.item.bad
	if !b.hasKey() {
		w.quarantine.unreadable(b)
		return w.moveOn(b.meta.ResourceVersion)
	}
	inNamespace(b, w.namespace)
	if f.event == watch.Deleted {
		return w.deleted(b)
	}
	return w.bad(b)
}

func (w *tolerantWatch) bookmark(object object) error {
	if w.initial && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		w.stage.commit(w.informing, object.GetResourceVersion())
		w.initial, w.ordered = false, true
	}
	return w.send(watch.Bookmark, object)
}

func (w *tolerantWatch) good(event watch.EventType, object object) error {
	key := cache.MetaObjectToName(object)
	if w.initial {
		w.stage.drop(key)
		return w.send(event, object)
	}
	if w.quarantine.leave(key, object.GetResourceVersion()) {
		defer w.quarantine.settle(w.informing)
	}
	return w.send(event, object)
}

// bad sets an object aside that was added or modified.
func (w *tolerantWatch) bad(b *badItem) error {
	if w.initial {
		if standIn := w.stage.resolve(item{bad: b}); standIn != nil {
			return w.send(watch.Added, standIn)
		}
		return nil
	}
	gone := w.quarantine.replaced(w.ctx, b)
	w.quarantine.enter(b)
	if gone == nil {
		return w.moveOn(b.meta.ResourceVersion)
	}
	// Another object of that name is still cached: its delete was not seen.
	last := gone.DeepCopyObject().(object)
	last.SetResourceVersion(b.meta.ResourceVersion) // or the Reflector goes back to its old one
	return w.send(watch.Deleted, last)
}

// deleted hands on that a bad object is gone: as its last good version under
// the metadata of the frame, so that handlers that map by spec find what they
// need, or else as its metadata alone.
func (w *tolerantWatch) deleted(b *badItem) error {
	last := w.decoder.new()
	if held := w.quarantine.held(w.ctx, b); held != nil {
		last = held.DeepCopyObject().(object)
	} else {
		last.SetNamespace(b.meta.Namespace)
		last.SetName(b.meta.Name)
	}
	if b.meta.UID != "" {
		last.SetUID(b.meta.UID)
	}
	if !b.meta.CreationTimestamp.IsZero() {
		last.SetCreationTimestamp(b.meta.CreationTimestamp)
	}
	last.SetResourceVersion(b.meta.ResourceVersion)
	last.SetGeneration(b.meta.Generation)
	last.SetDeletionTimestamp(b.meta.DeletionTimestamp)
	last.SetDeletionGracePeriodSeconds(b.meta.DeletionGracePeriodSeconds)
	last.SetFinalizers(b.meta.Finalizers)
	last.SetOwnerReferences(b.meta.OwnerReferences)
	return w.good(watch.Deleted, last)
}

// moveOn lets the Reflector know how far the watch has got where it is given no
// object: else the next watch would begin with what is bad once more, and at
// last with 410. The bookmark must be of the informer's own type.
func (w *tolerantWatch) moveOn(resourceVersion string) error {
	if !w.ordered || w.fed || resourceVersion == "" {
		return nil
	}
	mark := w.decoder.new()
	mark.SetResourceVersion(resourceVersion)
	return w.send(watch.Bookmark, mark)
}
