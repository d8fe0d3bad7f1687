package controller

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Protect calls f and contains a panic in it: the stack is logged (of the 1st, 2nd,
// 4th, 8th … at origin), the panic is counted under origin and shown in Snapshot, and key is enqueued, so that what f
// was to bring about is made up for by a pass. It reports whether f returned.
//
// It is for the body of event handlers, index functions and map functions, which
// run where a panic ends the process (a handler in client-go's informer) or breaks
// the store. origin is a constant text such as "WebApps by ConfigMap"; key is the
// object at hand, or the owner it maps to, or the zero value for none.
func (c *Controller) Protect(origin string, key cache.ObjectName, f func()) (ok bool) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		text := fmt.Sprint(v)
		if loud(c.counts.panicked(origin, key, text)) { // a relist may panic for every object
			klog.Background().Error(nil, "Panic contained", "controller", c.cfg.Name, "origin", origin,
				"object", klog.KRef(key.Namespace, key.Name), "panic", text, "stack", string(debug.Stack()))
		}
		if key != (cache.ObjectName{}) {
			c.Enqueue(Normal, key)
		}
	}()
	f()
	return true
}

// counts are kept for the life of the Controller, whatever terms it has.
type counts struct {
	early        atomic.Int64 // timers put back
	leftOver     atomic.Int64 // timers dropped
	ignoredAfter atomic.Int64 // passes that returned an After beside an error

	mu     sync.Mutex
	panics map[string]Panics
}

// Panics tells of the panics contained at one place.
type Panics struct {
	// Origin is "Reconcile" (the gate included) or what Protect was given.
	Origin string `json:"origin"`
	// Count is since the process started.
	Count int `json:"count"`
	// Last is the text of the last one, LastKey its key and LastTime its time.
	Last     string    `json:"last"`
	LastKey  string    `json:"lastKey,omitempty"`
	LastTime time.Time `json:"lastTime"`
}

// maxOrigins bounds the places that panics are counted by, should a caller make
// up origins as it goes.
const maxOrigins = 64

// panicked counts a panic and returns how many there were at origin.
func (c *counts) panicked(origin string, key cache.ObjectName, text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.panics == nil {
		c.panics = map[string]Panics{}
	}
	if _, known := c.panics[origin]; !known && len(c.panics) >= maxOrigins {
		origin = "other"
	}
	c.panics[origin] = Panics{
		Origin: origin, Count: c.panics[origin].Count + 1,
		Last: clip(text), LastKey: key.String(), LastTime: time.Now(),
	}
	return c.panics[origin].Count
}

func (c *counts) panicsByOrigin() []Panics {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Panics
	for _, origin := range slices.Sorted(maps.Keys(c.panics)) {
		all = append(all, c.panics[origin])
	}
	return all
}
