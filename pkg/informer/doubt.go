package informer

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	// settlePause is how soon after an event it is looked whether something that was
	// missed has arrived: not for each of many.
	settlePause = 50 * time.Millisecond
	// slowFor is how long a slow watch counts as slow after news were late last.
	slowFor = 5 * time.Minute
	// rewindPause is the least time between two rewinds.
	rewindPause = 30 * time.Second
	// retryAudit is how soon after one that failed, or that a mute question asked
	// for, an audit may be repeated.
	retryAudit = 30 * time.Second
)

// Silence proves nothing: the API server sends a bookmark about once a minute, and
// there may be nothing to tell. So a watch that is silent for probeAfter is checked
// by a question, which is a watch of its own, and every auditInterval all that was
// delivered is compared with a list. What these find has a grace to arrive. Then the
// watch is deaf and is opened again on a new connection, from where it has got to.
// If that brings nothing within another grace, no watch works: polling.
//
// News that arrive late, over a stream that delivers others, are another matter:
// the watch is slow. It is opened again once; after that it is given twice the time
// that news have taken, and if that is more than polling would take, polling.

type auditResult struct {
	audited
	err    error
	quick  bool // asked for out of turn
	polled bool // asked for by polling
}

// askAt is when to ask next, zero for not now.
func (s *session) askAt() time.Time {
	e := s.e
	if e.probeAfter == 0 || s.busy || s.initial || s.polling || s.inner == nil || !s.judgeAt.IsZero() || e.from == "" {
		return time.Time{}
	}
	last := s.asked
	if e.lag == 0 { // a slow watch is asked about however much it delivers
		for _, t := range []time.Time{s.inner.opened, s.inner.heard} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last.Add(e.probeAfter)
}

func (s *session) auditTime() time.Time {
	if s.busy || s.initial || s.polling || s.e.auditInterval == 0 {
		return time.Time{}
	}
	return s.e.auditAt
}

// nextAt is the next moment at which tick has something to do, zero for never.
func (s *session) nextAt() time.Time {
	next := earlier(s.askAt(), s.auditTime())
	next = earlier(next, s.judgeTime())
	next = earlier(next, s.pollTime())
	next = earlier(next, s.initialUntil())
	next = earlier(next, s.retryAt)
	if s.opening != nil {
		next = earlier(next, s.opening.began.Add(openTimeout))
	}
	if s.inner != nil {
		next = earlier(next, s.inner.ends)
	}
	return next
}

func (s *session) untilNext() time.Duration {
	next := s.nextAt()
	if next.IsZero() {
		return time.Hour
	}
	return max(time.Until(next), 0)
}

// judgeTime waits for a watch that is being opened.
func (s *session) judgeTime() time.Time {
	if s.opening != nil {
		if s.judgeAt.IsZero() {
			return time.Time{}
		}
		return s.opening.began.Add(s.e.grace() + openPatience)
	}
	return s.judgeAt
}

// tick does what is due.
func (s *session) tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case due(s.initialUntil()):
		s.refuseWatchList()
	case s.opening != nil && due(s.opening.began.Add(openTimeout)):
		s.refused(fmt.Errorf("the API server has not answered for %s", openTimeout))
	case s.inner != nil && due(s.inner.ends):
		s.outlived()
	case due(s.retryAt):
		s.retryAt = time.Time{}
		s.openNext(s.e.from, watchSeconds())
	case due(s.judgeTime()):
		s.judge(now, true)
	case due(s.pollTime()):
		s.round()
	case due(s.askAt()):
		s.ask()
	case due(s.auditTime()):
		s.audit(false)
	}
}

// outlived replaces a watch that the API server should have ended: its end has not
// got here, nor would anything else.
func (s *session) outlived() {
	if s.polling {
		s.drop()
		return
	}
	s.e.log().Info("Watch has outlived its timeout, opening it again on a new connection")
	s.reopen(restartTimeout)
}

func (s *session) ask() {
	s.busy = true
	s.routines.Go(func() {
		a, _ := s.e.ledger.ask(s.ctx, s.e.asker)
		s.answers <- a
	})
}

