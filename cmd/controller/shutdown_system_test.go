package main_test

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// SIGTERM while a pass runs and keys are queued: the pass finishes, no other begins,
// and the Lease is released after the last write.
func TestSystemShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch")
	proxy := w.proxy()
	r := w.start("steadwatch", replicaOptions{proxy: proxy, args: []string{"--workers=1"}})
	r.awaitLead()
	held := w.hold(proxy, "held")
	w.create(w.namespace, "held")
	held.await()
	w.queueBehind(r, 10)

	terminated := time.Now()
	r.signal(syscall.SIGTERM)
	w.eventually(patience, "not to be ready", func() (bool, string) {
		code, body := get(r.health, "/readyz")
		return code == http.StatusServiceUnavailable, fmt.Sprint(code, body)
	})
	r.alive()
	held.release()
	if code := r.exits(patience); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}

	done := w.audit(controlplane.StageResponseComplete, w.users, func(e controlplane.AuditEvent) bool {
		return mutates(e) && e.StageTimestamp.After(terminated)
	})
	finished := map[string]bool{}
	var last time.Time
	for _, e := range done {
		last = maxTime(last, e.StageTimestamp)
		finished[e.Resource+"/"+e.Subresource] = true
		if e.Name != "held" && e.Resource != "events" {
			t.Errorf("%s %s after SIGTERM", e.Verb, e.RequestURI)
		}
		if e.Code >= 300 {
			t.Errorf("%s %s: %d", e.Verb, e.RequestURI, e.Code)
		}
	}
	for _, want := range []string{"deployments/", "services/", "webapps/status"} {
		if !finished[want] {
			t.Errorf("the running pass has not written %s after SIGTERM: it has not finished", want)
		}
	}
	w.released(last)
	w.fenced()
}

// A pass that has not finished after --shutdown-timeout is cancelled. It returns
// then, what it was writing is not carried out, and the Lease may be released.
func TestSystemShutdownTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch")
	proxy := w.proxy()
	r := w.start("steadwatch", replicaOptions{proxy: proxy, args: []string{"--workers=1", "--shutdown-timeout=1s"}})
	r.awaitLead()
	held := w.hold(proxy, "held")
	w.create(w.namespace, "held")
	held.await()
	w.queueBehind(r, 10)
	r.signal(syscall.SIGTERM)
	if code := r.exits(patience); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	// The proxy may learn of it after the end of the process: a release before that
	// would look like one that somebody waits for.
	w.eventually(patience, "the held request to be given up", func() (bool, string) {
		return held.gone.Load() > 0, fmt.Sprintf("%d given up, %d forwarded", held.gone.Load(), held.forwarded.Load())
	})
	held.release()
	if n := held.forwarded.Load(); n != 0 {
		t.Errorf("%d cancelled writes were still wanted by their sender", n)
	}
	if got := w.audit(controlplane.StageRequestReceived, w.users, func(e controlplane.AuditEvent) bool { return e.Resource == "deployments" && mutates(e) }); len(got) != 0 {
		t.Errorf("the API server received %d writes of Deployments, want none", len(got))
	}
	var last time.Time
	for _, e := range w.audit(controlplane.StageResponseComplete, w.users, mutates) {
		last = maxTime(last, e.StageTimestamp)
	}
	w.released(last)
	w.fenced()
}

// A pass that does not even return when it is cancelled may still write. The Lease
// is left to lapse, and the exit code says so.
func TestSystemShutdownWhilePassHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch")
	r := w.start("steadwatch", replicaOptions{binary: hangingBinary(t), args: []string{"--shutdown-timeout=1s"}})
	r.awaitLead()
	w.create(w.namespace, "stuck")
	w.passRuns(r)
	before := w.lease.last()
	r.signal(syscall.SIGTERM)
	if code := r.exits(patience); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	w.contains(r, "the lease is left to lapse")
	w.lease.upToDate(w)
	if got := w.lease.last(); got.holder != before.holder {
		t.Errorf("the Lease is held by %q, want it left with %q", got.holder, before.holder)
	}
}

// Who sends a second signal does not want to wait.
func TestSystemSecondSignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "steadwatch")
	proxy := w.proxy()
	r := w.start("steadwatch", replicaOptions{proxy: proxy})
	r.awaitLead()
	held := w.hold(proxy, "held")
	w.create(w.namespace, "held")
	held.await()
	before := w.lease.last()
	r.signal(syscall.SIGINT)
	w.eventually(patience, "not to be ready", func() (bool, string) {
		code, body := get(r.health, "/readyz")
		return code == http.StatusServiceUnavailable, fmt.Sprint(code, body)
	})
	r.alive()
	r.signal(syscall.SIGTERM)
	if code := r.exits(slack); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	w.lease.upToDate(w)
	if got := w.lease.last(); got.holder != before.holder {
		t.Errorf("the Lease is held by %q, want it left with %q", got.holder, before.holder)
	}
}

// queueBehind creates WebApps and waits until they are queued behind the pass that
// keeps the only worker.
func (w *world) queueBehind(r *replica, objects int) {
	w.Helper()
	for n := range objects {
		w.create(w.namespace, fmt.Sprintf("queued-%d", n))
	}
	w.eventually(patience, "the others to be queued", func() (bool, string) {
		depth, _ := r.metric(`workqueue_depth{name="webapp"}`)
		return int(depth) >= objects, fmt.Sprint(depth)
	})
}

func (w *world) passRuns(r *replica) {
	w.Helper()
	w.eventually(patience, "the pass to begin", func() (bool, string) {
		v, _ := r.metric(`workqueue_unfinished_work_seconds{name="webapp"}`)
		return v > 0, fmt.Sprint(v)
	})
}

// released fails the test unless the Lease was given back, after the last write.
func (w *world) released(lastWrite time.Time) {
	w.Helper()
	w.lease.upToDate(w)
	if last := w.lease.last(); last.holder != "" {
		w.Errorf("the Lease is held by %q, want it released", last.holder)
	}
	updates := w.audit(controlplane.StageRequestReceived, w.users, onLease)
	if len(updates) == 0 || lastWrite.IsZero() {
		w.Fatalf("%d writes of the Lease, last other write at %s: this shows nothing", len(updates), lastWrite)
	}
	if release := updates[len(updates)-1]; !release.RequestReceived.After(lastWrite) {
		w.Errorf("the Lease was released at %s, the last write ended at %s", release.RequestReceived.Format(stamp), lastWrite.Format(stamp))
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
