package system_test

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

const burst = 1000

// touchChild changes a foreign annotation of a Deployment burst times: as many
// events for one key.
func (w *world) touchChild(name string) {
	w.Helper()
	var running sync.WaitGroup
	const writers = 8
	for writer := range writers {
		running.Go(func() {
			for n := range burst / writers {
				if _, err := w.kube.AppsV1().Deployments(w.namespace).Patch(w.Context(), name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/beat-%d":"%d"}}}`, writer, n), metav1.PatchOptions{}); err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

// A thousand events for one key are few passes.
func TestEventBurst(t *testing.T) {
	watch := faultproxy.Match{Verbs: []string{"watch"}, Resource: "deployments"}
	received := func(p *process) float64 {
		return p.metric("steadwatch_watch_events_total", `resource="deployments`, `type="MODIFIED"`)
	}
	// DuringAPass: they come while a pass over that key is under way.
	t.Run("DuringAPass", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		proxy := w.proxy()
		p := w.start(proxy)
		w.create(newApp("web"))
		w.ready("web")
		p.settles()
		held := hold(proxy, 1, applyStatus)
		w.change("web", func(a *v1alpha1.WebApp) { a.Spec.Image = "registry.example/app:2" })
		w.reached(held.Fault, "a status")
		before, events := p.passes(), received(p)
		w.touchChild("web")
		w.eventually(patience, "the events to be received", func() (bool, string) {
			got := received(p) - events
			return got >= burst, fmt.Sprintf("%g", got)
		})
		close(held.open)
		w.ready("web")
		p.settles()
		// The one that was held, one for all events, and what the writes to the
		// status bring about.
		passes := p.passes() - before
		t.Logf("%g passes for %d events", passes, burst)
		if passes > 10 {
			t.Errorf("%g passes for %d events", passes, burst)
		}
	})
	// AtOnce: they come in one piece to a process that has nothing to do.
	t.Run("AtOnce", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		proxy := w.proxy()
		p := w.start(proxy)
		w.create(newApp("web"))
		w.ready("web")
		p.settles()
		frozen := proxy.Add(faultproxy.Rule{Match: watch, Scope: faultproxy.OnlyOpen, Freeze: faultproxy.FreezeStream})
		before, events := p.passes(), received(p)
		w.touchChild("web")
		frozen.Remove()
		w.eventually(patience, "the events to be received", func() (bool, string) {
			got := received(p) - events
			return got >= burst, fmt.Sprintf("%g", got)
		})
		p.settles()
		passes := p.passes() - before
		t.Logf("%g passes for %d events", passes, burst)
		if passes > burst/2 {
			t.Errorf("%g passes for %d events", passes, burst)
		}
	})
}
