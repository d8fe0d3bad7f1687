package canary

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// The Reflector's errors pass a handler that slows their sender down by the time of
// the last one, which may lie in another bubble's future.
func init() { utilruntime.ErrorHandlers = nil }

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// fakeServer keeps one Lease, as etcd and an API server would, and can be broken.
type fakeServer struct {
	mu       sync.Mutex
	revision int64
	lease    *coordinationv1.Lease // nil: there is none
	history  []watch.Event
	happened []time.Time
	watches  []*fakeWatch
	// frozen watches, open and new, are accepted and deliver nothing.
	frozen bool
	// lag delays each event of a watch.
	lag time.Duration
	// ends: each new watch ends after endAfter, with endWith if that is not nil, before it
	// has delivered anything.
	ends     bool
	endAfter time.Duration
	endWith  *metav1.Status
	// fail answers a verb with an error.
	fail map[string]error
	// before is called ahead of each request, without the lock.
	before func(verb string)
	// answering delays the answer to each create and update, which is stored at once.
	answering time.Duration
	opaque    bool // revisions that cannot be compared
	cuts      int
	calls     map[string]int
}

func newFakeServer() *fakeServer {
	return &fakeServer{revision: 100, fail: map[string]error{}, calls: map[string]int{}}
}

type fakeWatch struct {
	s    *fakeServer
	out  chan watch.Event
	stop chan struct{}
	once sync.Once
	from int64
	wake chan struct{}
	mute bool // frozen for good
	end  <-chan time.Time
	with *metav1.Status
}

func (w *fakeWatch) ResultChan() <-chan watch.Event { return w.out }
func (w *fakeWatch) Stop()                          { w.once.Do(func() { close(w.stop) }) }

func (w *fakeWatch) run() {
	defer close(w.out)
	for {
		w.s.mu.Lock()
		var next *watch.Event
		var due time.Time
		if !w.s.frozen && !w.mute {
			for i := range w.s.history {
				if number(w.s.history[i].Object.(*coordinationv1.Lease)) > w.from {
					next, due = &w.s.history[i], w.s.happened[i].Add(w.s.lag)
					break
				}
			}
		}
		w.s.mu.Unlock()
		if next == nil {
			select {
			case <-w.wake:
			case <-w.stop:
				return
			case <-w.end:
				if w.with != nil {
					select {
					case w.out <- watch.Event{Type: watch.Error, Object: w.with}:
					case <-w.stop:
					}
				}
				return
			}
			continue
		}
		w.from = number(next.Object.(*coordinationv1.Lease))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-w.stop:
				return
			}
		}
		e := watch.Event{Type: next.Type, Object: next.Object.DeepCopyObject()}
		select {
		case w.out <- e:
		case <-w.stop:
			return
		}
	}
}

// version writes a revision; opaque ones begin with a letter.
func (s *fakeServer) version(n int64) string {
	if s.opaque {
		return "v" + strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10)
}

func parse(version string) int64 {
	if len(version) > 0 && version[0] == 'v' {
		version = version[1:]
	}
	n, _ := strconv.ParseInt(version, 10, 64)
	return n
}

func number(l *coordinationv1.Lease) int64 { return parse(l.ResourceVersion) }

func (s *fakeServer) enter(verb string) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(verb)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[verb]++
	return s.fail[verb]
}

func (s *fakeServer) answer() {
	s.mu.Lock()
	delay := s.answering
	s.mu.Unlock()
	time.Sleep(delay)
}

func (s *fakeServer) put(kind watch.EventType, lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.revision++
	lease = lease.DeepCopy()
	lease.ResourceVersion = s.version(s.revision)
	s.lease = lease
	if kind == watch.Deleted {
		s.lease = nil
	}
	s.happened = append(s.happened, time.Now())
	s.history = append(s.history, watch.Event{Type: kind, Object: lease.DeepCopy()})
	s.wakeLocked()
	return lease.DeepCopy()
}

func (s *fakeServer) wakeLocked() {
	for _, w := range s.watches {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (s *fakeServer) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := s.enter("get"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return s.lease.DeepCopy(), nil
}

func (s *fakeServer) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := s.enter("create"); err != nil {
		return nil, err
	}
	defer s.answer()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(leaseResource, lease.Name)
	}
	return s.put(watch.Added, lease), nil
}

func (s *fakeServer) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := s.enter("update"); err != nil {
		return nil, err
	}
	defer s.answer()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil, apierrors.NewNotFound(leaseResource, lease.Name)
	}
	if s.lease.ResourceVersion != lease.ResourceVersion {
		return nil, apierrors.NewConflict(leaseResource, lease.Name, errors.New("the object has been modified"))
	}
	return s.put(watch.Modified, lease), nil
}

func (s *fakeServer) List(_ context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if err := s.enter("list"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: s.version(s.revision)}}
	if s.lease != nil {
		list.Items = []coordinationv1.Lease{*s.lease.DeepCopy()}
	}
	return list, nil
}

func (s *fakeServer) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := s.enter("watch"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &fakeWatch{s: s, out: make(chan watch.Event), stop: make(chan struct{}), wake: make(chan struct{}, 1), from: parse(o.ResourceVersion)}
	if s.ends {
		w.mute, w.end, w.with = true, time.After(s.endAfter), s.endWith
	}
	s.watches = append(s.watches, w)
	go w.run()
	return w, nil
}

// cut ends all watches, as closing their connection would.
func (s *fakeServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts++
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

// set changes what is broken.
func (s *fakeServer) set(f func(*fakeServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
	s.wakeLocked()
}

func (s *fakeServer) stored() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

// process is one process with a canary.
type process struct {
	*Canary
	t      *testing.T
	late   int
	rewind int
	trips  []time.Duration
	mu     sync.Mutex
	end    context.CancelFunc
	done   chan error
}

func (s *fakeServer) process(t *testing.T, name string) *process {
	t.Helper()
	p := &process{t: t}
	c, err := newCanary(Config{
		Namespace: "system", Identity: name,
		RoundTrip: func(d time.Duration) { p.note(func() { p.trips = append(p.trips, d) }) },
		Late:      func() { p.note(func() { p.late++ }) },
		Rewound:   func() { p.note(func() { p.rewind++ }) },
	}, s, s, func() {}, s.cut)
	if err != nil {
		t.Fatal(err)
	}
	p.Canary = c
	return p
}

func (p *process) note(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *process) lates() int { p.mu.Lock(); defer p.mu.Unlock(); return p.late }

// lead begins a term.
func (p *process) lead() {
	ctx, cancel := context.WithCancel(context.Background())
	p.end, p.done = cancel, make(chan error, 1)
	go func() { p.done <- p.Run(ctx) }()
}

// leave ends the term.
func (p *process) leave() {
	p.t.Helper()
	p.end()
	if err := <-p.done; err != nil {
		p.t.Fatal(err)
	}
}

// is fails the test unless the canary is in one of the states and live as given.
func (p *process) is(live bool, states ...State) {
	p.t.Helper()
	s := p.Snapshot()
	if !slices.Contains(states, s.State) {
		p.t.Fatalf("state %s since %s (%s), want %v; %+v", s.State, time.Since(s.Since), s.Message, states, s)
	}
	if err := p.Check(); (err == nil) != live {
		p.t.Fatalf("state %s: liveness says %v, want live %t; %+v", s.State, err, live, s)
	}
}
