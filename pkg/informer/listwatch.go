package informer

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// TypedClient is the part of a generated typed client that an Informer needs.
// L is the list type.
type TypedClient[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// ListWatch makes Config.ListerWatcher from a generated typed client, as in
//
//	informer.ListWatch(clients, clients.CoreV1().ConfigMaps)
//
// For a cluster-scoped resource wrap its getter in a func(string).
//
// clientset is only asked whether it supports WatchList. Real ones do. Fake
// clientsets say that they do not (they never send the bookmark that ends the
// initial events, so the copy would never be filled), but the typed clients
// they hand out do not repeat it; hence the extra argument.
func ListWatch[C TypedClient[L], L runtime.Object](clientset any, typed func(namespace string) C) func(string) cache.ListerWatcherWithContext {
	return func(namespace string) cache.ListerWatcherWithContext {
		client := typed(namespace)
		return cache.ToListerWatcherWithContext(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, opts)
			},
			WatchFuncWithContext: client.Watch,
		}, clientset))
	}
}

// errStopped answers calls that come after Run has returned.
var errStopped = errors.New("informer has stopped")

// listWatch stands between client-go's Reflector and the ListerWatcher that
// talks to the API server, for one namespace. It counts, notes what was heard last
// and keeps the condition. Without an ear it changes nothing in what passes; with
// one each watch is a session, which sees to it that the Reflector is told.
//
// What a refused kind costs (Reflector of client-go 0.37): each try is a
// WatchList request and, since any error but 410, 429 and "connection refused"
// makes the Reflector fall back, a LIST; both are refused. Then it backs off:
// 0.8 s doubling to 30 s, stretched by a random factor of 1 to 2. So once the
// missing CRD or permission is there the copy fills within 60 s. The backoff
// starts over every two minutes even if nothing has succeeded: it is meant to
// after two minutes without a retry, but wait.Backoff.DelayWithReset counts
// from the last reset. That makes about 380 requests an hour. After 429 and "connection
// refused" the waits are our own, see retry.go.
//
// When a CRD is deleted the watch first delivers DELETED for each object, then
// ends. The Reflector watches again from there and gets 404: the same retry.
// Objects whose DELETED was missed leave with the relist that succeeds.
type listWatch struct {
	inner     cache.ListerWatcherWithContext
	condition *condition
	// ear is nil without Config.Hearing.
	ear *ear

	mu        sync.Mutex
	stopped   bool
	inflight  sync.WaitGroup // calls and streams; Add only under mu
	counts    counts
	behind    bool // the last WatchList told of a watch cache that is behind
	retries   retries
	heldUntil time.Time
}

// errBehind is what the Reflector gets in place of a WatchList if the API server's
// watch cache does not get on, for example because of one stored object that it
// cannot decode: the WatchList before has ended with "Too large resource version" in
// its stream, or this one was refused with 429 and that object. The Reflector would
// try the same for ever and tell nobody (client-go 0.37). An error without a class
// makes it LIST from etcd, which works or says what is wrong.
var errBehind = errors.New("the API server's watch cache is behind its storage")

// counts is what listWatch has seen so far.
type counts struct {
	lists, watches  uint64
	events          map[watch.EventType]uint64
	heard           time.Time
	resourceVersion string
}

var (
	_ cache.ListerWatcher            = &listWatch{}
	_ cache.ListerWatcherWithContext = &listWatch{}
)

func newListWatch(inner cache.ListerWatcherWithContext, c *condition) *listWatch {
	return &listWatch{
		inner:     inner,
		condition: c,
		counts:    counts{events: map[watch.EventType]uint64{}},
	}
}

// tellState has n woken whenever the state may have changed. It is called before
// anything runs.
func (l *listWatch) tellState(n stateNews) {
	l.condition.news = n
	if l.ear != nil {
		l.ear.news = n
	}
}

// IsWatchListSemanticsUnSupported passes on what the client says, with the
// method name that client-go looks for.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.inner)
}

// List is there for cache.ListerWatcher; client-go calls ListWithContext.
func (l *listWatch) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

// Watch is there for cache.ListerWatcher; client-go calls WatchWithContext.
func (l *listWatch) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

// ListWithContext lists. Pages after the first are not counted as lists.
func (l *listWatch) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if !l.enter(func(c *counts) {
		if opts.Continue == "" {
			c.lists++
		}
	}) {
		return nil, errStopped
	}
	defer l.inflight.Done()
	list := l.inner.ListWithContext
	if l.ear != nil {
		opts, list = l.ear.listing(opts), l.boundedList
	}
	got, err := list(ctx, opts)
	if err != nil {
		return nil, err // ends up in watchFailed
	}
	if m, err := meta.ListAccessor(got); err == nil {
		l.heard(m.GetResourceVersion())
		if l.ear != nil {
			l.ear.listed(opts, got, m)
		}
	}
	return got, nil
}

