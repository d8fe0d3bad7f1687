package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

func serverScenarios() []*scenario {
	return []*scenario{
		{
			name: "latency", fault: "12 s of latency on every request",
			run: under(faultproxy.Rule{Delay: 12 * time.Second}, 10*time.Minute, 40*time.Second, options{}),
			check: holds(func(c *checks, s settings) {
				quietly(c, s)
			}),
		},
		{
			name: "latency-but-leading", fault: "12 s of latency on every request but those for the leader's Lease",
			run: under(faultproxy.Rule{Delay: 12 * time.Second, Match: faultproxy.Match{Func: func(r faultproxy.Request) bool {
				return r.Resource != "leases" || r.Name != "steadwatch"
			}}}, 10*time.Minute, 60*time.Second, options{}),
			check: holds(func(c *checks, s settings) {
				quietly(c, s)
				c.that(c.r.requests.relists() <= 4, "%d relists, want none but what each kind may try once", c.r.requests.relists())
			}),
		},
		{
			name: "throttled", fault: "429 with Retry-After: 7 on LIST, WATCH and PATCH",
			run: under(faultproxy.Rule{
				Match:  faultproxy.Match{Verbs: []string{"list", "watch", "patch"}},
				Answer: &faultproxy.Answer{Code: 429, RetryAfter: 7 * time.Second},
			}, 2*time.Minute, 30*time.Second, options{}),
			check: holds(quietly),
		},
		{
			name: "refused", fault: "API server stopped (connections refused), 3 replicas",
			run: outage(func(p *faultproxy.Proxy) { p.Refuse() }), check: holds(quietly),
		},
		{
			name: "black-hole", fault: "API server in a black hole (no byte comes), 3 replicas",
			run: outage(func(p *faultproxy.Proxy) { p.BlackHole() }), check: holds(quietly),
		},
		{name: "rolling-restart", fault: "two API servers restarted one after the other behind a load balancer", alone: true, run: rolling, check: holds(func(c *checks, s settings) {
			quietly(c, s)
			c.that(c.r.requests.relists() <= 2*4, "%d relists, want at most one for each kind and API server", c.r.requests.relists())
		})},
		{name: "etcd-restored", fault: "etcd set back to an older state, API server restarted", alone: true, run: restored(true), check: holds(func(c *checks, s settings) {
			c.notRestarted()
			c.nothingLost()
			c.that(!c.r.stale, "the local copy holds what is not there, or lacks what is")
		})},
		{name: "etcd-restored-running", fault: "etcd set back to an older state, API server not restarted", alone: true, run: restored(false), check: holds(func(c *checks, s settings) {
			c.notRestarted()
			c.that(c.r.said(rewindSight, "rewound") > 0, "nothing says that etcd was set back")
		})},
	}
}

func outage(down func(*faultproxy.Proxy)) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.prepare(ctx, options{replicas: 3}); err != nil {
			return err
		}
		t.begin()
		down(t.proxy)
		if err := t.during(ctx, t.lab.of(5*time.Minute, 30*time.Second)); err != nil {
			return err
		}
		if err := t.proxy.Up(); err != nil {
			return err
		}
		t.lift()
		return t.finish(ctx)
	}
}

// rolling restarts the API servers. Who writes and who looks is behind a load balancer
// as well.
func rolling(ctx context.Context, t *trial) error {
	first := t.plane.APIServer()
	second, err := t.plane.AddAPIServer(ctx)
	if err != nil {
		return err
	}
	balancer, err := faultproxy.Start(faultproxy.Config{Upstream: first.Config()})
	if err != nil {
		return err
	}
	defer balancer.Close()
	defer t.end() // first, so that nobody is left behind it
	t.plane.connect(balancer.ClientConfig(first.Config()))
	t.writer.steadyOnly = true
	t.witnessed = func(ctx context.Context) { t.askWitness(ctx, t.book) }
	if err := t.prepare(ctx, options{noPlain: true}); err != nil {
		return err
	}
	t.begin()
	for _, next := range []struct{ down, up *controlplane.APIServer }{{second, first}, {first, second}} {
		for _, p := range []*faultproxy.Proxy{t.proxy, balancer} {
			if err := p.SetUpstream(next.up.Config().Host); err != nil {
				return err
			}
		}
		next.down.Stop()
		if err := t.during(ctx, t.lab.of(30*time.Second, 3*time.Second)); err != nil {
			return err
		}
		if err := next.down.Start(ctx); err != nil {
			return err
		}
		if err := t.during(ctx, t.lab.of(time.Minute, 10*time.Second)); err != nil {
			return err
		}
	}
	t.lift()
	return t.finish(ctx)
}

