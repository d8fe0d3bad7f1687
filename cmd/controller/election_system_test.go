package main_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// load changes WebApps all the time until the test ends or stop is called, so that
// whoever leads has passes under way at any moment.
func (w *world) load(objects int) (stop func()) {
	w.Helper()
	for n := range objects {
		w.create(w.namespace, fmt.Sprintf("load-%d", n))
	}
	ctx, cancel := context.WithCancel(background)
	var done sync.WaitGroup
	for worker := range 2 {
		done.Go(func() {
			for n := worker; ctx.Err() == nil; n += 2 {
				patch := fmt.Sprintf(`{"spec":{"image":"registry.example/app:%d"}}`, n)
				_, _ = w.platform.PlatformV1alpha1().WebApps(w.namespace).Patch(ctx, fmt.Sprintf("load-%d", n%objects),
					types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	w.Cleanup(stop)
	return stop
}

func (w *world) loadConverges(objects int) {
	w.Helper()
	for n := range objects {
		w.converges(patience, w.namespace, fmt.Sprintf("load-%d", n))
	}
}

// A leader that is killed has a successor as soon as its lease has lapsed.
func TestSystemLeaderKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch", "second")
	first := w.start("steadwatch", replicaOptions{brief: true})
	first.awaitLead()
	second := w.start("second", replicaOptions{brief: true})
	second.awaitReady()
	stop := w.load(10)
	w.converges(patience, w.namespace, "load-0")
	if second.leads() { // a slow machine has taken the lease from the first
		first, second = second, first
	}

	before := w.lease.last()
	killed := time.Now()
	first.signal(syscall.SIGKILL)
	after := w.awaitOther(takeover+slack, before)
	if took := after.seen.Sub(killed); took > takeover+slack {
		t.Errorf("takeover took %s, want at most %s and %s for a slow machine", took, takeover, slack)
	}
	t.Logf("takeover %s after the kill", after.seen.Sub(killed))
	stop()
	w.loadConverges(10)
	w.create(w.namespace, "later")
	w.converges(patience, w.namespace, "later")
	if n := w.fenced(); n < 10 {
		t.Errorf("only %d writes in all: this shows nothing", n)
	}
	second.alive()
}

// A leader that was stopped and wakes up after its lease has lapsed (SIGSTOP, a
// suspended machine) finds its workers in the middle of passes. None of them may
// write.
func TestSystemLeaderStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch", "second")
	replicas := map[string]*replica{}
	for _, name := range []string{"steadwatch", "second"} {
		r := w.start(name, replicaOptions{brief: true})
		r.awaitReady()
		replicas[r.user] = r
	}
	stop := w.load(10)
	w.converges(patience, w.namespace, "load-0")
	tries := 10
	if long {
		tries = 200
	}
	for try := range tries {
		// At another point of the term, and of a pass, each time.
		w.eventually(patience, "the moment to stop", func() (bool, string) {
			return len(w.lease.all())%4 == try%4, w.lease.last().holder
		})
		holder := w.awaitHolder(patience, "one of them", func(h string) bool { return h != "" })
		leader := replicas[w.holders()[holder.holder]]
		if leader == nil {
			t.Fatalf("nobody is known to be %q: %v", holder.holder, w.holders())
		}
		leader.signal(syscall.SIGSTOP)
		w.awaitOther(patience, holder)
		leader.signal(syscall.SIGCONT)
		leader.awaitReady()
		leader.alive()
	}
	stop()
	w.loadConverges(10)
	requests := w.fenced()
	t.Logf("%d tries, %d writes", tries, requests)
	if requests < 10*tries {
		t.Errorf("%d writes in %d tries: too few to show anything", requests, tries)
	}
	writers := map[string]bool{}
	for _, e := range w.writes(w.users...) {
		writers[e.User] = true
	}
	if len(writers) != 2 {
		t.Errorf("writes by %v, want by both", writers)
	}
}

// The leader loses nothing but its way to the Lease, while a write of its hangs.
// That write must not be carried out once another may lead.
func TestSystemLeaseUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch", "second")
	proxy := w.proxy()
	first := w.start("steadwatch", replicaOptions{brief: true, proxy: proxy})
	first.awaitLead()
	second := w.start("second", replicaOptions{brief: true})
	second.awaitReady()

	held := w.hold(proxy, "held")
	w.create(w.namespace, "held")
	held.await()
	term := w.lease.last()
	cut := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Resource: "leases"}, Freeze: faultproxy.FreezeStream})
	began := time.Now()
	next := w.awaitOther(takeover+slack, term)
	if took := next.seen.Sub(began); took > takeover+slack {
		t.Errorf("takeover took %s, want at most %s and %s for a slow machine", took, takeover, slack)
	}
	held.release()
	w.converges(patience, w.namespace, "held")

	if n := held.forwarded.Load(); n != 0 {
		t.Errorf("%d held requests were still wanted by their sender when they were let go", n)
	}
	if got := w.audit(controlplane.StageRequestReceived, []string{first.user}, patchesDeployment("held")); len(got) != 0 {
		t.Errorf("the API server received %v", got)
	}
	// A standby again, as the process it was.
	first.alive()
	cut.Remove()
	first.healthy("/healthz")
	first.healthy("/readyz")
	second.signal(syscall.SIGKILL)
	first.awaitLead()
	w.create(w.namespace, "later")
	w.converges(patience, w.namespace, "later")
	first.alive()
	w.fenced()
}

