package webapp

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
)

func TestConvergence(t *testing.T) {
	now := time.Now()
	app := func(uid types.UID, generation, readyAt int64) *v1alpha1.WebApp {
		a := &v1alpha1.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid, Generation: generation}}
		a.Status.ObservedGeneration = readyAt
		if readyAt > 0 {
			a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
		}
		return a
	}
	type handlers = cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp]
	for name, c := range map[string]struct {
		reason string
		events func(handlers)
		pass   *v1alpha1.WebApp // with the status that it computes
		took   time.Duration
		ok     bool
	}{
		"created":        {"from its event on", func(h handlers) { h.AddFunc(app("a", 1, 0), false) }, app("a", 1, 1), time.Second, true},
		"changed":        {"a new generation begins anew", func(h handlers) { h.UpdateFunc(app("a", 1, 1), app("a", 2, 1)) }, app("a", 2, 2), time.Second, true},
		"not yet Ready":  {"a pass is not the end", func(h handlers) { h.AddFunc(app("a", 1, 0), false) }, app("a", 1, 0), 0, false},
		"initial list":   {"nobody knows when it changed", func(h handlers) { h.AddFunc(app("a", 1, 0), true) }, app("a", 1, 1), 0, false},
		"drift":          {"no change of spec", func(h handlers) { h.UpdateFunc(app("a", 1, 1), app("a", 1, 1)) }, app("a", 1, 1), 0, false},
		"older pass":     {"the pass saw the generation before", func(h handlers) { h.UpdateFunc(app("a", 1, 1), app("a", 2, 1)) }, app("a", 1, 1), 0, false},
		"recreated":      {"another object", func(h handlers) { h.AddFunc(app("a", 1, 0), false) }, app("b", 1, 1), 0, false},
		"another leader": {"a standby saw it become Ready", func(h handlers) { h.AddFunc(app("a", 1, 0), false); h.UpdateFunc(app("a", 1, 0), app("a", 1, 1)) }, app("a", 1, 1), 0, false},
		"deleted": {"nothing is kept of it", func(h handlers) {
			h.AddFunc(app("a", 1, 0), false)
			h.DeleteFunc(cache.DeletedObject[*v1alpha1.WebApp]{OptionalObj: app("a", 1, 0)})
		}, app("a", 1, 1), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestController(t)
			clock := &passiveClock{now}
			w.cfg.Clock = clock
			c.events(w.webAppHandlers(func(controller.Lane, ...cache.ObjectName) {}))
			clock.now = clock.now.Add(time.Second)
			took, ok := w.convergence.Reached(c.pass, c.pass.Status.Conditions, clock.now)
			if took != c.took || ok != c.ok {
				t.Errorf("%s: got %s, %t, want %s, %t", c.reason, took, ok, c.took, c.ok)
			}
			if _, again := w.convergence.Reached(c.pass, c.pass.Status.Conditions, clock.now); again {
				t.Error("counted twice")
			}
		})
	}
}

type passiveClock struct{ now time.Time }

func (c *passiveClock) Now() time.Time                  { return c.now }
func (c *passiveClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }
