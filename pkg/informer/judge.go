package informer

import (
	"fmt"
	"time"
)

// judge looks at what is open. measured: it is known to the moment when the last of
// it has arrived.
func (s *session) judge(now time.Time, measured bool) {
	e := s.e
	grace := e.grace()
	overdue, next := e.ledger.overdue(grace)
	if s.judgeAt = next; len(overdue) == 0 {
		switch {
		case s.doubted.IsZero():
		case next.IsZero():
			s.settled(now, measured)
		default:
			// What was missing first has arrived, or an audit has found something newer
			// in its place.
			s.doubted = later(s.doubted, next.Add(-grace))
		}
		return
	}
	if s.opening != nil { // and not in time
		s.drop()
		s.giveUp("a new watch is not answered", false)
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
		s.giveUp("the watch has left out what nothing brings any more: "+what, true)
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
		s.giveUp(what, false)
	}
}

// giveUp is for what no watch brings: polling, or if that is off another try when the
// brake allows. What a watch has passed no other one brings that starts from where it
// has got to, only a list.
func (s *session) giveUp(what string, passed bool) {
	e := s.e
	switch {
	case e.pollInterval > 0:
		s.poll(what)
	case !e.brake.pass(time.Now()):
		e.enter(StateDeaf, what)
		s.judgeAt = e.brake.until
	case passed:
		e.enter(StateDeaf, what)
		e.restarted(restartDeaf)
		s.drop()
		s.fail(errLeftOut)
	default:
		e.enter(StateDeaf, what)
		s.reopen(restartDeaf)
		s.judgeAt = time.Now().Add(e.grace())
	}
}

// settled is for when nothing is open any more.
func (s *session) settled(now time.Time, measured bool) {
	e := s.e
	since := later(s.doubted, s.reopened)
	if s.inner != nil {
		// No watch is late with what there was before it: where the brake has held it
		// back that may be minutes.
		since = later(since, s.inner.opened)
	}
	took := now.Sub(since)
	s.doubted, s.judgeAt, s.graceUntil, s.reopened = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if s.inner == nil && s.opening == nil {
		s.retryAt = later(now, e.brake.until) // which nobody would do now
	}
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
