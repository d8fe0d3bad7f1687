package controller

import (
	"fmt"

	"k8s.io/client-go/util/workqueue"
)

// Lane says how soon a ready key runs compared with other ready keys. It is no
// part of the key: a key is in one lane at a time, and the higher of two wins.
type Lane int8

const (
	// Background is for keys that nothing has happened to: the initial list, a
	// relist, a timer.
	Background Lane = iota
	// Normal is for changes of children and references, and for retries.
	Normal
	// Urgent is for what a person waits for: a deletion, a changed generation, an
	// object created after the initial list.
	Urgent

	laneCount = int(Urgent) + 1
)

func (l Lane) String() string {
	switch l {
	case Background:
		return "Background"
	case Normal:
		return "Normal"
	case Urgent:
		return "Urgent"
	}
	return fmt.Sprintf("Lane(%d)", int(l))
}

// MarshalText writes the lane by its name.
func (l Lane) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// patience is the lanes' shares: after that many pops of higher lanes have passed
// over a lane with something in it, its turn comes. Background thus gets at least
// one pop in ten; Normal one in four, or one in five when Background's turn falls
// on the same pop. A lane that was empty starts to count anew, so that an Urgent
// key that meets nothing but Background ones is the very next.
var patience = [laneCount]int{Background: 9, Normal: 3}

// lanes is the order of the ready keys: a workqueue.Queue, so client-go calls it
// under the queue's lock and only with keys it knows to be new (Push) or already
// queued (Touch).
type lanes struct {
	ledger *ledger
	lanes  [laneCount]lane
	length int
}

// lane holds its keys in one ring for each namespace; rings with keys take turns.
type lane struct {
	turns  list[ring] // the front one is next
	length int        // keys
	passed int        // pops of higher lanes since this one's last
}

// ring holds the keys of one namespace in one lane, first in first out.
type ring struct {
	keys list[record]
	turn link[ring] // in lane.turns while there are keys
}

var _ workqueue.Queue[*record] = &lanes{}

func newLanes(l *ledger) *lanes { return &lanes{ledger: l} }

// Push puts a key that is not queued in the lane the ledger has noted for it.
func (q *lanes) Push(r *record) { q.insert(r, q.ledger.pushed(r)) }

// Touch moves a queued key up if it is wanted in a higher lane by now.
func (q *lanes) Touch(r *record) {
	if want := q.ledger.touched(r); want > r.at {
		q.remove(r)
		q.insert(r, want)
	}
}

// Len returns the number of ready keys in all lanes.
func (q *lanes) Len() int { return q.length }

// Pop takes the next key. It is only called when Len is not 0.
func (q *lanes) Pop() *record {
	turn := q.next()
	for i := range turn {
		if l := &q.lanes[i]; l.length > 0 {
			l.passed++
		}
	}
	l := &q.lanes[turn]
	l.passed = 0
	front := l.turns.front()
	r := front.keys.front()
	q.remove(r)
	if !front.keys.empty() {
		front.turn.remove()
		l.turns.pushBack(&front.turn, front)
	}
	return r
}

// next picks the lane: the lowest whose patience is over, else the highest with
// anything in it.
func (q *lanes) next() Lane {
	highest := Background
	for i := range q.lanes {
		l := &q.lanes[i]
		if l.length == 0 {
			continue
		}
		if patience[i] > 0 && l.passed >= patience[i] {
			return Lane(i)
		}
		highest = Lane(i)
	}
	return highest
}

func (q *lanes) insert(r *record, at Lane) {
	l, own := &q.lanes[at], &r.tenant.rings[at]
	if own.keys.empty() {
		l.turns.pushBack(&own.turn, own)
	}
	own.keys.pushBack(&r.link, r)
	r.at = at
	l.length++
	q.length++
}

func (q *lanes) remove(r *record) {
	l, own := &q.lanes[r.at], &r.tenant.rings[r.at]
	r.link.remove()
	if own.keys.empty() {
		own.turn.remove()
	}
	if l.length--; l.length == 0 {
		l.passed = 0
	}
	q.length--
}
