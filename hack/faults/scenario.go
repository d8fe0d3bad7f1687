package main

import (
	"context"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// scenario is one fault and what has to hold under it.
type scenario struct {
	name  string // for -only
	fault string // for the table
	// alone: on a control plane of its own, which it breaks.
	alone bool
	// proxy is how the proxy differs from a plain one.
	proxy faultproxy.Config
	// rights takes rights on Leases away from the product.
	rights func(*rbacv1.Role)

	run func(context.Context, *trial) error
	// check returns what does not hold.
	check func(*result, settings) []string
}

// catalogue is every scenario, those that take longest first.
func catalogue() []*scenario {
	return slices.Concat(canaryScenarios(), quietScenarios(), watchScenarios(), serverScenarios())
}

// under runs a rule for a while, on a product that works.
func under(rule faultproxy.Rule, full, short time.Duration, o options) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.prepare(ctx, o); err != nil {
			return err
		}
		t.begin()
		fault := t.proxy.Add(rule)
		if err := t.during(ctx, t.lab.of(full, short)); err != nil {
			return err
		}
		fault.Remove()
		t.lift()
		return t.finish(ctx)
	}
}

// startUnder runs a rule from before the product's start.
func startUnder(rule faultproxy.Rule, full, short time.Duration) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		var fault *faultproxy.Fault
		if err := t.prepare(ctx, options{under: func() { fault = t.proxy.Add(rule) }}); err != nil {
			return err
		}
		if err := t.during(ctx, t.lab.of(full, short)); err != nil {
			return err
		}
		fault.Remove()
		t.lift()
		return t.finish(ctx)
	}
}

// holds makes a check of functions on checks.
func holds(f func(*checks, settings)) func(*result, settings) []string {
	return func(r *result, s settings) []string {
		c := &checks{r: r}
		f(c, s)
		return c.problems
	}
}

var watchVerb = []string{"watch"}

// webApps are the resource on which changes are made.
func webApps(verbs ...string) faultproxy.Match {
	return faultproxy.Match{Verbs: verbs, Resource: "webapps"}
}
