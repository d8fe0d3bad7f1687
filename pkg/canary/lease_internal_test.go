package canary

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// R85: Retry-After is a lower bound, for writes and for the Reflector.
func TestR85RetryAfter(t *testing.T) {
	for name, verbs := range map[string][]string{"Writes": {"get"}, "Updates": {"update"}, "Lists": {"list"}, "Watches": {"watch"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				p := s.process(t, "a")
				p.lead()
				sleep(time.Second)
				s.set(func(s *fakeServer) {
					for _, verb := range verbs {
						s.fail[verb] = apierrors.NewTooManyRequests("busy", 45)
					}
					if verbs[0] == "list" { // which needs a watch that ends without an event
						s.fail["watch"] = apierrors.NewResourceExpired("too old")
					}
					clear(s.calls)
				})
				s.cut()
				sleep(30 * time.Minute)
				if n := s.calls[verbs[0]]; n < 20 || n > 41 {
					t.Errorf("%d times in 30 min, want at most every 45 s, and not given up", n)
				}
				s.set(func(s *fakeServer) { clear(s.fail) })
				sleep(2 * time.Minute)
				p.is(true, Hearing)
				p.leave()
			})
		})
	}
}

// A Lease from an earlier installation is adopted, with what others keep in it.
func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		s.put(watch.Added, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: DefaultName, Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "keep"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("long gone"), LeaseTransitions: ptr.To[int32](7)},
		})
		p := s.process(t, "a")
		p.lead()
		sleep(3 * time.Minute)
		p.is(true, Hearing)
		got := s.stored()
		if got.Labels["team"] != "a" || got.Annotations["note"] != "keep" || *got.Spec.LeaseTransitions != 7 || holder(got) != "a" {
			t.Errorf("adopted as %+v", got)
		}
		if p.Snapshot().Rival != "" {
			t.Errorf("the earlier installation is no rival: %+v", p.Snapshot())
		}

		// Deleted under our feet.
		s.mu.Lock()
		s.put(watch.Deleted, s.lease)
		s.mu.Unlock()
		sleep(time.Minute)
		p.is(true, Hearing)
		if holder(s.stored()) != "a" || p.Snapshot().Rewinds != 0 {
			t.Errorf("not made again: %+v", s.stored())
		}
		// And in the moment between reading and writing.
		s.set(func(s *fakeServer) {
			s.before = func(verb string) {
				if verb == "update" {
					s.mu.Lock()
					s.before = nil
					s.put(watch.Deleted, s.lease)
					s.mu.Unlock()
				}
			}
		})
		sleep(time.Minute)
		p.is(true, Hearing)
		if holder(s.stored()) != "a" || p.lates() != 0 {
			t.Errorf("not made again: %+v", s.stored())
		}
		p.leave()
	})
}

// One write of another process may have been under way when the lead changed.
func TestNoRival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		p := s.process(t, "a")
		p.lead()
		sleep(time.Second)
		foreign := s.stored()
		foreign.Spec.HolderIdentity = ptr.To("b")
		if _, err := s.Update(t.Context(), foreign, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			sleep(30 * time.Second)
			if got := p.Snapshot().Rival; got != "" {
				t.Fatalf("%s is called a rival", got)
			}
		}
		p.is(true, Hearing)
		p.leave()
	})
}

// Two leaders by mistake: named by both, deaf neither.
func TestRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		a, b := s.process(t, "a"), s.process(t, "b")
		a.lead()
		sleep(30 * time.Second)
		b.lead()
		for range 30 {
			sleep(time.Minute)
			a.is(true, Hearing)
			b.is(true, Hearing)
		}
		if got := a.Snapshot().Rival + b.Snapshot().Rival; got != "ba" {
			t.Errorf("rivals named: %q", got)
		}
		b.leave()
		sleep(3 * time.Minute)
		if got := a.Snapshot(); got.Rival != "" || a.lates()+b.lates() != 0 {
			t.Errorf("after it is over: %+v", got)
		}
		a.leave()
	})
}

