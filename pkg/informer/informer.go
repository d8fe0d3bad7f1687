package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Config says what an Informer keeps a copy of.
type Config[T cache.Object] struct {
	// Resource is what is listed and watched. Required.
	Resource schema.GroupVersionResource
	// ListerWatcher returns the ListerWatcher for a namespace, for all
	// namespaces (or a cluster-scoped resource) if that is "". Called once for
	// each by New. Required; see Tolerant for custom resources and ListWatch for
	// built-in ones.
	ListerWatcher func(namespace string) cache.ListerWatcherWithContext

	// Hearing makes sure that the watch tells everything, and sees to it that the
	// copy follows if it does not. Nil: a watch that has gone silent is believed, as
	// client-go does.
	Hearing *Hearing
	// Connection is what the client behind ListerWatcher was built from. With it a
	// watch that has gone silent leaves its TCP connection behind. Nil: the new watch
	// may be sent over the same connection and be as silent; then polling is what is
	// left.
	Connection *Connection

	// Namespaces limits the copy to these; no request then spans namespaces.
	// Empty: all namespaces, by one list and watch.
	Namespaces []string
	// Indexers are kept next to cache.NamespaceIndex, which is always there.
	// They have to be pure. One that panics or returns an error for an object
	// leaves that object out of its index; Snapshot shows it.
	Indexers cache.TypedIndexers[T]
	// Optional says that clusters without this kind are normal ones. That it is not
	// served is then logged once, not as an error, and not again while it lasts; the
	// state is StateUnlistable all the same.
	Optional bool
	// KeepManagedFields keeps metadata.managedFields, which are otherwise
	// dropped before an object is stored.
	KeepManagedFields bool
	// Transform changes an object, without its managedFields, before it is
	// stored and before handlers see it, to keep the copy small. It has to
	// return an object that has been through it before as it is: a relist passes
	// cached ones again, which others are reading. If it panics the object is
	// kept as it was. Nil: none.
	Transform func(T) T
}

// Informer keeps a local copy of one resource, for however many controllers.
// T is a pointer to an API type.
type Informer[T cache.Object] struct {
	resource    schema.GroupVersionResource
	parts       []*part[T]
	indexer     cache.Indexer
	containment *containment
	synced      *allDone

	quarantineLog *quarantineLog
	listeners     *quarantineListeners

	rewindListeners rewindListeners
	stateNews       stateNews

	mu       sync.Mutex
	onState  []func()
	ctx      context.Context // set by Run
	closed   bool            // Run's ctx has ended
	pending  []*allDone      // to be followed by Run
	routines sync.WaitGroup  // Go only under mu, and while not closed
}

// part is an Informer's share of one namespace.
type part[T cache.Object] struct {
	namespace string
	listWatch *listWatch
	informer  cache.TypedSharedIndexInformer[T]
	// quarantine is empty for ever unless the ListerWatcher is Tolerant's.
	quarantine *quarantine
}

// New makes an Informer. It starts nothing and sends no request.
func New[T cache.Object](c Config[T]) (*Informer[T], error) {
	example, err := c.check()
	if err != nil {
		return nil, err
	}
	namespaces := slices.Sorted(slices.Values(c.Namespaces))
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	i := &Informer[T]{
		resource: c.Resource, containment: newContainment(c.Resource.GroupResource().String()),
		quarantineLog: newQuarantineLog(c.Resource.GroupResource()), listeners: &quarantineListeners{},
		stateNews: make(stateNews, 1),
	}
	view := &namespacedView{resource: c.Resource.GroupResource().String(), namespaces: namespaces, indexers: map[string]cache.Indexer{}}
	var synced []cache.DoneChecker
	for _, namespace := range namespaces {
		p, err := newPart(c, namespace, example, i.containment, newQuarantine(c.Resource, i.quarantineLog, i.listeners), i.rewindListeners.tell)
		if err != nil {
			return nil, err
		}
		p.listWatch.tellState(i.stateNews)
		i.parts = append(i.parts, p)
		view.indexers[namespace] = p.informer.GetIndexer()
		synced = append(synced, p.informer.HasSyncedChecker())
	}
	i.indexer = view
	if len(i.parts) == 1 {
		i.indexer = i.parts[0].informer.GetIndexer()
	}
	i.synced = i.join("informer of "+c.Resource.GroupResource().String(), synced)
	return i, nil
}

