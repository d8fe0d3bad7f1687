package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// fakeEvents is the API server's side of Events.
type fakeEvents struct {
	typedcorev1.EventInterface
	mu      sync.Mutex
	err     error
	takes   time.Duration
	created []string
	patched int
}

func (f *fakeEvents) Events(string) typedcorev1.EventInterface { return f }

func (f *fakeEvents) CreateWithEventNamespaceWithContext(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.created = append(f.created, e.Reason)
	return e, nil
}

func (f *fakeEvents) PatchWithEventNamespaceWithContext(_ context.Context, e *corev1.Event, _ []byte) (*corev1.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.patched++
	return e, nil
}

var webAppRef = &corev1.ObjectReference{APIVersion: "platform.tejo.dev/v1alpha1", Kind: "WebApp", Namespace: "a", Name: "b", UID: "c"}

// What is recorded before the shutdown is written before the fence closes.
func TestEventsAreFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fakeEvents{takes: 100 * time.Millisecond}
		r := newEventRecorder(ctx, f, "test")
		for i := range 5 {
			r.Eventf(webAppRef, corev1.EventTypeNormal, fmt.Sprintf("Reason%d", i), "message")
		}
		start := time.Now()
		r.flush(ctx)
		if n := len(f.created); n != 5 {
			t.Errorf("%d Events written when flush returned after %s, want 5: %q", n, time.Since(start), f.created)
		}
		cancel()
		synctest.Wait()
	})
}

// R56: the same complaint on every pass is one Event that counts.
func TestR56EventsAreAggregated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fakeEvents{}
		r := newEventRecorder(ctx, f, "test")
		for range 1200 {
			r.Event(webAppRef, corev1.EventTypeWarning, "Failed", "no such image")
			time.Sleep(500 * time.Millisecond)
		}
		if len(f.created) != 1 || f.patched > 30 {
			t.Errorf("%d Events created and %d updates in 10 minutes, want 1 and a few", len(f.created), f.patched)
		}
		cancel()
		synctest.Wait()
	})
}

// An Event that the fence or the API server refuses holds up no other.
func TestRefusedEvents(t *testing.T) {
	for name, refusal := range map[string]error{
		"NotLeading": &url.Error{Op: "Post", URL: "https://apiserver", Err: ErrNotLeading},
		"Forbidden":  apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no rule")),
		"Throttled":  apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "post", schema.GroupResource{}, "", "", 1, true),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				f := &fakeEvents{err: refusal}
				r := newEventRecorder(ctx, f, "test")
				start := time.Now()
				r.Event(webAppRef, corev1.EventTypeNormal, "Lost", "message")
				r.flush(ctx)
				if took := time.Since(start); took > 0 {
					t.Errorf("an Event that is refused took %s", took)
				}
				f.mu.Lock()
				f.err = nil
				f.mu.Unlock()
				r.Event(webAppRef, corev1.EventTypeNormal, "Ready", "message")
				r.flush(ctx)
				if len(f.created) != 1 || f.created[0] != "Ready" {
					t.Errorf("written %q, want [Ready]", f.created)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// flush gives up when its context ends.
func TestFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fakeEvents{err: errUnreachable}
		r := newEventRecorder(ctx, f, "test")
		r.Event(webAppRef, corev1.EventTypeNormal, "Ready", "message")
		bounded, done := context.WithTimeout(ctx, flushTimeout)
		defer done()
		start := time.Now()
		r.flush(bounded)
		if took := time.Since(start); took != flushTimeout {
			t.Errorf("flush returned after %s, want %s", took, flushTimeout)
		}
		cancel()
		synctest.Wait()
	})
}