// answered handles the answer to a question.
func (s *session) answered(a answer) {
	e := s.e
	s.busy, s.asked = false, time.Now()
	e.log().V(5).Info("Asked for a second opinion", "answer", a.kind, "resourceVersion", a.resourceVersion, "err", a.err)
	if s.polling || s.inner == nil {
		return
	}
	if a.rewound {
		s.rewind()
		return
	}
	switch a.kind {
	case news:
		s.doubt() // unless it has arrived meanwhile
	case quiet:
		if !s.judgeAt.IsZero() {
			return
		}
		s.advance(a.resourceVersion)
		s.inTime()
	case mute:
		// Either nobody is told anything, or it is the question's kind of watch alone
		// that is not answered. A list can tell.
		switch {
		case e.auditInterval > 0:
			s.audit(true)
		case e.pollInterval > 0:
			s.poll("other watches are silent too, beyond their timeout")
		}
	case expired:
		if e.auditInterval > 0 {
			s.audit(true)
		}
	case refused, unreachable:
		// Nothing is known. While the API server does not answer nothing counts as
		// deafness.
		e.log().V(2).Info("No second opinion about a silent watch", "answer", a.kind, "err", a.err)
	}
}

// advance lets the Reflector know that nothing has happened up to resourceVersion.
// It would else watch from an older one at last, which ages, and be refused.
func (s *session) advance(resourceVersion string) {
	if below(s.e.from, resourceVersion) && s.send(watch.Event{Type: watch.Bookmark, Object: s.bookmark(resourceVersion)}) {
		s.e.arrived(resourceVersion)
	}
}

// arrived notes that everything up to resourceVersion was delivered.
func (e *ear) arrived(resourceVersion string) {
	e.record.hear(resourceVersion)
	e.quarantine.setDelivered(resourceVersion)
	e.from = resourceVersion
}

// alarmed is what AuditNow leads to.
func (s *session) alarmed(reason string) {
	if s.e.auditInterval > 0 {
		s.e.log().V(2).Info("Audit asked for", "reason", reason)
		s.e.auditAt = time.Now()
	}
}

// audit compares what was delivered with a list.
func (s *session) audit(quick bool) {
	s.busy = true
	e := s.e
	polled := s.polling
	s.routines.Go(func() {
		found, err := e.ledger.audit(s.ctx, e.asker)
		s.audits <- auditResult{found, err, quick, polled}
	})
}

func (s *session) audited(a auditResult) {
	e := s.e
	s.busy = false
	if s.ctx.Err() != nil {
		return
	}
	if !a.polled {
		e.auditAt = time.Now().Add(e.hearing.auditAfter())
		if a.err != nil {
			e.auditAt = earlier(e.auditAt, time.Now().Add(retryAudit))
		}
	}
	switch {
	case a.err == nil && a.rewound:
		s.rewind()
	case s.polling:
		s.compared(a)
	case a.err != nil:
		e.log().V(2).Info("Cannot audit", "err", a.err)
	case len(a.differences) == 0:
		s.advance(a.listing.resourceVersion)
		s.judge(time.Now(), false)
		if s.judgeAt.IsZero() {
			s.inTime()
		}
	default:
		s.doubt()
	}
}

// doubt notes that something may have been missed.
func (s *session) doubt() {
	if s.doubted.IsZero() {
		s.doubted = time.Now()
	}
	s.judge(time.Now(), false)
}

// again goes on with what was open when the watch before ended, or when the initial
// events did.
func (s *session) again() {
	if overdue, next := s.e.ledger.overdue(s.e.grace()); len(overdue) > 0 || !next.IsZero() {
		s.doubted = time.Now()
		s.graceUntil = s.doubted.Add(s.e.grace())
		s.judgeAt = s.graceUntil
	}
}

