package canary

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// These tests run the canary against a real API server, all durations shortened.

var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

const (
	shortInterval  = 500 * time.Millisecond
	shortFailAfter = 1500 * time.Millisecond
	shortRefill    = 2 * time.Second
	// patience is for machines that run all packages' tests at once.
	patience = time.Minute
)

// runner is one process with a canary that leads.
type runner struct {
	*Canary
	t    *testing.T
	stop func()

	mu      sync.Mutex
	seen    []State // each state once in a row
	down    int     // probes that failed
	late    int
	rewound int
}

// run starts a canary as a process would and probes it all the time.
func run(t *testing.T, cfg *rest.Config, namespace, identity string) *runner {
	t.Helper()
	return runEvery(t, shortInterval, cfg, namespace, identity)
}

func runEvery(t *testing.T, interval time.Duration, cfg *rest.Config, namespace, identity string) *runner {
	t.Helper()
	r := &runner{t: t}
	c, err := New(Config{
		Client: cfg, Namespace: namespace, Identity: identity, Interval: interval, FailAfter: max(shortFailAfter, interval),
		Late:    func() { r.note(func() { r.late++ }) },
		Rewound: func() { r.note(func() { r.rewound++ }) },
	})
	if err != nil {
		t.Fatal(err)
	}
	c.refillAfter = shortRefill
	r.Canary = c
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	done.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			err, s := c.Check(), c.Snapshot()
			r.note(func() {
				if err != nil {
					r.down++
				}
				if n := len(r.seen); n == 0 || r.seen[n-1] != s.State {
					r.seen = append(r.seen, s.State)
				}
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

func (r *runner) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *runner) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("states %v, %d failed probes, %+v", r.seen, r.down, r.Snapshot())
}

// become waits for a state and returns how long that took.
func (r *runner) become(s State) time.Duration {
	r.t.Helper()
	began := time.Now()
	controlplane.Eventually(r.t, patience, "the state "+string(s), func() (bool, string) { return r.Snapshot().State == s, r.String() })
	return time.Since(began)
}

// alive fails the test if a probe has failed.
func (r *runner) alive() {
	r.t.Helper()
	if r.failedProbes() != 0 {
		r.t.Errorf("liveness has failed: %s", r)
	}
}

func (r *runner) failedProbes() (n int) {
	r.note(func() { n = r.down })
	return n
}

func (r *runner) lates() (n int) {
	r.note(func() { n = r.late })
	return n
}

func (r *runner) rewinds() (n int) {
	r.note(func() { n = r.rewound })
	return n
}

func (r *runner) saw(s State) (is bool) {
	r.note(func() { is = slices.Contains(r.seen, s) })
	return is
}

// stays runs until d has passed, which has to be in one of the states.
func (r *runner) stays(d time.Duration, states ...State) {
	r.t.Helper()
	over := time.NewTimer(d)
	defer over.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s := r.Snapshot().State; !slices.Contains(states, s) {
			r.t.Fatalf("want %v: %s", states, r)
		}
		select {
		case <-over.C:
			return
		case <-tick.C:
		}
	}
}

func leaseOf(t *testing.T, cfg *rest.Config, namespace string) *coordinationv1.Lease {
	t.Helper()
	lease, err := kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases(namespace).Get(t.Context(), DefaultName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// Every watch is accepted and silent, also those of a restarted process: exactly two
// restarts are asked for, over all processes, then none; and heard again as soon as
// the fault is over.
func TestSystemR26EveryWatchFrozen(t *testing.T) {
	t.Parallel()
	cp := plane.ForTest(t)
	namespace := cp.Namespace(t)
	p, err := faultproxy.Start(faultproxy.Config{Upstream: cp.Config()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cfg := p.ClientConfig(cp.Config())

	r := run(t, cfg, namespace, "process-0")
	r.become(Hearing)
	fault := p.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"watch"}, Resource: "leases", Namespace: namespace}, Freeze: faultproxy.FreezeStream})
	asked := 0
	for i := range 4 {
		if i > 0 {
			r = run(t, cfg, namespace, fmt.Sprintf("process-%d", i))
		}
		// It is Late for a second only, which a slow machine may not see.
		controlplane.Eventually(t, patience, "lateness", func() (bool, string) { return r.lates() > 0, r.String() })
		controlplane.Eventually(t, patience, "deafness", func() (bool, string) {
			s := r.Snapshot().State
			return s == Deaf || s == Unrecoverable, r.String()
		})
		if i < maxAsks {
			controlplane.Eventually(t, patience, "liveness to fail", func() (bool, string) { return r.failedProbes() > 0, r.String() })
			asked++
			if got := readAsks(leaseOf(t, cp.Config(), namespace)); got != asked {
				t.Errorf("liveness fails with %d asks written, want %d", got, asked)
			}
		} else {
			r.become(Unrecoverable)
			r.stays(2*shortFailAfter, Unrecoverable)
			r.alive()
		}
		if n := r.lates(); n != 1 {
			t.Errorf("told %d times that it is late, want once: %s", n, r)
		}
		if i < 3 {
			r.stop() // as the kubelet would; the last two for the sake of it
		}
	}
	if got := readAsks(leaseOf(t, cp.Config(), namespace)); got != maxAsks {
		t.Errorf("%d asks written, want %d", got, maxAsks)
	}
	fault.Remove()
	t.Logf("heard %s after the fault", r.become(Hearing).Round(time.Millisecond))
	controlplane.Eventually(t, patience, "the asks to be given back", func() (bool, string) {
		return readAsks(leaseOf(t, cp.Config(), namespace)) == 0, r.String()
	})
	if took := time.Since(r.Snapshot().Since); took < shortRefill {
		t.Errorf("given back after %s of hearing, want %s", took, shortRefill)
	}
	r.alive()
}