// check returns an empty T for client-go.
func (c *Config[T]) check() (runtime.Object, error) {
	if c.Resource.Resource == "" || c.Resource.Version == "" {
		return nil, fmt.Errorf("informer: Config.Resource %q needs a version and a resource", c.Resource)
	}
	name := c.Resource.GroupResource()
	if c.ListerWatcher == nil {
		return nil, fmt.Errorf("informer of %s: Config.ListerWatcher is nil: set it, for example with informer.ListWatch", name)
	}
	if c.Connection != nil && c.Connection.err != nil {
		return nil, fmt.Errorf("informer of %s: Config.Connection %w", name, c.Connection.err)
	}
	for n, namespace := range c.Namespaces {
		if namespace == "" {
			return nil, fmt.Errorf("informer of %s: Config.Namespaces[%d] is empty: name a namespace, or leave Namespaces empty for all", name, n)
		}
		if slices.Contains(c.Namespaces[:n], namespace) {
			return nil, fmt.Errorf("informer of %s: Config.Namespaces names %q twice: name it once", name, namespace)
		}
	}
	if _, ok := c.Indexers[cache.NamespaceIndex]; ok {
		return nil, fmt.Errorf("informer of %s: Config.Indexers has %q: it is always there, choose another name", name, cache.NamespaceIndex)
	}
	for index, f := range c.Indexers {
		if f == nil {
			return nil, fmt.Errorf("informer of %s: Config.Indexers[%q] is nil: set a function or leave it out", name, index)
		}
	}
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		if example, ok := reflect.New(t.Elem()).Interface().(runtime.Object); ok {
			return example, nil
		}
	}
	return nil, fmt.Errorf("informer of %s: %s is no pointer to an API type (a runtime.Object)", name, t)
}

