package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

const (
	testLeaseDuration = 15 * time.Second
	testRenewDeadline = 10 * time.Second
	testRetryPeriod   = 2 * time.Second
)

func newConfigMapClient(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()
	config.APIPath = "/api"
	config.GroupVersion = &schema.GroupVersion{Version: "v1"}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// leaseServer is the API server's side of one Lease.
type leaseServer struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
	log     []string
	// fault is asked before each request of a holder; an error is what the
	// request comes to, and applied says that it took effect all the same.
	fault func(ctx context.Context, identity, verb string) (applied bool, err error)
}

func (s *leaseServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return ""
	}
	return s.record.HolderIdentity
}

func (s *leaseServer) setFault(fault func(ctx context.Context, identity, verb string) (bool, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *leaseServer) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

var errUnreachable = errors.New("dial tcp: connection refused")

func unreachable(context.Context, string, string) (bool, error) { return false, errUnreachable }

// hanging is an API server that accepts a request and never answers.
func hanging(ctx context.Context, _, _ string) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// fakeLock is one process's lock on a leaseServer.
type fakeLock struct {
	identity string
	server   *leaseServer
	version  int
}

func (l *fakeLock) Identity() string { return l.identity }
func (*fakeLock) Describe() string   { return "test/lease" }
func (*fakeLock) RecordEvent(string) {}

func (l *fakeLock) do(ctx context.Context, verb string, apply func() error) error {
	l.server.mu.Lock()
	fault := l.server.fault
	l.server.mu.Unlock()
	var applied bool
	var err error
	if fault != nil {
		applied, err = fault(ctx, l.identity, verb)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil && !applied {
		return err
	}
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	if applyErr := apply(); err == nil {
		err = applyErr
	}
	return err
}

func (l *fakeLock) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	var version int
	err = l.do(ctx, "get", func() error {
		if l.server.record == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "steadwatch")
		}
		r := *l.server.record
		record, version = &r, l.server.version
		raw, err = json.Marshal(r)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	l.version = version
	return record, raw, nil
}

func (l *fakeLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, "create", r, func() error {
		if l.server.record != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, "steadwatch")
		}
		return nil
	})
}

func (l *fakeLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, "update", r, func() error {
		if l.server.version != l.version {
			return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "steadwatch", nil)
		}
		return nil
	})
}

// write stores r. Like the real lock it knows of the new version only if the
// answer arrives.
func (l *fakeLock) write(ctx context.Context, verb string, r resourcelock.LeaderElectionRecord, allowed func() error) error {
	var version int
	err := l.do(ctx, verb, func() error {
		if err := allowed(); err != nil {
			return err
		}
		if r.HolderIdentity == "" {
			l.server.log = append(l.server.log, "released")
		}
		l.server.record = &r
		l.server.version++
		version = l.server.version
		return nil
	})
	if err == nil {
		l.version = version
	}
	return err
}

// process is one replica: an election and what it leads.
type process struct {
	*election
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

func newTestElection(s *leaseServer, identity string) *election {
	now := systemClock()
	f := newFence(testRenewDeadline, testLeaseDuration, now)
	return &election{
		lease: &lease{
			Interface: &fakeLock{identity: identity, server: s},
			fence:     f,
			now:       now,
			timeout:   leaseRequestTimeout(testRenewDeadline),
			reconnect: func() {},
		},
		fence:         f,
		leaseDuration: testLeaseDuration,
		renewDeadline: testRenewDeadline,
		retryPeriod:   testRetryPeriod,
	}
}

func startProcess(t *testing.T, e *election, lead func(context.Context) error) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{election: e, cancel: cancel, done: make(chan struct{})}
	go func() {
		p.err = e.run(ctx, lead)
		close(p.done)
	}()
	return p
}

// stop is SIGTERM.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cancel()
	<-p.done
	if p.err != nil {
		t.Errorf("run() = %v", p.err)
	}
}

