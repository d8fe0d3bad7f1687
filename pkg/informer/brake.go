package informer

import (
	"math/rand/v2"
	"time"
)

const (
	// brakeMin is how long the second remedy waits for the first, each further one
	// twice as long, up to brakeMax.
	brakeMin = 10 * time.Second
	brakeMax = 5 * time.Minute
	// healthyStream is how long a watch has to deliver before what was wrong with
	// the ones before is forgotten.
	healthyStream = time.Minute
)

// brake spaces out what an informer does about its watches: reopening one, letting
// one that has ended too early or with an error be listed again. Whatever ails the
// watches of a whole cluster would else be answered by every informer of every
// process at full speed. One for all remedies, so that two which fail in turn are
// spaced out too.
//
// The zero value lets the first one pass. Not for concurrent use.
type brake struct {
	delay time.Duration // after the last one
	until time.Time
}

// pass reports whether a remedy may run now, and if so counts it.
func (b *brake) pass(now time.Time) bool {
	if now.Before(b.until) {
		return false
	}
	b.delay = min(max(brakeMin, 2*b.delay), brakeMax)
	// Up to a quarter less, so that informers which began together do not go on so.
	b.until = now.Add(b.delay - time.Duration(rand.Int64N(int64(b.delay/4))))
	return true
}

// reset forgets, after a watch that has delivered for healthyStream.
func (b *brake) reset() { *b = brake{} }
