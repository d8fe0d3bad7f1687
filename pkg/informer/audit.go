package informer

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// auditor is what a ledger audits with: an asker.
type auditor interface {
	list(ctx context.Context) (*listing, error)
}

// difference is an object that was delivered in one state, or not at all, while the
// API server holds it in another, or not at all.
type difference struct {
	key cache.ObjectName
	// delivered last; zero if nothing was, or it was deleted.
	delivered mark
	// audited is what the API server holds; zero if nothing.
	audited mark
	// revision that has to be passed: that of audited, or of the listing that the
	// object is not in.
	revision string
	// passed: the revision heard has. A watch opened there does not bring it.
	passed bool
}

func (d *difference) missing() bool { return d.delivered == mark{} }
func (d *difference) gone() bool    { return d.audited == mark{} }

// audited is what an audit has come to.
type audited struct {
	listing *listing
	// rewound: what was delivered is from a history that the API server does not
	// have: etcd was set back. There are no differences then: everything may be one.
	rewound bool
	// differences that are left, those that only the revision heard has passed
	// included, in no order.
	differences []difference
}

// ledger keeps the differences that audits and questions find until they settle:
// what the API server holds reaches a watch a little later, so that one says
// nothing before it has outlived a grace.
//
// A difference has settled once that object was delivered at the audited revision
// or a later one, or the revision heard has passed it. The latter is no proof: the
// watch may have left out that one object. So what settled by it alone is
// remembered, and if the next audit finds just the same it is back, as old as it
// was. Nothing healthy looks like that, an event takes moments and not an interval.
//
// Where revisions are opaque they are only equal or not, and a difference has also
// settled once anything was delivered of that object since the API server was asked.
// An audit says nothing there about objects that are set aside.
//
// Safe for concurrent use.
type ledger struct {
	record *record

	mu sync.Mutex
	// open differences; doubts have settled by the revision heard alone.
	open, doubts map[cache.ObjectName]openDifference
	tracking     bool // the record, for what is open
	known        bool // an audit has been made, since the last rewind
}

type openDifference struct {
	difference
	since time.Time
	asked uint64 // as of record.track, when the API server was asked
}

func newLedger(r *record) *ledger {
	l := &ledger{record: r}
	l.reset()
	return l
}

// inquirer asks a question, as asker.ask.
type inquirer func(ctx context.Context, from string) answer

// audit lists what the API server holds and compares. What it finds is kept in
// place of what was found before.
func (l *ledger) audit(ctx context.Context, a auditor) (audited, error) {
	asked := l.record.track()
	defer l.record.untrack()
	before := l.record.heard()
	all, err := a.list(ctx)
	if err != nil {
		return audited{}, err
	}
	if below(all.resourceVersion, before) {
		l.forget()
		return audited{listing: all, rewound: true}, nil
	}
	// From here on, so that nobody settles by what is about to be replaced.
	l.mu.Lock()
	defer l.mu.Unlock()
	found, rewound := l.record.compare(all, asked)
	if rewound {
		found = nil
	}
	l.keep(found, asked)
	l.known = !rewound
	return audited{listing: all, rewound: rewound, differences: found}, nil
}

// ask asks for news since the revision heard, and keeps what has not been delivered
// by the time the answer is there. Delivered says that news was.
func (l *ledger) ask(ctx context.Context, ask inquirer) (got answer, delivered bool) {
	asked := l.record.track()
	defer l.record.untrack()
	got = ask(ctx, l.record.heard())
	if got.kind != news || got.rewound {
		return got, false
	}
	d := difference{key: got.key, audited: mark{resourceVersion: got.resourceVersion}, revision: got.resourceVersion}
	if m, ok := l.record.get(d.key); ok {
		d.delivered = mark{uid: m.uid, resourceVersion: m.resourceVersion}
	}
	if l.record.delivers(&d, asked) || d.passed {
		return got, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[d.key]; !ok {
		l.open[d.key] = openDifference{d, time.Now(), asked}
	}
	l.track()
	return got, false
}

// keep replaces what is open by what an audit has found. mu is held.
func (l *ledger) keep(found []difference, asked uint64) {
	now := time.Now()
	open, doubts := map[cache.ObjectName]openDifference{}, map[cache.ObjectName]openDifference{}
	for _, d := range found {
		kept := openDifference{d, now, asked}
		again := false
		for _, before := range []map[cache.ObjectName]openDifference{l.open, l.doubts} {
			if b, ok := before[d.key]; ok && b.same(d) {
				kept.since, again = b.since, true
			}
		}
		if d.passed && !again {
			doubts[d.key] = kept
		} else {
			open[d.key] = kept
		}
	}
	l.open, l.doubts = open, doubts
	l.track()
}

// track tracks deliveries while something is open. mu is held.
func (l *ledger) track() {
	if needed := len(l.open) > 0; needed != l.tracking {
		l.tracking = needed
		if needed {
			l.record.track()
		} else {
			l.record.untrack()
		}
	}
}

// same reports whether nothing has happened to the object since.
func (d *difference) same(later difference) bool {
	return d.delivered == later.delivered && d.audited.resourceVersion == later.audited.resourceVersion
}

// forget is reset, and nothing is known of what the API server holds.
func (l *ledger) forget() {
	l.reset()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = false
}

// reset forgets everything.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.doubts = map[cache.ObjectName]openDifference{}, map[cache.ObjectName]openDifference{}
	l.track()
}