// idle leads with workers that have nothing to do.
func (s *leaseServer) idle(identity string) func(context.Context) error {
	return func(ctx context.Context) error {
		s.note("%s leads", identity)
		<-ctx.Done()
		s.note("%s stopped: %v", identity, context.Cause(ctx))
		return nil
	}
}

func (s *leaseServer) wantLog(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.log); diff != "" {
		t.Errorf("what happened (-want +got):\n%s", diff)
	}
}

// SIGTERM during a pass of ten seconds: the lease is renewed and the fence open
// while it runs, and released only then; the standby takes over at once.
func TestR80LeaseIsReleasedAfterWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		a := newTestElection(s, "a")
		pa := startProcess(t, a, func(ctx context.Context) error {
			s.note("a leads")
			<-ctx.Done()
			for range 20 {
				time.Sleep(time.Second)
				if err := a.fence.check(); err != nil {
					t.Errorf("a running pass cannot finish its writes: %v", err)
				}
			}
			s.note("a's pass ended")
			return nil
		})
		time.Sleep(time.Second)
		pb := startProcess(t, newTestElection(s, "b"), s.idle("b"))
		time.Sleep(time.Minute)
		pa.stop(t)
		if err := a.fence.check(); !errors.Is(err, ErrNotLeading) {
			t.Errorf("the fence after the release: %v, want ErrNotLeading", err)
		}
		time.Sleep(6 * time.Second)
		s.wantLog(t, "a leads", "a's pass ended", "released", "b leads")
		pb.stop(t)
	})
}

// Nothing is written while the lease is being released, by whatever was forgotten.
func TestFenceClosesBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		e := newTestElection(s, "a")
		p := startProcess(t, e, func(ctx context.Context) error {
			<-ctx.Done()
			s.setFault(func(context.Context, string, string) (bool, error) {
				if err := e.fence.check(); !errors.Is(err, ErrNotLeading) {
					t.Errorf("the fence during the release: %v, want ErrNotLeading", err)
				}
				return false, nil
			})
			return nil
		})
		time.Sleep(time.Minute + testRetryPeriod/4) // not at the moment of a renewal, which may pass
		p.stop(t)
		s.wantLog(t, "released")
	})
}

// A renewal that was under way when the term was given up does not open the
// fence again for passes that are being cancelled.
func TestLateRenewalOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		e := newTestElection(s, "a")
		p := startProcess(t, e, func(ctx context.Context) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), controller.ErrAbort) {
				e.fence.renew(e.fence.now())
				if err := e.fence.check(); !errors.Is(err, ErrNotLeading) {
					t.Errorf("the fence after the term: %v, want ErrNotLeading", err)
				}
			}
			return nil
		})
		time.Sleep(time.Minute)
		s.setFault(unreachable)
		time.Sleep(time.Minute)
		s.setFault(nil)
		time.Sleep(time.Minute)
		p.stop(t)
	})
}

func TestLeaseIsNotReleasedWhileWorkersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		p := startProcess(t, newTestElection(s, "a"), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(30 * time.Second) // the shutdown timeout
			return fmt.Errorf("webapp: %w", controller.ErrWorkersRunning)
		})
		time.Sleep(time.Minute)
		p.cancel()
		<-p.done
		if !errors.Is(p.err, controller.ErrWorkersRunning) {
			t.Errorf("run() = %v, want ErrWorkersRunning, so that the process ends with an error", p.err)
		}
		if s.holder() != "a" {
			t.Errorf("holder = %q: the lease has to lapse, a worker may still write", s.holder())
		}
	})
}

