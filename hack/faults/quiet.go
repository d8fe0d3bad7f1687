package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

func quietScenarios() []*scenario {
	return []*scenario{
		{
			name: "idle-cut", fault: "a load balancer cuts every stream that is idle for 50 s (-short: 20 s)",
			run: idleCuts,
			check: holds(func(c *checks, s settings) {
				c.notRestarted()
				c.nothingLost()
				c.actedWithin(10 * time.Second)
				c.noAlarm(s)
			}),
		},
		{
			name: "quiet", fault: "none: 20 min without a change",
			run: quiet(20*time.Minute, 40*time.Second, 100),
			check: holds(func(c *checks, s settings) {
				c.notRestarted()
				c.noAlarm(s)
				c.that(c.r.requests.relists() == 0, "%d relists", c.r.requests.relists())
			}),
		},
		{
			name: "quiet-50000", fault: "none: 20 min without a change, 50,000 ConfigMaps",
			run: func(ctx context.Context, t *trial) error {
				n := 50_000
				if t.lab.short {
					n = 2_000
				}
				return quiet(20*time.Minute, 40*time.Second, n)(ctx, t)
			},
			check: holds(func(c *checks, s settings) {
				c.notRestarted()
				c.noAlarm(s)
				c.that(c.r.requests.relists() == 0, "%d relists", c.r.requests.relists())
			}),
		},
		{
			name: "busy", fault: "none: 20 writes a second",
			run: busy,
			check: holds(func(c *checks, s settings) {
				quietly(c, s)
				c.noAlarm(s)
				c.that(c.r.requests.relists() == 0, "%d relists", c.r.requests.relists())
			}),
		},
	}
}

// idleCuts has changes so rare that most cuts come in between.
func idleCuts(ctx context.Context, t *trial) error {
	rule := faultproxy.Rule{
		Match: faultproxy.Match{Verbs: watchVerb}, Close: faultproxy.ResetStream,
		AfterIdle: t.lab.of(50*time.Second, 20*time.Second),
	}
	return under(rule, 30*time.Minute, 80*time.Second, options{every: t.lab.of(70*time.Second, 27*time.Second)})(ctx, t)
}

// quiet lets time pass with n ConfigMaps in the local copy. Nothing changes but the
// revision, by what others do.
func quiet(full, short time.Duration, n int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.configMaps(ctx, n); err != nil {
			return err
		}
		if err := t.prepare(ctx, options{every: -1, noPlain: true}); err != nil {
			return err
		}
		// Beyond the watches' opening and what the first passes write.
		if err := t.during(ctx, t.lab.of(time.Minute, 5*time.Second)); err != nil {
			return err
		}
		t.begin()
		before := t.proxy.Stats()
		if err := t.during(ctx, t.lab.of(full, short)); err != nil {
			return err
		}
		t.lift()
		t.cost(t.proxy.Stats(), before, n)
		t.sum()
		return nil
	}
}

// cost notes what an informer of n objects costs in quiet operation, scaled to an hour.
func (t *trial) cost(after, before faultproxy.Stats, n int) {
	span := t.result.lifted.Sub(t.result.began)
	hour := float64(time.Hour) / float64(span)
	c := count(t.proxy.Requests(faultproxy.Match{Resource: "configmaps"}), t.result.began, t.result.lifted)
	pages := 0
	for _, r := range t.proxy.Requests(faultproxy.Match{Resource: "configmaps", Verbs: []string{"list"}}) {
		if !r.Time.Before(t.result.began) && r.Time.Before(t.result.lifted) {
			pages++
		}
	}
	t.result.note("%d ConfigMaps, an hour (measured %s): %.0f questions, %.0f audits in %.0f pages, %.0f watches, %.1f KiB of answers; all four informers and the Leases %.0f KiB received and %.0f KiB sent on the wire",
		n, round(span), float64(c.questions)*hour, float64(c.audits)*hour, float64(pages)*hour, float64(c.watches)*hour, float64(c.bytes)*hour/1024,
		float64(after.Sent-before.Sent)*hour/1024, float64(after.Received-before.Received)*hour/1024)
}

func configMap(k int) string { return fmt.Sprintf("config-%d", k) }

func (t *trial) configMaps(ctx context.Context, n int) error {
	var group errgroup.Group
	group.SetLimit(4) // leaves others room to work
	for k := range n {
		group.Go(func() error {
			_, err := t.plane.kube.CoreV1().ConfigMaps(t.work).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: configMap(k)}, Data: map[string]string{"key": "value"},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// busy writes ConfigMaps that nobody refers to, so that the API server has the load
// of 20 writes and not that of what follows from each, and WebApps beside them.
func busy(ctx context.Context, t *trial) error {
	if err := t.configMaps(ctx, 20); err != nil {
		return err
	}
	if err := t.prepare(ctx, options{noPlain: true}); err != nil {
		return err
	}
	t.background(func(ctx context.Context) {
		tick := time.NewTicker(time.Second / 20)
		defer tick.Stop()
		for k := 0; ctx.Err() == nil; k++ {
			<-tick.C
			_, _ = t.plane.kube.CoreV1().ConfigMaps(t.work).Patch(ctx, configMap(k%20), types.MergePatchType,
				fmt.Appendf(nil, `{"data":{"key":"%d"}}`, k), metav1.PatchOptions{})
		}
	})
	t.begin()
	if err := t.during(ctx, t.lab.of(10*time.Minute, 40*time.Second)); err != nil {
		return err
	}
	t.lift()
	return t.finish(ctx)
}