// The same, but the pass does not return: the process ends, and nothing of it can
// write any more.
func TestSystemLeaseUnreachableWhilePassHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch")
	proxy := w.proxy()
	r := w.start("steadwatch", replicaOptions{brief: true, proxy: proxy, binary: hangingBinary(t)})
	r.awaitLead()
	w.create(w.namespace, "stuck")
	w.passRuns(r)
	proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Resource: "leases"}, Freeze: faultproxy.FreezeStream})
	if code := r.exits(leaseDuration + slack); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	w.contains(r, "the lease was lost and another process may lead")
	w.fenced()
}

// A standby keeps its caches filled and does nothing else, and is healthy and ready
// all the time. Then the same process leads.
func TestSystemStandby(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch", "second")
	leader := w.start("steadwatch", replicaOptions{})
	leader.awaitLead()
	standby := w.start("second", replicaOptions{})
	standby.awaitReady()

	var probes, failed atomic.Int64
	ctx, cancel := context.WithCancel(background)
	var probing sync.WaitGroup
	probing.Go(func() {
		for ctx.Err() == nil {
			for _, path := range []string{"/healthz", "/readyz"} {
				probes.Add(1)
				if code, body := get(standby.health, path+"?verbose"); code != http.StatusOK {
					failed.Add(1)
					t.Errorf("%s of the standby: %d %s", path, code, body)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	defer probing.Wait()
	defer cancel()

	stop := w.load(20)
	w.during(5*time.Second, func() {})
	stop()
	w.loadConverges(20)
	if got := w.writes(standby.user); len(got) != 0 {
		t.Errorf("the standby wrote %d times, first %s %s", len(got), got[0].Verb, got[0].RequestURI)
	}
	if got := w.writes(leader.user); len(got) < 80 {
		t.Errorf("the leader wrote %d times: too few to show anything", len(got))
	}
	for series, want := range map[string]float64{
		`workqueue_adds_total{name="webapp"}`:                               0,
		`steadwatch_queue_waiting{controller="webapp"}`:                     0,
		`steadwatch_informer_objects{resource="webapps.platform.tejo.dev"}`: 20,
		`steadwatch_informer_objects{resource="deployments.apps"}`:          20,
		`steadwatch_reconcile_total{class="Done",controller="webapp"}`:      0,
		`leader_election_master_status{name="steadwatch"}`:                  0,
	} {
		if want > 0 { // its copies follow by watches of its own
			w.eventually(patience, series, func() (bool, string) {
				got, ok := standby.metric(series)
				return got == want, fmt.Sprint(got, ok)
			})
		} else if got, _ := standby.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	// It asks for the Lease all the time.
	if got := w.audit(controlplane.StageRequestReceived, []string{standby.user}, func(e controlplane.AuditEvent) bool { return e.Resource == "leases" }); len(got) == 0 || slices.ContainsFunc(got, onLease) {
		t.Errorf("the standby sent %d requests for the Lease, writes among them: %t", len(got), slices.ContainsFunc(got, onLease))
	}

	leader.signal(syscall.SIGKILL)
	standby.awaitLead()
	w.create(w.namespace, "later")
	w.converges(patience, w.namespace, "later")
	standby.alive()
	cancel()
	probing.Wait()
	t.Logf("%d probes, %d failed", probes.Load(), failed.Load())
	w.fenced()
}
