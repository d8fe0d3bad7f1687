package informer

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const firstRevision = 1000

// model is an API server with one resource and a watch that is late, by lag at
// most. It is driven by one goroutine, in a synctest bubble.
type model struct {
	random *rand.Rand
	opaque bool
	lag    time.Duration
	names  int // of objects

	revision int
	numbers  map[string]int // of versions
	objects  map[string]*metav1.PartialObjectMetadata
	past     []*modelEvent // all there ever were, one a revision
	queue    []*modelEvent // not delivered yet

	record *record
	ledger *ledger
	// deaf: nothing is delivered. lose: the next event is not.
	deaf, lose bool
	lost       string // the object of the lost event
}

type modelEvent struct {
	watch.Event
	revision int
	due      time.Time
}

func newModel(seed uint64, opaque bool) *model {
	m := &model{
		random: rand.New(rand.NewPCG(seed, 1)), opaque: opaque, lag: 4 * time.Second, names: 40, revision: firstRevision, numbers: map[string]int{},
		objects: map[string]*metav1.PartialObjectMetadata{}, record: newRecord(nil),
	}
	m.ledger = newLedger(m.record)
	return m
}

// version is how a revision looks to a client.
func (m *model) version(revision int) string {
	version := strconv.Itoa(revision)
	if m.opaque {
		version = fmt.Sprintf("v%x", uint32(revision)*2654435761)
	}
	m.numbers[version] = revision
	return version
}

// write makes one change of one object.
func (m *model) write() {
	m.revision++
	name := "o" + strconv.Itoa(m.random.IntN(m.names))
	old, exists := m.objects[name]
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, ResourceVersion: m.version(m.revision), UID: types.UID(m.version(m.revision)), Generation: 1,
	}}
	event := watch.Added
	if exists {
		event, o.UID, o.Generation = watch.Modified, old.UID, old.Generation+1
	}
	m.objects[name] = o
	if exists && m.random.IntN(4) == 0 {
		event = watch.Deleted
		delete(m.objects, name)
	}
	due := time.Now().Add(time.Duration(m.random.Int64N(int64(m.lag))))
	if n := len(m.past); n > 0 && m.past[n-1].due.After(due) {
		due = m.past[n-1].due // in order
	}
	e := &modelEvent{watch.Event{Type: event, Object: o}, m.revision, due}
	m.past = append(m.past, e)
	m.queue = append(m.queue, e)
}

// pass lets time pass, with writes and deliveries.
func (m *model) pass(d time.Duration, writesPerSecond int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Duration(m.random.Int64N(int64(2 * time.Second / time.Duration(max(writesPerSecond, 1))))))
		if writesPerSecond > 0 {
			m.write()
		}
		m.deliver()
	}
}

func (m *model) deliver() {
	for !m.deaf && len(m.queue) > 0 && !m.queue[0].due.After(time.Now()) {
		e := m.queue[0]
		m.queue = m.queue[1:]
		o := e.Object.(*metav1.PartialObjectMetadata)
		if m.lose {
			m.lose, m.lost = false, o.Name
			continue
		}
		m.record.see(e.Type, o)
	}
	if !m.deaf && len(m.queue) == 0 && m.random.IntN(20) == 0 { // a bookmark
		m.record.see(watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: m.version(m.revision)}})
	}
}

// relist fills the record from a snapshot, which takes a while; a watch goes on
// from there.
func (m *model) relist() {
	f := m.record.begin()
	at := m.revision
	for _, o := range m.objects {
		f.see(watch.Added, o)
	}
	deaf := m.deaf
	m.deaf = true // nothing comes in between
	m.pass(time.Duration(m.random.Int64N(int64(time.Second))), 25)
	f.commit(m.version(at))
	m.deaf = deaf
	m.queue = slices.DeleteFunc(m.queue, func(e *modelEvent) bool { return e.revision <= at })
}

// list is an audit's: a snapshot of some moment between its start and its end.
func (m *model) list(context.Context) (*listing, error) {
	m.pass(time.Duration(m.random.Int64N(int64(time.Second))), 25)
	all := &listing{resourceVersion: m.version(m.revision), objects: map[cache.ObjectName]mark{}}
	for _, o := range m.objects {
		all.objects[cache.MetaObjectToName(o)] = markOf(o)
	}
	m.pass(time.Duration(m.random.Int64N(int64(2*time.Second))), 25)
	return all, nil
}

func (m *model) ask(_ context.Context, from string) answer {
	m.pass(time.Duration(m.random.Int64N(int64(time.Second))), 25)
	got := answer{kind: quiet}
	if next := m.numbers[from] - firstRevision; next < len(m.past) {
		e := m.past[next]
		o := e.Object.(*metav1.PartialObjectMetadata)
		got = answer{kind: news, key: cache.MetaObjectToName(o), resourceVersion: o.ResourceVersion}
	}
	m.pass(time.Duration(m.random.Int64N(int64(time.Second))), 25)
	return got
}

