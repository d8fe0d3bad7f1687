package undecodable

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// interval is the least time between two reports. What is written to a bad object
// is for people, who do not read faster, and it must stay far below what the API
// server has to do anyway.
const interval = time.Second

// turns hands out one report an interval. A key that has to wait is told when to
// come back, so that a worker is never held and thousands of keys do not wake more
// often than once an interval together.
//
// There is no debt: the wait depends on how many wait now. When they are all mended
// at once the next one is served at once.
type turns struct {
	mu   sync.Mutex
	last time.Time
	due  map[cache.ObjectName]time.Time // of the keys that wait
}

// take gives key its turn and returns 0, or how long it has to wait. A key that
// comes back before its time, because its object has changed, keeps its place.
func (t *turns) take(key cache.ObjectName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	free := t.last.Add(interval)
	due, waits := t.due[key]
	if !waits {
		due = now
		if free.After(now) {
			due = free
		}
		due = due.Add(time.Duration(len(t.due)) * interval)
	}
	if free.After(due) {
		due = free // another one was served meanwhile
	}
	if wait := due.Sub(now); wait > 0 {
		if t.due == nil {
			t.due = map[cache.ObjectName]time.Time{}
		}
		t.due[key] = due
		return wait
	}
	delete(t.due, key)
	t.last = now
	return 0
}

// leave takes key off the list.
func (t *turns) leave(key cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.due, key)
}