// restored sets etcd back by all that was written in a span of time.
func restored(restart bool) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		t.writer.steadyOnly = true
		t.witnessed = func(ctx context.Context) { t.askWitness(ctx, t.book) }
		if err := t.prepare(ctx, options{}); err != nil {
			return err
		}
		snapshot, err := t.plane.Snapshot(ctx)
		if err != nil {
			return err
		}
		// What is lost: changes, an object made and one removed since.
		if err := t.writer.create(ctx, "made-since"); err != nil {
			return err
		}
		if err := t.during(ctx, t.lab.of(3*time.Minute, 15*time.Second)); err != nil {
			return err
		}
		t.writer.pause(true)
		// So far behind that what is written from now on does not catch up.
		if err := t.age(ctx, 3000); err != nil {
			return err
		}
		before, err := t.plane.EtcdRevision(ctx)
		if err != nil {
			return err
		}
		t.begin()
		t.book.forget()
		if restart {
			// Without a proxy that answers in its place an API server that is down
			// breaks connections, and watches go on from where they were.
			t.proxy.Refuse()
		}
		if err := t.plane.Restore(ctx, snapshot, controlplane.RestoreOptions{RestartAPIServers: restart}); err != nil {
			return fmt.Errorf("set etcd back: %w", err)
		}
		if err := t.proxy.Up(); err != nil {
			return err
		}
		after, err := t.plane.EtcdRevision(ctx)
		if err != nil {
			return err
		}
		t.result.note("from revision %d to %d", before, after)
		t.writer.pause(false)
		if err := t.during(ctx, t.lab.of(5*time.Minute, 60*time.Second)); err != nil {
			return err
		}
		t.lift()
		if err := t.finish(ctx); err != nil {
			return err
		}
		return t.compareObjects(ctx)
	}
}

// age makes etcd's revision n higher, and lets every local copy see it: by annotations
// that mean nothing to the product.
func (t *trial) age(ctx context.Context, n int) error {
	if err := t.configMaps(ctx, 1); err != nil {
		return err
	}
	o := metav1.PatchOptions{}
	patches := []func(patch []byte) error{
		func(p []byte) error {
			_, err := t.plane.platform.PlatformV1alpha1().WebApps(t.work).Patch(ctx, steady(0), types.MergePatchType, p, o)
			return err
		},
		func(p []byte) error {
			_, err := t.plane.kube.AppsV1().Deployments(t.work).Patch(ctx, steady(0), types.MergePatchType, p, o)
			return err
		},
		func(p []byte) error {
			_, err := t.plane.kube.CoreV1().Services(t.work).Patch(ctx, steady(0), types.MergePatchType, p, o)
			return err
		},
		func(p []byte) error {
			_, err := t.plane.kube.CoreV1().ConfigMaps(t.work).Patch(ctx, configMap(0), types.MergePatchType, p, o)
			return err
		},
	}
	var group errgroup.Group
	for _, patch := range patches {
		group.Go(func() error {
			for k := range n / len(patches) {
				if err := patch(fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/age":"%d"}}}`, k)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// compareObjects holds the local copy against what etcd has.
func (t *trial) compareObjects(ctx context.Context) error {
	keys, err := t.plane.EtcdKeys(ctx, controlplane.EtcdKey(v1alpha1.SchemeGroupVersion.WithResource("webapps").GroupResource(), t.work, "")+"/")
	if err != nil {
		return err
	}
	for _, v := range t.replicas[0].informers(ctx) {
		if v.Resource == "webapps.platform.tejo.dev" {
			t.result.note("%d WebApps in the local copy, %d in etcd", v.Objects, len(keys))
			t.result.stale = v.Objects != len(keys)
		}
	}
	return nil
}