// settle moves on what has settled. mu is held.
func (l *ledger) settle() {
	for key, d := range l.open {
		before := d.passed
		switch {
		case l.record.delivers(&d.difference, d.asked):
			delete(l.open, key)
		case d.passed && !before:
			delete(l.open, key)
			l.doubts[key] = d
		}
	}
	l.track()
}

// overdue settles what has settled and returns the differences that have outlived
// grace, in no order, and when the next one will unless it settles (zero: none is
// left).
func (l *ledger) overdue(grace time.Duration) (all []difference, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	now := time.Now()
	for _, d := range l.open {
		due := d.since.Add(grace)
		switch {
		case !now.Before(due):
			all = append(all, d.difference)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	return all, next
}

// unconverged counts the objects whose generation in the last audit is above the one
// that observed returns, and those that were not delivered at all. Objects for which
// observed returns false do not count.
func (l *ledger) unconverged(observed func(cache.ObjectName, types.UID) (int64, bool)) (n int, known bool) {
	l.mu.Lock()
	l.settle()
	known = l.known
	for _, d := range l.open {
		if d.audited.uid != "" && d.audited.uid != d.delivered.uid {
			n++
		}
	}
	l.mu.Unlock()
	if !known {
		return 0, false
	}
	for _, a := range l.record.audited() {
		if got, ok := observed(a.key, a.uid); ok && got < a.generation {
			n++
		}
	}
	return n, true
}

// compare returns what all holds that was not delivered and what was delivered that
// it does not hold, and whether that can only be of another history. asked is from
// track, before the list was asked for.
func (r *record) compare(all *listing, asked uint64) (found []difference, rewound bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	aside := r.quarantine.marks()
	ordered := comparable(all.resourceVersion, r.revision)
	skip := func(key cache.ObjectName) bool {
		if ordered {
			return false
		}
		_, bad := aside[key]
		return bad || r.touched(key, asked)
	}
	for key, m := range all.objects {
		got, ok := r.delivered[key]
		if ok && got.uid == m.uid {
			got.audited = m.generation
			r.delivered[key] = got
		}
		now := got.mark
		if bad, set := aside[key]; set {
			now = bad
		}
		if now.resourceVersion == m.resourceVersion || skip(key) {
			continue
		}
		if ordered && below(m.resourceVersion, now.resourceVersion) {
			// It is newer than the listing, or else the listing would hold it.
			if !below(all.resourceVersion, now.resourceVersion) {
				return nil, true
			}
			continue
		}
		m.generation, now.generation = 0, 0
		d := difference{key: key, delivered: now, audited: m, revision: m.resourceVersion}
		d.passed = atLeast(r.revision, d.revision)
		found = append(found, d)
	}
	undeleted := func(key cache.ObjectName, now mark) {
		if _, held := all.objects[key]; held || skip(key) || ordered && below(all.resourceVersion, now.resourceVersion) {
			return
		}
		now.generation = 0
		d := difference{key: key, delivered: now, revision: all.resourceVersion}
		d.passed = atLeast(r.revision, d.revision)
		found = append(found, d)
	}
	for key, got := range r.delivered {
		if bad, set := aside[key]; set {
			got.mark = bad
		}
		undeleted(key, got.mark)
	}
	for key, bad := range aside {
		if _, both := r.delivered[key]; !both {
			undeleted(key, bad)
		}
	}
	return found, false
}

// delivers reports whether d, found when the API server was asked, has been
// delivered by now, and notes in d whether the revision heard has passed it.
func (r *record) delivers(d *difference, asked uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, ok := r.now(d.key)
	d.passed = atLeast(r.revision, d.revision)
	if !comparable(d.revision, r.revision) && r.touched(d.key, asked) {
		return true
	}
	if !d.gone() {
		return ok && atLeast(now.resourceVersion, d.revision)
	}
	return !ok || now.uid != d.delivered.uid || below(d.revision, now.resourceVersion)
}
