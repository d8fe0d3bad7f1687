package main_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// background is for what happens at the end of a test, when its context is over.
var background = context.Background()

// atEnd calls f at the end of the test.
func (w *world) atEnd(f func() error) {
	w.Cleanup(func() {
		if err := f(); err != nil {
			w.Logf("clean up: %v", err)
		}
	})
}

// theLease selects the one that is about leading.
const theLease = "metadata.name=steadwatch"

// leaseRecord is one version of the Lease.
type leaseRecord struct {
	holder   string
	renewed  time.Time
	duration time.Duration
	version  string    // resourceVersion
	seen     time.Time // when the test heard of it
}

func (r leaseRecord) expires() time.Time { return r.renewed.Add(r.duration) }

// leaseHistory is every version that the Lease of a world has had.
type leaseHistory struct {
	mu      sync.Mutex
	records []leaseRecord
}

// watchLease notes every version until the test ends. An API server that was
// restarted cannot go on from an older resourceVersion: then the Lease is read, and
// watched from there.
func watchLease(w *world) *leaseHistory {
	w.Helper()
	h := &leaseHistory{}
	ctx, cancel := context.WithCancel(background)
	listed := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		leases := w.kube.CoordinationV1().Leases(w.system)
		first := sync.OnceFunc(func() { close(listed) })
		for ctx.Err() == nil {
			// There is another Lease, the canary's.
			list, err := leases.List(ctx, metav1.ListOptions{FieldSelector: theLease})
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
				continue
			}
			for i := range list.Items {
				h.add(&list.Items[i])
			}
			first()
			h.follow(ctx, leases, list.ResourceVersion)
		}
	})
	w.Cleanup(func() {
		cancel()
		done.Wait()
		if w.Failed() {
			w.Logf("the Lease's holders:\n%s", h)
		}
	})
	select {
	case <-listed:
	case <-time.After(patience):
		w.Fatalf("no Leases can be listed within %s", patience)
	}
	return h
}

// follow watches on, across watches that end, until one is refused.
func (h *leaseHistory) follow(ctx context.Context, leases typedcoordinationv1.LeaseInterface, from string) {
	for {
		watching, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: from, FieldSelector: theLease})
		if err != nil {
			return
		}
		for e := range watching.ResultChan() {
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				watching.Stop()
				return
			}
			from = lease.ResourceVersion
			if e.Type == watch.Added || e.Type == watch.Modified {
				h.add(lease)
			}
		}
		watching.Stop()
	}
}

func (h *leaseHistory) add(lease *coordinationv1.Lease) {
	r := leaseRecord{version: lease.ResourceVersion, seen: time.Now()}
	if s := lease.Spec; s.HolderIdentity != nil {
		r.holder = *s.HolderIdentity
	}
	if s := lease.Spec; s.RenewTime != nil && s.LeaseDurationSeconds != nil {
		r.renewed, r.duration = s.RenewTime.Time, time.Duration(*s.LeaseDurationSeconds)*time.Second
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.records); n > 0 && h.records[n-1].version == r.version {
		return // read again
	}
	h.records = append(h.records, r)
}

func (h *leaseHistory) all() []leaseRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.records)
}

// upToDate returns all versions, once the present one is among them.
func (h *leaseHistory) upToDate(w *world) []leaseRecord {
	w.Helper()
	now, err := w.kube.CoordinationV1().Leases(w.system).Get(w.Context(), "steadwatch", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.eventually(patience, "the watch of the Lease", func() (bool, string) {
		return slices.ContainsFunc(h.all(), func(r leaseRecord) bool { return r.version == now.ResourceVersion }), h.String()
	})
	return h.all()
}

func (h *leaseHistory) last() leaseRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.records) == 0 {
		return leaseRecord{}
	}
	return h.records[len(h.records)-1]
}

// String lists the first and last renewal of each term.
func (h *leaseHistory) String() string {
	var b strings.Builder
	var previous leaseRecord
	for _, r := range append(h.all(), leaseRecord{holder: "(now)"}) {
		if r.holder != previous.holder && !previous.renewed.IsZero() {
			fmt.Fprintf(&b, " to %s\n", previous.renewed.Format(stamp))
		}
		if r.holder != previous.holder {
			fmt.Fprintf(&b, "%q from %s", r.holder, r.renewed.Format(stamp))
		}
		previous = r
	}
	return b.String()
}

