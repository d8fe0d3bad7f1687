package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

func canaryScenarios() []*scenario {
	return []*scenario{
		{
			name: "all-watches-dead", fault: "all watches dead, new ones too; LIST and writes fine; one more process started in the middle",
			run: allDead,
			check: holds(func(c *checks, s settings) {
				c.nothingLost()
				c.streamsAgain(s.back())
				c.settledWithin(s.polledAge(), s)
				c.that(c.r.said(canarySight, "deaf") > 0, "the canary never said deaf")
				c.that(len(c.r.restarts) == 2, "%d restarts, want the two that the budget allows: %s", len(c.r.restarts), whys(c.r.restarts))
				c.that(c.r.said(canarySight, "unrecoverable") > 0, "the canary never said unrecoverable")
				c.that(c.r.late > 0 && c.r.late <= s.polled()+c.allowed(), "the process started in the middle converged after %s, want %s", round(c.r.late), c.with(s.polled()))
			}),
		},
		{
			name: "lease-forbidden", fault: "no right to the canary's Lease; later granted",
			rights: withoutCanary, run: leaseForbidden,
			check: holds(func(c *checks, s settings) {
				c.notRestarted()
				c.nothingLost()
				c.that(c.r.said(canarySight, "forbidden") > 0, "the canary never said forbidden")
				c.that(c.r.granted > 0 && c.r.granted <= 2*s.canaryInterval+s.of(5*time.Second, 3*time.Second)+c.r.slackAfter, "heard %s after the right was granted, want within two intervals", round(c.r.granted))
			}),
		},
		{
			name: "lives", fault: "none: start, leader change, shutdown, again and again",
			run: lives,
			check: holds(func(c *checks, s settings) {
				c.noAlarm(s)
				c.nothingLost()
			}),
		},
	}
}

// allDead lets the restart budget run out, then mends all.
func allDead(ctx context.Context, t *trial) error {
	if err := t.prepare(ctx, options{}); err != nil {
		return err
	}
	t.begin()
	fault := t.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: watchVerb}, Freeze: faultproxy.FreezeStream, Permanent: true})
	if err := t.during(ctx, t.lab.of(2*time.Minute, 10*time.Second)); err != nil {
		return err
	}
	late, err := t.lab.install(ctx, t.plane, t.proxy, nil)
	if err != nil {
		return err
	}
	defer late.end()
	w := &writer{i: late, book: &book{}}
	if err := w.begin(ctx); err != nil {
		return err
	}
	late.background(func(ctx context.Context) { late.witness(ctx, w.book) })
	began := time.Now()
	if _, err := late.replica(ctx, nil); err != nil {
		return err
	}
	if err := t.await(ctx, t.lab.of(10*time.Minute, time.Minute), "the process started in the middle", func() bool { return w.book.unseen(product) == 0 }); err == nil {
		t.result.late = time.Since(began)
	} else if ctx.Err() != nil {
		return err
	}
	// Two processes' time to be deaf and to be ended, and a third's to be past hope.
	perLife := t.lab.canaryFailAfter + 2*t.lab.canaryInterval + t.lab.liveness.delay + 4*t.lab.liveness.period
	total := 3*perLife + t.lab.of(time.Minute, 10*time.Second)
	if err := t.during(ctx, time.Until(t.result.began.Add(total))); err != nil {
		return err
	}
	// A busy machine takes longer to come to it.
	_ = t.await(ctx, t.lab.patience, "the budget to run out", func() bool {
		return slices.ContainsFunc(t.observer.between(t.result.began, time.Now()), func(s sight) bool { return s.what == "unrecoverable" })
	})
	fault.Remove()
	t.lift()
	return t.finish(ctx)
}

// withoutCanary leaves the rights to the leader's Lease alone. To create cannot be
// bound to a name, so the canary's exists and may not be read.
func withoutCanary(role *rbacv1.Role) {
	for k := range role.Rules {
		rule := &role.Rules[k]
		rule.ResourceNames = slices.DeleteFunc(rule.ResourceNames, func(name string) bool { return name != "steadwatch" })
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return len(r.ResourceNames) == 0 && !slices.Contains(r.Verbs, "create")
	})
}

func leaseForbidden(ctx context.Context, t *trial) error {
	if err := t.prepare(ctx, options{under: func() {}}); err != nil {
		return err
	}
	if err := t.during(ctx, t.lab.of(6*time.Minute, 20*time.Second)); err != nil {
		return err
	}
	granted := time.Now()
	if err := t.plane.allowLeases(ctx, t.leases, nil); err != nil {
		return err
	}
	t.lift()
	_ = t.await(ctx, t.lab.of(5*time.Minute, time.Minute), "the canary", func() bool {
		for _, s := range t.observer.between(granted, time.Now()) {
			if s.kind == canarySight && s.what == "hearing" {
				t.result.granted = s.at.Sub(granted)
				return true
			}
		}
		return false
	})
	return t.finish(ctx)
}

// lives hands the lead from one process to the next, each of which ends in order.
func lives(ctx context.Context, t *trial) error {
	if err := t.prepare(ctx, options{noPlain: true}); err != nil {
		return err
	}
	t.begin()
	n := 100
	if t.lab.short {
		n = 5
	}
	leader := t.replicas[0]
	for k := range n {
		next := &replica{i: t.installation, name: fmt.Sprintf("%s-life-%d", t.work, k), args: leader.args}
		next.start(t.observer, 100*time.Millisecond)
		if err := t.await(ctx, t.lab.patience, "the next process to be ready", func() bool { return next.ready(ctx) }); err != nil {
			return err
		}
		leader.stop()
		leader = next
		if err := t.await(ctx, t.lab.patience, "the next process to lead", func() bool { return next.leads(ctx) }); err != nil {
			return fmt.Errorf("%w; log of life %d:\n%s", err, k, next.log())
		}
		if restarts, failed := next.count(); len(restarts) > 0 || failed > 0 {
			t.result.problems = append(t.result.problems, fmt.Sprintf("life %d: %d restarts, %d failures of /healthz", k, len(restarts), failed))
		}
	}
	t.lift()
	t.result.note("%d lives", n)
	return t.finish(ctx)
}

func (r *replica) ready(ctx context.Context) bool {
	code, _ := fetch(ctx, 2*time.Second, r.where().Health, "/readyz")
	return code == http.StatusOK
}

func (r *replica) leads(ctx context.Context) bool {
	_, body := fetch(ctx, 2*time.Second, r.where().Metrics, "/metrics")
	return leading.MatchString(body)
}