// etcd is set back below an API server.
func TestR34Rewound(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		to        int64
		restarted bool // the API servers
		state     State
	}{
		"Restarted":      {"heard at once: the new Reflector does not wait for the old revision", 0, true, Hearing},
		"NotRestarted":   {"no event comes, and no restart of ours can help", 0, false, Unrecoverable},
		"BeforeTheLease": {"the Lease is gone: the one made anew has a lower revision", 1, true, Hearing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				p := s.process(t, "a")
				p.lead()
				sleep(time.Second)
				early := s.stored()
				sleep(20 * time.Minute) // longer than it takes to count as well
				s.set(func(s *fakeServer) {
					s.revision = number(early)
					s.lease = early
					if tc.to != 0 {
						s.revision, s.lease = tc.to, nil
					}
					s.history, s.happened = nil, nil
					if !tc.restarted {
						s.frozen = true
					}
				})
				if tc.restarted {
					// A watch from the future is accepted and silent; see fakeWatch.
					s.cut()
				}
				sleep(61 * time.Second)
				got := p.Snapshot()
				if !got.Rewound || got.Rewinds != 1 || p.rewind != 1 {
					t.Fatalf("%s: not found: %+v", tc.reason, got)
				}
				for range 15 {
					sleep(30 * time.Second)
					p.is(true, Pending, Hearing, Late, Unrecoverable)
				}
				p.is(true, tc.state)
				if got := readAsks(s.stored()); got != 0 {
					t.Errorf("%d asks spent", got)
				}
				if !p.Snapshot().Rewound {
					t.Errorf("no longer flagged after 9 min")
				}
				if tc.restarted {
					sleep(5 * time.Minute)
					if p.Snapshot().Rewound {
						t.Errorf("still flagged after 10 min of hearing")
					}
				}
				p.leave()
			})
		})
	}
}

// What a restart cannot help never fails liveness, and is named.
func TestRefusals(t *testing.T) {
	forbid := func(verb string) error {
		return apierrors.NewForbidden(leaseResource, DefaultName, errors.New(`User "system:serviceaccount:system:steadwatch" cannot `+verb+` resource "leases" in API group "coordination.k8s.io" in the namespace "system"`))
	}
	named := "--serviceaccount=system:steadwatch"
	tests := map[string]struct {
		reason string
		verbs  []string
		err    error
		state  State
		words  []string // in message and remedy
	}{
		"Get":    {"cannot be read", []string{"get"}, forbid("get"), Forbidden, []string{"may not get leases", "--verb=get,update,list,watch", "--resource-name=steadwatch-canary", named}},
		"Update": {"cannot be written", []string{"update"}, forbid("update"), Forbidden, []string{"may not update leases", named}},
		"Create": {"cannot be made: a rule of its own", []string{"create"}, forbid("create"), Forbidden, []string{"may not create leases", "--verb=create", named}},
		"List":   {"the Reflector cannot begin", []string{"list"}, forbid("list"), Forbidden, []string{"may not list leases", named}},
		"Watch":  {"the Reflector cannot go on", []string{"watch"}, forbid("watch"), Forbidden, []string{"may not watch leases", named}},
		"Quota": {"403, but no missing permission", []string{"create"},
			apierrors.NewForbidden(leaseResource, DefaultName, errors.New("exceeded quota: leases")), Unwritable, []string{"exceeded quota"}},
		"NoSpace":        {"etcd is full", []string{"update"}, apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded")), Unwritable, []string{"space exceeded"}},
		"TooMany":        {"an API server under load", []string{"get", "update", "list", "watch"}, apierrors.NewTooManyRequests("slow down", 1), Unwritable, []string{"slow down", "FlowSchemas"}},
		"TooManyWatches": {"reads and writes pass, watches are answered: not silence", []string{"list", "watch"}, apierrors.NewTooManyRequests("slow down", 1), Late, []string{"slow down"}},
		"Unavailable":    {"no API server behind the balancer", []string{"get", "update", "list", "watch"}, apierrors.NewServiceUnavailable("down"), Unwritable, []string{"down"}},
		"Unreachable":    {"nobody answers", []string{"get", "create", "update", "list", "watch"}, errors.New("dial tcp: i/o timeout"), Unwritable, []string{"i/o timeout", "can be reached"}},
		"NoNamespace":    {"installed half", []string{"create"}, apierrors.NewNotFound(leaseResource, "system"), Unwritable, []string{"create namespace system"}},
		"BadCredentials": {"the token is no longer accepted", []string{"get", "list", "watch"}, apierrors.NewUnauthorized("no"), Unwritable, []string{"credentials"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				if len(tc.verbs) != 1 || tc.verbs[0] != "create" {
					s.put(watch.Added, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: DefaultName}})
				}
				for _, verb := range tc.verbs {
					s.fail[verb] = tc.err
				}
				p := s.process(t, "a")
				p.lead()
				for range 120 {
					sleep(15 * time.Second)
					p.is(true, tc.state, Pending, Late)
				}
				p.is(true, tc.state)
				got := p.Snapshot()
				for _, word := range tc.words {
					if text := got.Message + "\n" + got.Remedy; !strings.Contains(text, word) {
						t.Errorf("%s: %q is not in\n%s", tc.reason, word, text)
					}
				}
				s.set(func(s *fakeServer) { clear(s.fail) })
				sleep(2 * time.Minute)
				p.is(true, Hearing)
				if n := s.calls["get"]; n > 200 {
					t.Errorf("%d GETs in 32 min", n)
				}
				p.leave()
			})
		})
	}
}
