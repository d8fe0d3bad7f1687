package main

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/scheme"
)

// eventTimeout bounds one write of an Event. They are written one after another:
// one that hangs would hold up all others.
const eventTimeout = 10 * time.Second

// eventRecorder records Events, aggregated by client-go's correlator. There is
// one for the life of the process, not one a term: nothing has to be started or
// joined when the lead changes hands, and what was aggregated stays so. Its
// client passes the fence, so that a standby emits none.
type eventRecorder struct {
	record.EventRecorder
	broadcaster record.EventBroadcaster
	sink        *eventSink
}

// newEventRecorder starts a recorder that ends with ctx.
func newEventRecorder(ctx context.Context, client typedcorev1.EventsGetter, component string) *eventRecorder {
	sink := &eventSink{ctx: ctx, client: client, flushed: make(chan types.UID, 1)}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(sink)
	return &eventRecorder{
		EventRecorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}),
		broadcaster:   broadcaster,
		sink:          sink,
	}
}

// flush waits until the Events recorded so far have been written, or ctx ends.
// Events are written in order: one that is for the sink alone shows when its turn
// has come. Not for concurrent use.
func (r *eventRecorder) flush(ctx context.Context) {
	marker := uuid.NewUUID()
	r.Event(&corev1.ObjectReference{Kind: flushKind, Name: "flush", UID: marker}, corev1.EventTypeNormal, "Flush", "")
	for {
		select {
		case uid := <-r.sink.flushed:
			if uid == marker {
				return
			}
		case <-ctx.Done():
			klog.FromContext(ctx).V(2).Info("Some Events may not have been written")
			return
		}
	}
}

// flushKind is no kind that an API server knows.
const flushKind = "steadwatch:flush"

// eventSink writes Events. An Event that cannot be written is not worth a retry
// after the lead is gone, nor a log line with the whole object in it.
type eventSink struct {
	ctx     context.Context
	client  typedcorev1.EventsGetter
	flushed chan types.UID
}

func (s *eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind == flushKind {
		select {
		case s.flushed <- event.InvolvedObject.UID:
		default: // nobody waits any more
		}
		return event, nil
	}
	return s.write(event, func(ctx context.Context, client typedcorev1.EventInterface) (*corev1.Event, error) {
		return client.CreateWithEventNamespaceWithContext(ctx, event)
	})
}

func (s *eventSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.write(event, func(ctx context.Context, client typedcorev1.EventInterface) (*corev1.Event, error) {
		return client.UpdateWithEventNamespaceWithContext(ctx, event)
	})
}

func (s *eventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.write(event, func(ctx context.Context, client typedcorev1.EventInterface) (*corev1.Event, error) {
		return client.PatchWithEventNamespaceWithContext(ctx, event, data)
	})
}

func (s *eventSink) write(event *corev1.Event, do func(context.Context, typedcorev1.EventInterface) (*corev1.Event, error)) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, eventTimeout)
	defer cancel()
	written, err := do(ctx, s.client.Events(""))
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return written, nil
	case errors.Is(err, ErrNotLeading):
		return event, nil
	// The recorder creates an Event anew that has expired in the meantime.
	case apierrors.IsNotFound(err):
		return nil, err
	case errors.As(err, &answer):
		klog.FromContext(s.ctx).Info("Event not written", "object", klog.KRef(event.InvolvedObject.Namespace, event.InvolvedObject.Name),
			"reason", event.Reason, "err", err)
		return event, nil
	}
	return nil, err // the recorder retries
}
