package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

// add does what Enqueue and client-go's Add do together.
func (q *lanes) add(lane Lane, key cache.ObjectName) {
	if r := q.ledger.wish(key, lane); r.state == ready {
		q.Touch(r)
	} else {
		q.Push(r)
	}
}

func (q *lanes) addN(lane Lane, namespace string, n int) {
	for i := range n {
		q.add(lane, cache.NewObjectName(namespace, fmt.Sprintf("%s-%d", lane, i)))
	}
}

func (l *lane) rings() (n int) {
	for at := l.turns.root.next; at != nil && at != &l.turns.root; at = at.next {
		n++
	}
	return n
}

// pops takes n keys, which are forgotten.
func (q *lanes) pops(n int) (got []string) {
	for range n {
		r := q.Pop()
		q.ledger.drop(r)
		got = append(got, r.key.String())
	}
	return got
}

func TestLanesShares(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		full   map[Lane]bool
		want   map[Lane]int // least of 100 pops
	}{
		"all":                {"each lane has its share", map[Lane]bool{Background: true, Normal: true, Urgent: true}, map[Lane]int{Background: 10, Normal: 20, Urgent: 60}},
		"urgent, background": {"one in ten", map[Lane]bool{Background: true, Urgent: true}, map[Lane]int{Background: 10, Urgent: 90}},
		"normal, background": {"one in ten of Normal's too", map[Lane]bool{Background: true, Normal: true}, map[Lane]int{Background: 10, Normal: 90}},
		"urgent, normal":     {"one in four", map[Lane]bool{Normal: true, Urgent: true}, map[Lane]int{Normal: 25, Urgent: 75}},
		"background":         {"all of it", map[Lane]bool{Background: true}, map[Lane]int{Background: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newLanes(newLedger())
			for lane := range tc.full {
				q.addN(lane, "ns", 200)
			}
			got := map[Lane]int{}
			for range 100 {
				for lane := range q.lanes {
					got[Lane(lane)] -= q.lanes[lane].length
				}
				q.ledger.drop(q.Pop())
				for lane := range q.lanes {
					got[Lane(lane)] += q.lanes[lane].length
				}
			}
			for lane, want := range tc.want {
				if -got[lane] < want {
					t.Errorf("%s: %s got %d of 100 pops, want at least %d", tc.reason, lane, -got[lane], want)
				}
			}
		})
	}
}

// R58: an edit meets nothing but a resync.
func TestR58_UrgentIsNextAfterBackground(t *testing.T) {
	q := newLanes(newLedger())
	q.addN(Background, "ns", 10_000)
	q.pops(777)
	q.add(Urgent, cache.NewObjectName("ns", "edit"))
	if got := q.pops(1); got[0] != "ns/edit" {
		t.Errorf("next is %s, want the edit", got[0])
	}
}

// An Urgent key waits for two pops of lower lanes at most, whatever went before.
func TestUrgentWaitsForTwoAtMost(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	q := newLanes(newLedger())
	for i := range 4000 {
		q.addN(Background, "ns", 3)
		q.addN(Normal, "ns", 3)
		q.addN(Urgent, "ns", rng.IntN(3))
		q.pops(rng.IntN(q.Len()))
		for q.lanes[Urgent].length > 0 {
			q.ledger.drop(q.Pop())
		}
		q.addN(Background, "spare", 3)
		edit := cache.NewObjectName("ns", fmt.Sprint("edit-", i))
		q.add(Urgent, edit)
		if got := q.pops(3); got[0] != edit.String() && got[1] != edit.String() && got[2] != edit.String() {
			t.Fatalf("round %d: popped %v before the edit", i, got)
		}
	}
}