func newPart[T cache.Object](c Config[T], namespace string, example runtime.Object, contain *containment, q *quarantine, rewound func()) (*part[T], error) {
	inner := c.ListerWatcher(namespace)
	if inner == nil {
		return nil, fmt.Errorf("informer of %s: Config.ListerWatcher(%q) returned nil", c.Resource.GroupResource(), namespace)
	}
	if t, ok := inner.(*tolerant); ok {
		d, err := newDecoder(reflect.TypeFor[T](), c.KeepManagedFields)
		if err == nil {
			err = t.bind(c.Resource, d, q)
		}
		if err != nil {
			return nil, fmt.Errorf("informer of %s: %w", c.Resource.GroupResource(), err)
		}
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	for index, f := range c.Indexers {
		indexers[index] = indexFunc(contain, index, f)
	}
	p := &part[T]{namespace: namespace, quarantine: q, listWatch: newListWatch(inner, newCondition(c.Resource, namespace))}
	p.listWatch.condition.optional = c.Optional
	if c.Hearing != nil {
		var f feeder = &listFeeder{inner: inner, cached: cached{q, func() object { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(object) }}}
		if t, ok := inner.(*tolerant); ok {
			f = t
		}
		p.listWatch.ear = newEar(c.Hearing, c.Connection, c.Resource, namespace, q, f, example, rewound)
	}
	p.informer = cache.NewTypedSharedIndexInformer[T](cache.NewSharedIndexInformerWithOptions(p.listWatch, example,
		// No resync: it would only repeat what the copy holds to handlers that
		// have seen it. What has to be repeated is the controller's to requeue.
		cache.SharedIndexInformerOptions{ResyncPeriod: 0, Indexers: indexers}))
	q.store = p.informer.GetStore()
	if err := p.informer.SetWatchErrorHandlerWithContext(p.listWatch.watchFailed); err != nil {
		return nil, err
	}
	if err := p.informer.SetTransform(transform(contain, c.KeepManagedFields, c.Transform)); err != nil {
		return nil, err
	}
	return p, nil
}

// Resource returns what i keeps a copy of.
func (i *Informer[T]) Resource() schema.GroupVersionResource { return i.resource }

// Indexer returns the local copy for generated listers and index lookups. It
// is valid before Run and to be read only. With more than one namespace it is
// a view that refuses writes and Gets outside of the namespaces.
func (i *Informer[T]) Indexer() cache.Indexer { return i.indexer }

// Store returns the store that holds the objects of a namespace, nil if that
// namespace is not watched.
func (i *Informer[T]) Store(namespace string) cache.Store {
	for _, p := range i.parts {
		if p.namespace == "" || p.namespace == namespace {
			return p.informer.GetStore()
		}
	}
	return nil
}

// AddHandler registers h, before or during Run. Nil functions are skipped. h
// must not block. With several namespaces it is called concurrently for
// objects of different ones. If it panics that event is lost to it, counted
// and logged; nothing else suffers.
//
// The registration has synced once h has been given everything that was there
// when the informer started; wait for its HasSyncedChecker with cache.WaitFor.
func (i *Informer[T]) AddHandler(h cache.TypedResourceEventHandlerDetailedFuncs[T]) (cache.ResourceEventHandlerRegistration, error) {
	contained := handler(i.containment, h)
	var registrations []cache.ResourceEventHandlerRegistration
	var checkers []cache.DoneChecker
	for _, p := range i.parts {
		r, err := p.informer.AddTypedEventHandler(contained)
		if err != nil {
			for n, r := range registrations {
				err = errors.Join(err, i.parts[n].informer.RemoveEventHandler(r))
			}
			return nil, fmt.Errorf("add a handler to the informer of %s: %w", i.resource.GroupResource(), err)
		}
		registrations = append(registrations, r)
		checkers = append(checkers, r.HasSyncedChecker())
	}
	if len(registrations) == 1 {
		return registrations[0], nil
	}
	return i.join("handler of "+i.resource.GroupResource().String(), checkers), nil
}

// HasSynced says whether the copy has been filled once, in every namespace.
// Handlers may lag; ask their registrations.
func (i *Informer[T]) HasSynced() bool { return i.synced.HasSynced() }

// HasSyncedChecker is HasSynced for cache.WaitFor.
func (i *Informer[T]) HasSyncedChecker() cache.DoneChecker { return i.synced }

// Run fills the copy and keeps it up to date until ctx ends, then returns nil
// when everything it started has ended; handlers are first given what is
// queued for them. It never returns because a resource cannot be listed. An
// Informer runs once: a second call is an error.
func (i *Informer[T]) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	i.mu.Lock()
	if i.ctx != nil {
		i.mu.Unlock()
		return fmt.Errorf("run the informer of %s: it runs only once, make a new one", i.resource.GroupResource())
	}
	i.ctx = ctx
	i.containment.logTo(logger)
	i.quarantineLog.logTo(logger)
	// client-go logs each watch that ends with an error as a warning. That is
	// one line a retry; what lasts is named by condition.
	quiet := klog.NewContext(ctx, logger.V(1))
	if len(i.onState) > 0 {
		last, all := i.standings(), i.onState
		i.routines.Go(func() { i.tellState(ctx, last, all) })
		for _, p := range i.parts {
			i.routines.Go(func() { i.tellFilled(ctx, p) })
		}
	}
	for _, p := range i.parts {
		p.listWatch.condition.started(logger)
		i.routines.Go(func() {
			defer p.listWatch.ear.started(logger)()
			p.informer.RunWithContext(quiet)
			p.listWatch.join()
			p.quarantine.routines.Wait()
		})
	}
	i.routines.Go(func() { i.quarantineLog.remind(ctx, i.allQuarantined) })
	for _, all := range i.pending {
		i.routines.Go(func() { all.follow(ctx) })
	}
	i.pending = nil
	i.mu.Unlock()

	<-ctx.Done()
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.routines.Wait()
	return nil
}

// join makes one DoneChecker of several. Run follows them, so that waiting for
// it needs no goroutine that outlives Run.
func (i *Informer[T]) join(name string, parts []cache.DoneChecker) *allDone {
	all := &allDone{name: name, parts: parts, done: make(chan struct{})}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.ctx == nil:
		i.pending = append(i.pending, all)
	case !i.closed:
		i.routines.Go(func() { all.follow(i.ctx) })
	}
	return all
}

// allDone is done when all its parts are.
type allDone struct {
	name  string
	parts []cache.DoneChecker
	done  chan struct{}
}

var _ cache.ResourceEventHandlerRegistration = &allDone{}

func (a *allDone) Name() string                        { return a.name }
func (a *allDone) Done() <-chan struct{}               { return a.done }
func (a *allDone) HasSyncedChecker() cache.DoneChecker { return a }
func (a *allDone) HasSynced() bool                     { return !slices.ContainsFunc(a.parts, isPending) }

func isPending(c cache.DoneChecker) bool { return !cache.IsDone(c) }

func (a *allDone) follow(ctx context.Context) {
	for _, p := range a.parts {
		select {
		case <-p.Done():
		case <-ctx.Done():
			return
		}
	}
	close(a.done)
}
