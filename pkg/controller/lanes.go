package controller

import (
	"container/list"
	"fmt"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Lane says how soon a ready key runs compared with other ready keys. It is no
// part of the key: a key is in one lane at a time, and the higher of two wins.
type Lane int

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
	where  map[cache.ObjectName]place
}

// lane holds its keys in one ring for each namespace; rings take turns. A ring
// without keys does not exist.
type lane struct {
	turns  list.List // of *ring; the front one is next
	rings  map[string]*list.Element
	length int
	passed int // pops of higher lanes since this one's last
}

type ring struct {
	namespace string
	keys      list.List // of cache.ObjectName, first in first out
}

type place struct {
	lane Lane
	elem *list.Element // in ring.keys
}

var _ workqueue.Queue[cache.ObjectName] = &lanes{}

func newLanes(l *ledger) *lanes {
	q := &lanes{ledger: l, where: map[cache.ObjectName]place{}}
	for i := range q.lanes {
		q.lanes[i].rings = map[string]*list.Element{}
	}
	return q
}

// Push puts a key that is not queued in the lane the ledger has noted for it.
func (q *lanes) Push(key cache.ObjectName) { q.insert(key, q.ledger.pushed(key)) }

// Touch moves a queued key up if it is wanted in a higher lane by now.
func (q *lanes) Touch(key cache.ObjectName) {
	at, ok := q.where[key]
	if !ok {
		return
	}
	if want := q.ledger.touched(key); want > at.lane {
		q.remove(key, at)
		q.insert(key, want)
	}
}

// Len returns the number of ready keys in all lanes.
func (q *lanes) Len() int { return len(q.where) }

// Pop takes the next key. It is only called when Len is not 0.
func (q *lanes) Pop() cache.ObjectName {
	turn := q.next()
	for i := range q.lanes {
		if l := &q.lanes[i]; Lane(i) < turn && l.length > 0 {
			l.passed++
		}
	}
	l := &q.lanes[turn]
	l.passed = 0
	front := l.turns.Front()
	r := front.Value.(*ring)
	key := r.keys.Front().Value.(cache.ObjectName)
	l.turns.MoveToBack(front) // before remove, which may end the ring
	q.remove(key, q.where[key])
	return key
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

func (q *lanes) insert(key cache.ObjectName, at Lane) {
	l := &q.lanes[at]
	turn, ok := l.rings[key.Namespace]
	if !ok {
		turn = l.turns.PushBack(&ring{namespace: key.Namespace})
		l.rings[key.Namespace] = turn
	}
	elem := turn.Value.(*ring).keys.PushBack(key)
	l.length++
	q.where[key] = place{lane: at, elem: elem}
}

func (q *lanes) remove(key cache.ObjectName, at place) {
	l := &q.lanes[at.lane]
	turn := l.rings[key.Namespace]
	r := turn.Value.(*ring)
	r.keys.Remove(at.elem)
	if r.keys.Len() == 0 {
		l.turns.Remove(turn)
		delete(l.rings, key.Namespace)
	}
	if l.length--; l.length == 0 {
		l.passed = 0
	}
	delete(q.where, key)
}
