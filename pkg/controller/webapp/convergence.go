package webapp

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// convergence times a change of spec until it is Ready, the time in the queue
// included: what users wait for. A generation that is replaced before it is Ready is
// not counted; the one that replaces it is, from its own beginning. Nor is what had
// changed before this process started. A standby follows changes too, so that one
// that outlasts a change of leader is counted whole.
type convergence struct {
	mu    sync.Mutex
	since map[cache.ObjectName]specChange
}

type specChange struct {
	uid        types.UID
	generation int64
	at         time.Time
}

// changed notes a new generation when it is first seen.
func (c *convergence) changed(app *v1alpha1.WebApp, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := nameOf(app)
	if was, ok := c.since[key]; ok && was.uid == app.UID && was.generation >= app.Generation {
		return
	}
	if c.since == nil {
		c.since = map[cache.ObjectName]specChange{}
	}
	c.since[key] = specChange{app.UID, app.Generation, now}
}

// reached returns how long app's generation took, once, if status says that it is
// Ready.
func (c *convergence) reached(app *v1alpha1.WebApp, status *v1alpha1.WebAppStatus, now time.Time) (took time.Duration, ok bool) {
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := nameOf(app)
	was, ok := c.since[key]
	if !ok || was.uid != app.UID || was.generation != app.Generation {
		return 0, false
	}
	delete(c.since, key)
	return now.Sub(was.at), true
}

// isReady says whether a WebApp's latest spec is.
func isReady(app *v1alpha1.WebApp) bool {
	return app.Status.ObservedGeneration == app.Generation && meta.IsStatusConditionTrue(app.Status.Conditions, v1alpha1.ConditionReady)
}

func (c *convergence) forget(key cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, key)
}