const stamp = "15:04:05.000000"

// awaitHolder waits for a Lease whose holder is wanted, and returns that version.
func (w *world) awaitHolder(within time.Duration, what string, wanted func(holder string) bool) leaseRecord {
	w.Helper()
	w.eventually(within, "the Lease to be held by "+what, func() (bool, string) {
		return wanted(w.lease.last().holder), w.lease.String()
	})
	return w.lease.last()
}

func (w *world) awaitOther(within time.Duration, than leaseRecord) leaseRecord {
	w.Helper()
	return w.awaitHolder(within, "another", func(h string) bool { return h != than.holder && h != "" })
}

// audit returns the requests of the given users, at one stage, in the order of
// their arrival.
func (w *world) audit(stage string, users []string, filter func(controlplane.AuditEvent) bool) []controlplane.AuditEvent {
	w.Helper()
	events, err := w.plane.Audit(w.Context(), func(e controlplane.AuditEvent) bool {
		return e.Stage == stage && slices.Contains(users, e.User) && (filter == nil || filter(e))
	})
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(events, func(a, b controlplane.AuditEvent) int { return a.RequestReceived.Compare(b.RequestReceived) })
	return events
}

func mutates(e controlplane.AuditEvent) bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return e.Resource != "leases" && e.Resource != "subjectaccessreviews"
	}
	return false
}

func onLease(e controlplane.AuditEvent) bool {
	return e.Resource == "leases" && e.Name != "steadwatch-canary" && (e.Verb == "create" || e.Verb == "update")
}

// writes are the mutating requests, those on the Lease apart, that have been
// received from a replica.
func (w *world) writes(users ...string) []controlplane.AuditEvent {
	w.Helper()
	return w.audit(controlplane.StageRequestReceived, users, mutates)
}

// holders maps the Lease's holders to the users behind them: the one whose accepted
// write of the Lease is the first after the time of renewal that it holds.
func (w *world) holders() map[string]string {
	w.Helper()
	accepted := w.audit(controlplane.StageResponseComplete, w.users, func(e controlplane.AuditEvent) bool {
		return onLease(e) && e.Namespace == w.system && e.Code < 300
	})
	votes := map[string]map[string]int{}
	for _, r := range w.lease.all() {
		if r.holder == "" {
			continue
		}
		for _, e := range accepted {
			if !e.RequestReceived.Before(r.renewed) {
				if votes[r.holder] == nil {
					votes[r.holder] = map[string]int{}
				}
				votes[r.holder][e.User]++
				break
			}
		}
	}
	users := map[string]string{}
	for holder, of := range votes {
		for user, n := range of {
			if n > of[users[holder]] {
				users[holder] = user
			}
		}
	}
	return users
}

// fenced fails the test if the API server has received a mutating request from a
// replica that did not hold the Lease at that moment, by what the Lease itself says,
// and returns how many it has looked at.
func (w *world) fenced() int {
	w.Helper()
	requests := w.writes(w.users...)
	records := w.lease.upToDate(w)
	users := w.holders()
	for _, e := range requests {
		var at leaseRecord // the newest version that was written before
		for _, r := range records {
			if r.renewed.Before(e.RequestReceived) {
				at = r
			}
		}
		switch {
		case users[at.holder] != e.User:
			w.Errorf("%s %s by %s was received at %s, when %s held the Lease (renewed %s)",
				e.Verb, e.RequestURI, e.User, e.RequestReceived.Format(stamp), users[at.holder], at.renewed.Format(stamp))
		case e.RequestReceived.After(at.expires()):
			w.Errorf("%s %s by %s was received at %s, %s after its lease had expired",
				e.Verb, e.RequestURI, e.User, e.RequestReceived.Format(stamp), e.RequestReceived.Sub(at.expires()))
		}
	}
	return len(requests)
}