// The API server is away for longer than the lease lasts, several times: the
// leader's context ends by the cause that aborts passes, nothing is written
// after the renew deadline, nobody restarts, one leads again.
func TestLostAndLedAgain(t *testing.T) {
	faults := map[string]func(context.Context, string, string) (bool, error){
		"Refused": unreachable,
		"Hangs":   hanging,
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &leaseServer{}
				e := newTestElection(s, "a")
				var terms atomic.Int32
				var ended atomic.Value
				p := startProcess(t, e, func(ctx context.Context) error {
					terms := terms.Add(1)
					<-ctx.Done()
					ended.Store(time.Now())
					if terms < 4 && !errors.Is(context.Cause(ctx), controller.ErrAbort) {
						t.Errorf("term %d ended by %v, want ErrAbort", terms, context.Cause(ctx))
					}
					time.Sleep(2 * time.Second) // a pass that takes a while to come back
					return nil
				})
				for range 3 {
					time.Sleep(time.Minute)
					if err := e.fence.check(); err != nil {
						t.Fatalf("not leading before the outage: %v", err)
					}
					away := time.Now()
					s.setFault(fault)
					time.Sleep(time.Minute)
					if after := ended.Load().(time.Time).Sub(away); after <= 0 || after > testRenewDeadline+time.Second {
						t.Errorf("the term ended %s after the outage began, want about the renew deadline", after)
					}
					if err := e.fence.check(); !errors.Is(err, ErrNotLeading) {
						t.Errorf("fence during the outage: %v, want ErrNotLeading", err)
					}
					if err := e.Check(); err != nil {
						t.Errorf("liveness during the outage: %v; a restart cannot help", err)
					}
					s.setFault(nil)
				}
				time.Sleep(time.Minute)
				if n := terms.Load(); n != 4 {
					t.Errorf("%d terms, want 4", n)
				}
				p.stop(t)
				s.wantLog(t, "released")
			})
		})
	}
}

// One pass does not come back after the lease was lost: the process has to be
// gone when another may lead.
func TestLostWithWorkersRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		e := newTestElection(s, "a")
		release := make(chan struct{})
		p := startProcess(t, e, func(ctx context.Context) error {
			<-ctx.Done()
			<-release
			return nil
		})
		time.Sleep(time.Minute)
		s.setFault(unreachable)
		<-p.done
		if !errors.Is(p.err, controller.ErrWorkersRunning) || strings.Contains(p.err.Error(), "\n") {
			t.Errorf("run() = %q, want one line that says that workers are running", p.err)
		}
		if left := e.fence.untilLapse(); left < 0 || left > time.Second {
			t.Errorf("gave up %s before the lease lapses, want then", left)
		}
		close(release)
	})
}

// Another holder appears in the Lease, as after a partition or an edit by hand.
func TestLeaseTakenByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		p := startProcess(t, newTestElection(s, "a"), s.idle("a"))
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.record.HolderIdentity = "b"
		s.version++
		s.mu.Unlock()
		time.Sleep(time.Minute)
		p.stop(t)
		s.wantLog(t, "a leads", "a stopped: "+controller.ErrAbort.Error(), "a leads", "a stopped: context canceled", "released")
	})
}

// The process is stopped for longer than the lease lasts, as by SIGSTOP or a
// suspended machine, and wakes up: the fence is closed before anything else
// happens, and an idle process becomes a standby instead of being restarted.
func TestSleptThroughTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		e := newTestElection(s, "a")
		real := systemClock()
		var mu sync.Mutex
		var slept time.Duration
		now := func() reading {
			mu.Lock()
			defer mu.Unlock()
			r := real()
			r.wall = r.wall.Add(slept)
			return r
		}
		e.fence.now, e.lease.now = now, now
		p := startProcess(t, e, s.idle("a"))
		time.Sleep(time.Minute)
		// The network needs a moment; else the first renewal may be quicker than
		// the watch on the lease's age, and nobody has taken the lease.
		s.setFault(unreachable)
		mu.Lock()
		slept = time.Hour
		mu.Unlock()
		if err := e.fence.check(); !errors.Is(err, ErrNotLeading) {
			t.Errorf("fence on waking up: %v, want ErrNotLeading", err)
		}
		time.Sleep(2 * time.Second)
		s.setFault(nil)
		time.Sleep(time.Minute)
		p.stop(t)
		s.wantLog(t, "a leads", "a stopped: "+controller.ErrAbort.Error(), "a leads", "a stopped: context canceled", "released")
	})
}