const modelGrace = 5 * time.Second

// run lets everything happen at random, more than 20 writes a second among it, and
// returns the first difference that has outlived the grace.
func (m *model) run(t *testing.T, d time.Duration) []difference {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		switch m.random.IntN(12) {
		case 0:
			result, err := m.ledger.audit(t.Context(), m)
			if err != nil || result.rewound {
				t.Fatalf("audit: rewound %t, %v", result.rewound, err)
			}
		case 1:
			m.ledger.ask(t.Context(), m.ask)
		case 2:
			if m.lost == "" && !m.deaf {
				m.relist()
			}
		default:
			m.pass(time.Duration(m.random.Int64N(int64(time.Second))), 25)
		}
		if all, _ := m.ledger.overdue(modelGrace); len(all) > 0 {
			return all
		}
	}
	return nil
}

const (
	modelSeeds = 40
	modelTime  = 3 * time.Minute
)

func forModels(t *testing.T, f func(t *testing.T, m *model)) {
	for seed := range uint64(modelSeeds) {
		for _, opaque := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(seed, opaque)
				m.pass(2*time.Second, 25)
				m.relist()
				f(t, m)
				if t.Failed() {
					t.Fatalf("seed %d, opaque %t", seed, opaque)
				}
			})
		}
	}
}

// However writes, late deliveries, relists, questions and audits come in between
// each other, a watch that is late by less than the grace is not taken for deaf, nor
// etcd for set back.
func TestLedgerRaisesNoFalseAlarm(t *testing.T) {
	forModels(t, func(t *testing.T, m *model) {
		if all := m.run(t, modelTime); len(all) > 0 {
			t.Errorf("%d overdue, one of them %+v", len(all), all[0])
		}
	})
}

// A watch that delivers nothing is found by the next audit or question, within the
// grace.
func TestLedgerFindsADeafWatch(t *testing.T) {
	forModels(t, func(t *testing.T, m *model) {
		m.run(t, 20*time.Second)
		m.deaf = true
		m.pass(m.lag+time.Second, 25)
		if _, err := m.ledger.audit(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		m.pass(modelGrace+time.Second, 25)
		if all, _ := m.ledger.overdue(modelGrace); len(all) == 0 {
			t.Error("not found by an audit")
		}
		m.ledger.reset()
		got, delivered := m.ledger.ask(t.Context(), m.ask)
		m.pass(modelGrace+time.Second, 0)
		if all, _ := m.ledger.overdue(modelGrace); len(all) != 1 || delivered || all[0].key != got.key {
			t.Errorf("a question: %+v, delivered %t; overdue %+v", got, delivered, all)
		}
	})
}

// A watch that leaves one event out and goes on is found by the second audit from
// there, unless the object's next event comes first.
func TestLedgerFindsALostEvent(t *testing.T) {
	found := 0
	forModels(t, func(t *testing.T, m *model) {
		m.names = 400 // or the next event of the same object comes at once
		m.lose = true
		for m.lost == "" {
			m.pass(time.Second, 25)
		}
		key := cache.NewObjectName("ns", m.lost)
		m.pass(m.lag, 0) // what was written is delivered
		m.deliver()
		m.record.hear(m.version(m.revision))
		want, exists := m.objects[m.lost]
		got, delivered := m.record.get(key)
		wrong := exists != delivered || exists && got != markOf(want)
		var all []difference
		for range 2 {
			if _, err := m.ledger.audit(t.Context(), &still{m}); err != nil {
				t.Fatal(err)
			}
			m.pass(modelGrace+time.Second, 0)
			all, _ = m.ledger.overdue(modelGrace)
		}
		if wrong {
			found++
		}
		if keys := overdueKeys(all); wrong != slices.Contains(keys, key) || len(keys) > 1 {
			t.Errorf("wrong %t, overdue %+v", wrong, all)
		}
	})
	if found < 10 {
		t.Errorf("only %d of the lost events made a difference: too few to say anything", found)
	}
}

// still lists without time passing.
type still struct{ *model }

func (s *still) list(context.Context) (*listing, error) {
	all := &listing{resourceVersion: s.version(s.revision), objects: map[cache.ObjectName]mark{}}
	for _, o := range s.objects {
		all.objects[cache.MetaObjectToName(o)] = markOf(o)
	}
	return all, nil
}

func overdueKeys(all []difference) []cache.ObjectName {
	keys := map[cache.ObjectName]bool{}
	for _, d := range all {
		keys[d.key] = true
	}
	return slices.Collect(maps.Keys(keys))
}