// A watch goes silent, alone or with its TCP connection: it is left behind, and
// nobody is restarted.
func TestSystemPoisonedConnection(t *testing.T) {
	t.Parallel()
	cp := plane.ForTest(t)
	for name, freeze := range map[string]faultproxy.FreezeKind{"Stream": faultproxy.FreezeStream, "Connection": faultproxy.FreezeConnection} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cp.Namespace(t)
			p, err := faultproxy.Start(faultproxy.Config{Upstream: cp.Config()})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			// An interval that a slow machine's events do not exceed.
			const interval = 4 * shortInterval
			r := runEvery(t, interval, p.ClientConfig(cp.Config()), namespace, "a")
			r.become(Hearing)
			fault := p.Add(faultproxy.Rule{
				Match:  faultproxy.Match{Verbs: []string{"watch"}, Resource: "leases", Namespace: namespace},
				Freeze: freeze, Scope: faultproxy.OnlyOpen, Permanent: true,
			})
			began := time.Now()
			controlplane.Eventually(t, patience, "a reconnect", func() (bool, string) {
				return r.Snapshot().Reconnects == 1, fmt.Sprint(fault.Hits(), " hits, ", r)
			})
			r.become(Hearing)
			t.Logf("heard again %s after it went silent", time.Since(began).Round(time.Millisecond))
			r.stays(2*interval, Hearing)
			if got := r.Snapshot(); r.saw(Deaf) || got.Reconnects != 1 || got.AsksSpent != 0 {
				t.Errorf("want one reconnect: %s", r)
			}
			r.alive()
		})
	}
}

// Terms begin and end at any moment, in turn by two processes on one Lease: neither
// late nor deaf, and no rival.
func TestSystemTerms(t *testing.T) {
	t.Parallel()
	cp := plane.ForTest(t)
	namespace := cp.Namespace(t)
	for i := range 30 {
		// An interval that no slow machine exceeds: every term is shorter.
		r := runEvery(t, 10*time.Second, cp.Config(), namespace, fmt.Sprintf("process-%d", i%2))
		if i%3 == 0 {
			r.become(Hearing)
		} else {
			r.stays(time.Duration(i*7)*time.Millisecond, Standby, Pending, Hearing)
		}
		r.stop()
		if s := r.Snapshot(); r.saw(Late) || r.saw(Deaf) || r.saw(Unwritable) || s.State != Standby || s.Rival != "" || s.Rewinds != 0 {
			t.Errorf("term %d: %s", i, r)
		}
		r.alive()
	}
}

// The remedies are for pasting. Where a rule is missing, they make the canary hear.
func TestSystemRemedies(t *testing.T) {
	t.Parallel()
	cp := plane.ForTest(t)
	sh := cp.Shell(t)
	namespace := cp.Namespace(t)
	cfg, err := cp.ConfigFor("somebody")
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, cfg, namespace, "a")
	r.become(Forbidden)
	for range 2 { // those bound to the name, and create
		paste := r.Snapshot().Remedy
		if paste == "" {
			t.Fatalf("no remedy: %s", r)
		}
		if out, err := sh(paste); err != nil {
			t.Fatalf("%s: %v\n%s", paste, err, out)
		}
		controlplane.Eventually(t, patience, "another state", func() (bool, string) {
			s := r.Snapshot()
			return s.State == Hearing || s.State == Forbidden && s.Remedy != paste, r.String()
		})
	}
	r.become(Hearing)
	r.alive()
}

func newConfigMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}}
}

// An API server that stops, and an etcd that is set back below it.
func TestSystemR34OutageAndRewind(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{})
	const namespace = "default"
	r := run(t, cp.Config(), namespace, "a")
	r.become(Hearing)

	cp.StopAPIServer()
	r.become(Unwritable)
	r.stays(2*shortFailAfter, Unwritable)
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("heard %s after the API server was back", r.become(Hearing).Round(time.Millisecond))
	if r.saw(Deaf) {
		t.Errorf("an outage is not deafness: %s", r)
	}

	// Far enough back that the revision does not grow past the old one within the test.
	early, err := cp.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	configMaps := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ConfigMaps(namespace)
	for i := range 150 {
		if _, err := configMaps.Create(t.Context(), newConfigMap(i), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, restart := range []bool{true, false} {
		before := r.Snapshot().Rewinds
		began := time.Now()
		if err := cp.Restore(t.Context(), early, controlplane.RestoreOptions{RestartAPIServers: restart}); err != nil {
			t.Fatal(err)
		}
		controlplane.Eventually(t, patience, "the rewind to be found", func() (bool, string) {
			// The flag may have come and gone while the restore lasted.
			return r.Snapshot().Rewinds == before+1, r.String()
		})
		t.Logf("API servers restarted %t: found %s after the restore began", restart, time.Since(began).Round(time.Millisecond))
		if restart {
			r.become(Hearing)
			controlplane.Eventually(t, patience, "the flag to go", func() (bool, string) { return !r.Snapshot().Rewound, r.String() })
			// Up again, and as far, for the second one.
			for i := range 300 {
				if _, err := configMaps.Create(t.Context(), newConfigMap(1000+i), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		r.stays(3*shortFailAfter, Pending, Late, Unrecoverable, Unwritable)
		r.become(Unrecoverable)
		if s := r.Snapshot(); s.State != Unrecoverable || !s.Rewound || !strings.Contains(s.Remedy, "restart every kube-apiserver") || s.AsksSpent != 0 {
			t.Errorf("an API server that shows the old state: %s", r)
		}
	}
	if n := r.rewinds(); n != 2 {
		t.Errorf("told %d times, want 2: %s", n, r)
	}
	r.alive()
}