func TestR43ElectorEnds(t *testing.T) {
	t.Run("Panic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseServer{}
			p := startProcess(t, newTestElection(s, "a"), s.idle("a"))
			time.Sleep(time.Minute)
			s.setFault(func(context.Context, string, string) (bool, error) { panic("boom") })
			<-p.done
			if p.err == nil || !strings.Contains(p.err.Error(), "panic: boom") {
				t.Errorf("run() = %v, want an error that names the panic", p.err)
			}
		})
	})
	t.Run("PanicOnStandby", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseServer{fault: func(context.Context, string, string) (bool, error) { panic("boom") }}
			p := startProcess(t, newTestElection(s, "a"), s.idle("a"))
			<-p.done
			if p.err == nil || !strings.Contains(p.err.Error(), "ended by itself: panic: boom") {
				t.Errorf("run() = %v, want an error that names the panic", p.err)
			}
		})
	})
	// A request that ignores its context hangs the elector for ever.
	t.Run("Deadlock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseServer{}
			e := newTestElection(s, "a")
			release := make(chan struct{})
			p := startProcess(t, e, s.idle("a"))
			time.Sleep(time.Minute)
			if err := e.Check(); err != nil {
				t.Errorf("Check() of a healthy election = %v", err)
			}
			s.setFault(func(context.Context, string, string) (bool, error) { <-release; return false, errUnreachable })
			<-p.done
			if p.err == nil {
				t.Error("run() = nil, want an error: nobody would ever renew again")
			}
			time.Sleep(time.Minute)
			if e.Check() == nil {
				t.Error("Check() = nil for an election that makes no attempt any more")
			}
			s.wantLog(t, "a leads", "a stopped: "+controller.ErrAbort.Error())
			close(release)
		})
	})
}

// A standby whose API server is away, from the start, waits; told to end, it
// ends and touches nothing.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{fault: unreachable}
		a := startProcess(t, newTestElection(s, "a"), s.idle("a"))
		time.Sleep(time.Hour)
		s.setFault(nil)
		time.Sleep(10 * time.Second)
		b := startProcess(t, newTestElection(s, "b"), s.idle("b"))
		time.Sleep(time.Hour)
		b.stop(t)
		s.wantLog(t, "a leads")
		a.stop(t)
		s.wantLog(t, "a leads", "a stopped: context canceled", "released")
	})
}

// What the controllers end by themselves is not taken for a lost lease.
func TestControllersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		broken := errors.New("webapp: broken")
		p := startProcess(t, newTestElection(s, "a"), func(context.Context) error { return broken })
		<-p.done
		if !errors.Is(p.err, broken) {
			t.Errorf("run() = %v, want %v", p.err, broken)
		}
		s.wantLog(t, "released")
	})
}

// The request that renews is bounded, a failure closes the connection, and an
// answer of a healthy server does not.
func TestLeaseRequest(t *testing.T) {
	tests := map[string]struct {
		reason     string
		fault      func(context.Context, string, string) (bool, error)
		takes      time.Duration
		reconnects int
	}{
		"Answered":    {reason: "nothing to mend"},
		"Refused":     {reason: "the pool may hold a dead connection", fault: unreachable, reconnects: 1},
		"Poisoned":    {reason: "a connection that never answers must not cost the lease", fault: hanging, takes: testRenewDeadline / 3, reconnects: 1},
		"Conflict":    {reason: "a conflict is an answer", fault: status(apierrors.NewConflict(schema.GroupResource{}, "", nil))},
		"Forbidden":   {reason: "a missing permission is an answer", fault: status(apierrors.NewForbidden(schema.GroupResource{}, "", nil))},
		"Throttled":   {reason: "a new connection would only add to the load", fault: status(apierrors.NewTooManyRequests("", 1))},
		"Unavailable": {reason: "a load balancer may lead to a better server", fault: status(apierrors.NewServiceUnavailable("")), reconnects: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reconnects := 0
				e := newTestElection(&leaseServer{fault: tc.fault}, "a")
				e.lease.reconnect = func() { reconnects++ }
				start := time.Now()
				_ = e.lease.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"})
				if took := time.Since(start); took != tc.takes {
					t.Errorf("%s: took %s, want %s", tc.reason, took, tc.takes)
				}
				if reconnects != tc.reconnects {
					t.Errorf("%s: %d reconnects, want %d", tc.reason, reconnects, tc.reconnects)
				}
			})
		})
	}
}