// judge looks at what is open. measured: it is known to the moment when the last of
// it has arrived.
func (s *session) judge(now time.Time, measured bool) {
	e := s.e
	grace := e.grace()
	overdue, next := e.ledger.overdue(grace)
	if s.judgeAt = next; len(overdue) == 0 {
		if next.IsZero() && !s.doubted.IsZero() {
			s.settled(now, measured)
		}
		return
	}
	if s.opening != nil { // and not in time
		s.drop()
		s.poll("a new watch is not answered")
		return
	}
	if now.Before(s.graceUntil) {
		s.judgeAt = s.graceUntil
		return
	}
	since := s.doubted
	if s.reopened.After(since) {
		since = s.reopened
	}
	first := overdue[0]
	what := fmt.Sprintf("%s has been missing for %s", first.key, now.Sub(s.doubted).Round(time.Second))
	if n := len(overdue); n > 1 {
		what = fmt.Sprintf("%s and %d others have been missing for %s", first.key, n-1, now.Sub(s.doubted).Round(time.Second))
	}
	flowing := s.inner != nil && s.inner.heard.After(since)
	switch {
	case first.passed:
		s.giveUp("the watch has left out what nothing brings any more: " + what)
	case flowing && !s.slow && e.brake.pass(now):
		s.slow = true
		e.enter(StateDelayed, what)
		s.reopen(restartDelayed)
		s.graceUntil = now.Add(max(e.pollInterval, grace))
		s.judgeAt = s.graceUntil
	case !flowing && s.reopened.IsZero() && e.brake.pass(now):
		e.enter(StateDeaf, what)
		s.reopen(restartDeaf)
		s.judgeAt = now.Add(grace)
	default:
		s.giveUp(what)
	}
}

// giveUp is for what no watch brings.
func (s *session) giveUp(what string) {
	e := s.e
	switch {
	case e.pollInterval > 0:
		s.poll(what)
	case e.brake.pass(time.Now()):
		e.enter(StateDeaf, what)
		s.reopen(restartDeaf)
		s.judgeAt = time.Now().Add(e.grace())
	default:
		e.enter(StateDeaf, what)
		s.judgeAt = e.brake.until
	}
}

// settled is for when nothing is open any more.
func (s *session) settled(now time.Time, measured bool) {
	e := s.e
	since := s.doubted
	if s.reopened.After(since) {
		since = s.reopened
	}
	took := now.Sub(since)
	s.doubted, s.judgeAt, s.graceUntil, s.reopened = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	most := e.patience() + 2*settlePause
	if e.lag > 0 {
		// A question is answered with the oldest event that is missing, which may be
		// about to arrive: of a watch known to be slow half as much says as much.
		most /= 2
	}
	if measured && took > most {
		s.late(max(took, e.lag))
		return
	}
	s.inTime()
}

// inTime notes that nothing is missing, or that it has arrived soon. It takes a while
// of that to believe that a slow watch is slow no more.
func (s *session) inTime() {
	if s.e.lag > 0 && time.Since(s.e.lateAt) < slowFor {
		return
	}
	s.slow, s.e.lag = false, 0
	s.e.enter(StateHearing, "")
}

// late notes how long news take to arrive.
func (s *session) late(took time.Duration) {
	e := s.e
	message := fmt.Sprintf("news take %s to arrive", took.Round(time.Millisecond))
	if e.pollInterval > 0 && 2*took > e.pollInterval {
		s.poll(message)
		return
	}
	e.lag, e.lateAt = took, time.Now()
	e.enter(StateDelayed, message)
}

// reopen replaces the inner watch by one on a new connection, from where it has got
// to.
func (s *session) reopen(reason string) {
	s.e.restarted(reason)
	s.drop()
	s.e.connection.Close()
	s.reopened = time.Now()
	s.openNext(s.e.from, watchSeconds())
}

// rewind makes the Reflector list anew, from no revision: those that it knows are of
// a history that the API server does not have.
func (s *session) rewind() {
	e := s.e
	if time.Since(e.rewoundAt) < rewindPause {
		return
	}
	e.rewoundAt = time.Now()
	e.log().Error(nil, "The API server was set back to an older revision, listing anew", "heard", e.record.heard())
	e.restarted(restartRewind)
	e.ledger.reset()
	e.mu.Lock()
	e.fresh = true
	e.mu.Unlock()
	e.quarantine.standInNever()
	if e.rewound != nil {
		e.rewound()
	}
	s.drop()
	s.fail(errRewound)
}
