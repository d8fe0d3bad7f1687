package main

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// viewer is who has to learn of a change.
type viewer int

const (
	product viewer = iota // has acted on it: its child shows it, or the object is gone
	plain                 // client-go's own informer beside it has told its handler
	viewers
)

// change is one write, numbered within the book. A later change of the same object
// stands for the earlier ones.
type change struct {
	object string
	n      int
	at     time.Time // before the request was sent
	seen   [viewers]time.Time
}

// book keeps what was written and when it was seen.
type book struct {
	mu      sync.Mutex
	n       int
	changes []*change // in the order of writing
}

// open notes a change that is about to be written. cancel takes it back where it was
// refused.
func (b *book) open(object string) (n int, cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	c := &change{object: object, n: b.n, at: time.Now()}
	b.changes = append(b.changes, c)
	return c.n, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changes = slices.DeleteFunc(b.changes, func(d *change) bool { return d == c })
	}
}

// see notes that v knows the object as change n left it.
func (b *book) see(v viewer, object string, n int) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.changes) - 1; i >= 0; i-- {
		c := b.changes[i]
		if c.object != object || c.n > n {
			continue
		}
		if !c.seen[v].IsZero() {
			return
		}
		c.seen[v] = now
	}
}

// gone notes that v knows that the object is not there any more.
func (b *book) gone(v viewer, object string) {
	b.mu.Lock()
	n := b.n
	b.mu.Unlock()
	b.see(v, object, n)
}

// forget drops all changes, after etcd was set back.
func (b *book) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = nil
}

// unseen are the changes that v has not seen, from first to last.
func (b *book) unseen(v viewer) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, c := range b.changes {
		if c.seen[v].IsZero() {
			n++
		}
	}
	return n
}

// delays of the changes that were written in a span of time.
type delays struct {
	changes, unseen int
	median, max     time.Duration
}

// delays counts a change that has not been seen with its age now.
func (b *book) delays(v viewer, from, to time.Time) delays {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []time.Duration
	var d delays
	for _, c := range b.changes {
		if c.at.Before(from) || !c.at.Before(to) {
			continue
		}
		seen := c.seen[v]
		if seen.IsZero() {
			d.unseen++
			seen = now
		}
		all = append(all, seen.Sub(c.at))
	}
	if d.changes = len(all); d.changes > 0 {
		slices.Sort(all)
		d.median, d.max = all[len(all)/2], all[len(all)-1]
	}
	return d
}

// longest is the longest wait of a change that was on its way within a span of time.
func (b *book) longest(v viewer, from, to time.Time) time.Duration {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var longest time.Duration
	for _, c := range b.changes {
		seen := c.seen[v]
		if seen.IsZero() {
			seen = now
		}
		if c.at.Before(to) && seen.After(from) {
			longest = max(longest, seen.Sub(c.at))
		}
	}
	return longest
}

// prompt is how long after since the first change was written from which on all that
// follow were seen within limit. ok is false if there is none.
func (b *book) prompt(v viewer, since time.Time, limit time.Duration) (after time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range slices.Backward(b.changes) {
		if c.at.Before(since) {
			break
		}
		if c.seen[v].IsZero() || c.seen[v].Sub(c.at) > limit {
			break
		}
		after, ok = c.at.Sub(since), true
	}
	return after, ok
}

const imagePrefix = "registry.example/app:"

func image(n int) string { return imagePrefix + strconv.Itoa(n) }

// imageNumber is 0 for an image that is not ours.
func imageNumber(s string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(s, imagePrefix))
	return n
}