// R59: one tenant's thousands do not stand before another's one.
func TestR59_NamespacesTakeTurns(t *testing.T) {
	q := newLanes(newLedger())
	q.addN(Normal, "a", 5000)
	q.pops(10)
	q.addN(Normal, "b", 2)
	q.addN(Normal, "c", 1)
	want := []string{"a/Normal-10", "b/Normal-0", "c/Normal-0", "a/Normal-11", "b/Normal-1", "a/Normal-12", "a/Normal-13"}
	if diff := cmp.Diff(want, q.pops(7)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHigherLaneWinsAndEmptyRingsGo(t *testing.T) {
	q := newLanes(newLedger())
	key := cache.NewObjectName("ns", "a")
	q.add(Background, key)
	q.addN(Background, "other", 2)
	q.add(Urgent, key)
	q.add(Normal, key) // lower: no effect
	if q.Len() != 3 || q.lanes[Urgent].length != 1 || q.lanes[Background].length != 2 {
		t.Errorf("the key is not in Urgent alone: %d keys, %d urgent, %d background", q.Len(), q.lanes[Urgent].length, q.lanes[Background].length)
	}
	if n := q.lanes[Background].rings(); n != 1 {
		t.Errorf("%d rings in Background, want the emptied one gone", n)
	}
	if got := q.pops(3); got[0] != "ns/a" {
		t.Errorf("popped %v, want ns/a first", got)
	}
	for i := range q.lanes {
		if l := &q.lanes[i]; l.rings() != 0 || l.length != 0 || l.passed != 0 {
			t.Errorf("lane %s keeps %d rings", Lane(i), l.rings())
		}
	}
	if q.Len() != 0 || len(q.ledger.tenants) != 0 {
		t.Errorf("%d keys left, %d namespaces", q.Len(), len(q.ledger.tenants))
	}
}

// A lane that was left by its last key, upwards too, starts to count anew.
func TestEmptyLaneStartsAnew(t *testing.T) {
	q := newLanes(newLedger())
	low := cache.NewObjectName("ns", "low")
	q.add(Background, low)
	q.addN(Urgent, "ns", 9)
	q.pops(9)
	q.add(Urgent, low)
	q.pops(1)
	q.addN(Background, "ns", 1)
	q.addN(Urgent, "ns", 1)
	if got := q.pops(1); got[0] != "ns/Urgent-0" {
		t.Errorf("next is %s, want the urgent key: nothing in Background has been passed over", got[0])
	}
}

// Any sequence of adds and pops: nothing lost, nothing twice, lengths right, and
// each lane's share kept while it has keys.
func FuzzLanes(f *testing.F) {
	f.Add([]byte("\x00\x41\x82\xff\xff\x03\x44\x85\xff"))
	f.Add([]byte("aAbBcC\xc0\xc1\xc2dDeEfF\xc3\xc4\xc5\xc6"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		q := newLanes(newLedger())
		queued := map[cache.ObjectName]Lane{}
		var passed [laneCount]int
		for _, op := range ops {
			if lane := Lane(op >> 6); lane <= Urgent {
				key := cache.NewObjectName(fmt.Sprint(op&7), fmt.Sprint(op>>3&7))
				if at, ok := queued[key]; !ok || lane > at {
					queued[key] = lane
				}
				q.add(lane, key)
			} else if q.Len() > 0 {
				r := q.Pop()
				key := r.key
				from, ok := queued[key]
				if !ok {
					t.Fatalf("%s popped but not queued", key)
				}
				delete(queued, key)
				q.ledger.drop(r)
				passed[from] = 0
				for lane := range from {
					passed[lane]++
				}
			}
			var lengths [laneCount]int
			for _, lane := range queued {
				lengths[lane]++
			}
			for lane := range q.lanes {
				if q.lanes[lane].length != lengths[lane] {
					t.Fatalf("%s has %d keys, want %d", Lane(lane), q.lanes[lane].length, lengths[lane])
				}
				if lengths[lane] == 0 {
					passed[lane] = 0
				}
			}
			if passed[Background] > 9 || passed[Normal] > 4 {
				t.Fatalf("passed over: %v", passed)
			}
			if q.Len() != len(queued) {
				t.Fatalf("Len = %d, want %d", q.Len(), len(queued))
			}
		}
	})
}
