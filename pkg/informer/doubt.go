package informer

import (
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
	// retryAudit is how soon after an audit that failed the next one may be.
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
	polled bool // asked for by polling
}

// askAt is when to ask next, zero for not now. A watch that is not so much as
// answered is silent too.
func (s *session) askAt() time.Time {
	e := s.e
	if e.probeAfter == 0 || s.busy || s.initial || s.polling || !s.judgeAt.IsZero() || e.from == "" {
		return time.Time{}
	}
	var began, heard time.Time
	switch {
	case s.inner != nil:
		began, heard = s.inner.opened, s.inner.heard
	case s.opening != nil:
		began = s.opening.began
	default:
		return time.Time{}
	}
	if s.suspect {
		return began
	}
	last := s.asked
	if e.lag == 0 { // a slow watch is asked about however much it delivers
		last = later(last, later(began, heard))
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
	next = earlier(next, s.beginsAt())
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
	if s.opening != nil && !s.judgeAt.IsZero() {
		return later(s.judgeAt, s.opening.began.Add(s.e.grace()+openPatience))
	}
	return s.judgeAt
}

// tick does what is due.
func (s *session) tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case due(s.initialUntil()):
		s.refuseWatchList()
	case due(s.beginsAt()):
		s.askBegins()
	case s.opening != nil && due(s.opening.began.Add(openTimeout)):
		s.refused(errNotAnswered)
	case s.inner != nil && due(s.inner.ends):
		s.outlived()
	case due(s.retryAt):
		s.retryAt = time.Time{}
		s.openNext(s.e.from, watchSeconds())
	case due(s.judgeTime()):
		s.judge(now, true)
	case due(s.pollTime()):
		s.audit() // a round of polling begins with one
	case due(s.askAt()):
		s.ask()
	case due(s.auditTime()):
		s.audit()
	}
}

// outlived replaces a watch that the API server should have ended: its end has not
// got here, nor would anything else.
func (s *session) outlived() {
	switch {
	case s.initial:
		s.refuseWatchList()
		return
	case s.polling:
		s.drop()
		return
	}
	s.e.log().Info("Watch has outlived its timeout, opening it again on a new connection")
	s.reopen(restartTimeout)
}

func (s *session) ask() {
	s.busy, s.began = true, time.Now()
	ask := inquirer(s.e.asker.ask)
	if s.suspect {
		ask = s.e.asker.askBoth
	}
	s.asking.Go(func() {
		a, _ := s.e.ledger.ask(s.ctx, ask)
		s.answers <- a
	})
}

// answered handles the answer to a question.
func (s *session) answered(a answer) {
	e := s.e
	suspect := s.suspect
	s.busy, s.suspect, s.asked = false, false, time.Now()
	e.log().V(5).Info("Asked for a second opinion", "answer", a.kind, "resourceVersion", a.resourceVersion, "err", a.err)
	if a.kind == refused || a.kind == unreachable {
		s.failedCheck(checkQuestions, a.err, s.began)
	} else {
		s.passedCheck(checkQuestions)
	}
	if s.polling || s.inner == nil && s.opening == nil {
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
		case suspect && e.pollInterval > 0:
			s.poll("the WatchList before has delivered nothing, and other watches are silent too")
		case e.auditInterval > 0:
			s.auditSoon()
		case e.pollInterval > 0:
			s.poll("other watches are silent too, beyond their timeout")
		}
	case expired:
		s.auditSoon()
	case refused, unreachable:
		// Nothing is known. While the API server does not answer nothing counts as
		// deafness.
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
		s.e.wanted = true
		s.auditWanted()
	}
}

// auditWanted lets an audit that was asked for be next: one, however often it was. One
// that is under way has begun too early. So has one before what the last one has found
// could settle.
func (s *session) auditWanted() {
	if e := s.e; e.wanted {
		e.auditAt = earlier(e.auditAt, later(time.Now(), e.auditedAt.Add(e.patience())))
	}
}

// auditSoon audits out of turn, unless that would be too much of it.
func (s *session) auditSoon() {
	e := s.e
	if e.auditInterval > 0 {
		most := time.Duration(e.record.len()) * time.Second / auditedPerSecond
		e.auditAt = earlier(e.auditAt, e.auditedAt.Add(max(most, e.patience())))
	}
}

// audit compares what was delivered with a list.
func (s *session) audit() {
	s.busy, s.began = true, time.Now()
	e := s.e
	e.wanted = false
	polled := s.polling
	s.asking.Go(func() {
		found, err := e.ledger.audit(s.ctx, e.asker)
		s.audits <- auditResult{found, err, polled}
	})
}

func (s *session) audited(a auditResult) {
	e := s.e
	s.busy = false
	if s.ctx.Err() != nil {
		return
	}
	if !a.polled {
		e.auditedAt = time.Now()
		e.auditAt = time.Now().Add(e.hearing.auditAfter())
		if a.err != nil {
			e.auditAt = earlier(e.auditAt, time.Now().Add(retryAudit))
		}
		s.auditWanted()
	}
	name := checkAudits
	if a.polled {
		name = checkPolling
	}
	switch {
	case a.err != nil:
		s.failedCheck(name, a.err, s.began)
	case !a.polled: // a round of polling is over when what it has found is delivered
		s.passedCheck(name)
	}
	if example, narrow := e.tooNarrow(a.audited); narrow {
		s.resign(example)
		return
	}
	switch {
	case a.err == nil && a.rewound:
		s.rewind()
	case s.polling:
		s.compared(a)
	case a.err != nil:
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

// reopen replaces the inner watch by one on a new connection, from where it has got
// to.
func (s *session) reopen(reason string) {
	s.e.restarted(reason)
	s.drop()
	s.e.connection.Close()
	if s.retryAt = (time.Time{}); !s.doubted.IsZero() {
		s.reopened = time.Now()
	}
	s.openNext(s.e.from, watchSeconds())
}

// rewind makes the Reflector list anew, from no revision: those that it knows are of
// a history that the API server does not have.
func (s *session) rewind() {
	e := s.e
	if time.Since(e.rewoundAt) < rewindPause {
		if s.polling {
			s.pollAt = time.Now().Add(s.pollEvery())
		}
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