func status(err error) func(context.Context, string, string) (bool, error) {
	return func(context.Context, string, string) (bool, error) { return false, err }
}

// The renewal counts from before its request: a server may take nearly the
// whole deadline of the request to store it.
func TestRenewalCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTestElection(&leaseServer{fault: func(context.Context, string, string) (bool, error) {
			time.Sleep(3 * time.Second)
			return false, nil
		}}, "a")
		if err := e.lease.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"}); err != nil {
			t.Fatal(err)
		}
		if left := e.fence.untilLapse(); left != testLeaseDuration-3*time.Second {
			t.Errorf("the lease is taken to last another %s, want %s", left, testLeaseDuration-3*time.Second)
		}
	})
}

// Three processes on a lease server that refuses, hangs, answers late and loses
// answers: no two of them may ever have an open fence at once, and one leads
// again when the faults end.
func TestNeverTwoFencesOpen(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, seed))
				var mu sync.Mutex
				draw := func() float64 { mu.Lock(); defer mu.Unlock(); return random.Float64() }
				s := &leaseServer{}
				processes := map[string]*process{}
				var elections []*election
				for _, id := range []string{"a", "b", "c"} {
					e := newTestElection(s, id)
					elections = append(elections, e)
					processes[id] = startProcess(t, e, func(ctx context.Context) error {
						<-ctx.Done()
						time.Sleep(time.Duration(draw() * float64(3*time.Second)))
						return nil
					})
				}
				openFences := func() (open []string) {
					for _, e := range elections {
						if e.fence.check() == nil {
							open = append(open, e.lease.Identity())
						}
					}
					return open
				}
				var cut string // the process that cannot reach the server, if any
				s.setFault(func(ctx context.Context, id, _ string) (bool, error) {
					mu.Lock()
					mine := cut == id || cut == "all"
					mu.Unlock()
					if !mine {
						return false, nil
					}
					switch p := draw(); {
					case p < 0.3:
						return false, errUnreachable
					case p < 0.6:
						return hanging(ctx, "", "")
					case p < 0.8: // carried out, answer lost
						return true, errUnreachable
					default: // late, and carried out all the same if nobody waits any more
						select {
						case <-time.After(time.Duration(draw() * float64(3*time.Second))):
							return false, nil
						case <-ctx.Done():
							return true, ctx.Err()
						}
					}
				})
				for range 60 {
					mu.Lock()
					switch random.IntN(3) {
					case 0:
						cut = s.holder()
					case 1:
						cut = "all"
					default:
						cut = ""
					}
					mu.Unlock()
					for range 40 {
						time.Sleep(500 * time.Millisecond)
						if open := openFences(); len(open) > 1 {
							t.Errorf("open fences: %v", open)
						}
					}
				}
				mu.Lock()
				cut = ""
				mu.Unlock()
				time.Sleep(time.Minute)
				if open := openFences(); len(open) != 1 {
					t.Errorf("open fences after the faults: %v, want one", open)
				}
				for _, p := range processes {
					p.stop(t)
				}
			})
		})
	}
}
