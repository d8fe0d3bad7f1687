package main_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// One controller stands still, with every worker in a pass that does not end: the other
// one's objects are worked on as fast as before. Long form: 300 objects each, and at
// most 1.5 times the 99th percentile of the same run's baseline.
func TestSystemControllersDoNotWaitForEachOther(t *testing.T) {
	if !long {
		t.Parallel()
	}
	w := newSilentRouteWorld(t, "a")
	proxy := w.proxy()
	r := w.start("a", replicaOptions{proxy: proxy})
	r.awaitLead()
	w.createService(w.namespace, "web", 80)
	w.createGateway(w.namespace)
	n, slack := 30, 10*time.Second // on machines that run other tests meanwhile; without isolation it would be for ever
	if long {
		n, slack = 300, 0
	}
	made := 0
	webApp := func() (string, func() (bool, string)) {
		made++
		name := fmt.Sprintf("app-%d", made)
		w.create(w.namespace, name)
		return name, func() (bool, string) { return w.converged(w.namespace, name) }
	}
	route := func() (string, func() (bool, string)) {
		made++
		name := fmt.Sprintf("route-%d", made)
		w.plainRoute(w.namespace, name, w.namespace, name+".example.com")
		return name, func() (bool, string) {
			if _, err := w.gateways.GatewayV1().HTTPRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{}); err != nil {
				return false, err.Error()
			}
			o, err := w.platform.NetworkingV1alpha1().ApplicationRoutes(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return o.Status.ObservedGeneration == o.Generation, describe(o.Status.Conditions)
		}
	}
	p99 := func(object func() (string, func() (bool, string))) time.Duration {
		t.Helper()
		var all []time.Duration
		for range n {
			began := time.Now()
			name, done := object()
			w.eventually(patience, name+" to be worked on", done)
			all = append(all, time.Since(began))
		}
		slices.Sort(all)
		return all[len(all)*99/100]
	}
	for _, c := range []struct {
		wedged, other string
		resource      string
		wedge, object func() (string, func() (bool, string))
	}{
		{"applicationroute", "webapp", "httproutes", route, webApp},
		{"webapp", "applicationroute", "deployments", webApp, route},
	} {
		p99(c.object) // warm
		baseline := p99(c.object)
		var stuck atomic.Int64
		release := make(chan struct{})
		released := sync.OnceFunc(func() { close(release) })
		defer released()
		held := proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Verbs: []string{"patch"}, Resource: c.resource, Namespace: w.namespace},
			Hold: func(ctx context.Context, _ faultproxy.Request) {
				stuck.Add(1)
				select {
				case <-ctx.Done():
				case <-release:
				}
			},
		})
		var waiting []func() (bool, string)
		for range 8 { // twice the workers
			_, done := c.wedge()
			waiting = append(waiting, done)
		}
		w.eventually(patience, "every worker of "+c.wedged+" to be stuck", func() (bool, string) { return stuck.Load() >= 4, fmt.Sprint(stuck.Load()) })
		meanwhile := p99(c.object)
		if n := stuck.Load(); n != 4 {
			t.Errorf("%d passes of %s are stuck, want the 4 workers", n, c.wedged)
		}
		t.Logf("%s with %s stuck: 99th percentile of %d %s, before %s", c.other, c.wedged, n, meanwhile.Round(time.Millisecond), baseline.Round(time.Millisecond))
		if most := baseline*3/2 + slack; meanwhile > most {
			t.Errorf("%s with %s stuck: 99th percentile %s, before %s: want at most %s", c.other, c.wedged, meanwhile, baseline, most)
		}
		released()
		held.Remove()
		for _, done := range waiting {
			w.eventually(patience, "what was stuck to be worked on", done)
		}
	}
	r.alive()
	r.healthy("/healthz")
	w.fenced()
}