// WatchWithContext opens a watch. What the Reflector would ask for again as it is, it
// does not get to know: see retry.go.
func (l *listWatch) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	for {
		if err := l.held(ctx); err != nil {
			return nil, err
		}
		w, err := l.watch(ctx, opts)
		if err == nil || !isRetried(err) {
			return w, err // an error ends up in watchFailed, or a LIST follows
		}
		l.condition.failed(err)
		if opts.SendInitialEvents != nil && !helpsToWait(err) {
			return nil, errBehind
		}
		l.hold(err)
	}
}

// helpsToWait reports whether a 429 is one that goes away by itself.
func helpsToWait(err error) bool {
	reason := classify(err)
	return reason != Corrupt && reason != Conversion
}

func (l *listWatch) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil && l.wasBehind() {
		return nil, errBehind
	}
	if l.ear != nil && opts.SendInitialEvents != nil {
		if err := l.ear.refuseWatchLists(); err != nil {
			return nil, err
		}
	}
	if !l.enter(func(c *counts) { c.watches++ }) {
		return nil, errStopped
	}
	if l.ear != nil {
		s, err := l.listen(ctx, opts)
		if err != nil {
			l.inflight.Done()
			return nil, err
		}
		return s, nil
	}
	inner, err := l.inner.WatchWithContext(ctx, opts)
	if err != nil {
		l.inflight.Done()
		return nil, err
	}
	initial := sendsInitialEvents(opts)
	if !initial {
		l.condition.succeeded()
	}
	s := &stream{inner: inner, events: make(chan watch.Event), stop: make(chan struct{})}
	go func() {
		defer l.inflight.Done()
		s.run(func(event watch.Event) { initial = l.saw(event, initial) })
	}()
	return s, nil
}

// watchFailed is the informer's watch error handler: client-go calls it once a
// try, with the error of what it tried last. Setting it also silences the line
// that client-go logs for every try.
func (l *listWatch) watchFailed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() == nil {
		l.condition.failed(err)
		l.find(ctx, err)
	}
}

func (l *listWatch) wasBehind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.behind
	l.behind = false
	return was
}

// enter begins a call or a stream, which ends with inflight.Done.
func (l *listWatch) enter(count func(*counts)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.inflight.Add(1)
	count(&l.counts)
	return true
}

// note changes the counts.
func (l *listWatch) note(count func(*counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count(&l.counts)
}

// join waits for every call and stream and refuses new ones. The Reflector
// itself leaves a LIST that its context has cancelled to its own devices.
func (l *listWatch) join() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.inflight.Wait()
}

func (l *listWatch) heard(resourceVersion string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.heard, l.counts.resourceVersion = time.Now(), resourceVersion
}

// saw notes an event and returns whether the initial events of a WatchList are
// still to come. Those are in no order of resourceVersion: only the bookmark
// that ends them says how far the copy has got.
func (l *listWatch) saw(event watch.Event, initial bool) bool {
	resourceVersion := ""
	if event.Type != watch.Error {
		if m, err := meta.Accessor(event.Object); err == nil {
			resourceVersion = m.GetResourceVersion()
			if initial && event.Type == watch.Bookmark && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				initial = false
				l.condition.succeeded()
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if event.Type == watch.Error && initial {
		l.behind = apierrors.HasStatusCause(apierrors.FromObject(event.Object), metav1.CauseTypeResourceVersionTooLarge)
	}
	l.counts.events[event.Type]++
	l.counts.heard = time.Now()
	if resourceVersion != "" && !initial {
		l.counts.resourceVersion = resourceVersion
	}
	return initial
}

// describe fills in the counts.
func (l *listWatch) describe(s *Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Lists, s.Watches, s.LastHeard, s.ResourceVersion = l.counts.lists, l.counts.watches, l.counts.heard, l.counts.resourceVersion
	s.Events = maps.Clone(l.counts.events)
}

// stream hands the events of inner on, each after it has been seen.
type stream struct {
	inner    watch.Interface
	events   chan watch.Event
	stop     chan struct{}
	stopOnce sync.Once
}

func (s *stream) ResultChan() <-chan watch.Event { return s.events }

func (s *stream) Stop() { s.stopOnce.Do(func() { close(s.stop) }) }

// run returns when inner has ended or Stop was called, and inner's producer
// has closed its channel.
func (s *stream) run(see func(watch.Event)) {
	defer func() {
		s.inner.Stop()
		for range s.inner.ResultChan() { // what nobody waits for any more
		}
	}()
	defer close(s.events)
	for {
		select {
		case <-s.stop:
			return
		case event, ok := <-s.inner.ResultChan():
			if !ok {
				return
			}
			see(event)
			select {
			case <-s.stop:
				return
			case s.events <- event:
			}
		}
	}
}
