package informer

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
)

// A ListerWatcher with a selector of its own leaves out what audits hold, which looks
// like a watch that is deaf, again and again. It cannot be told by looking at it, nor
// by one list: an object may have been deleted just then. But one that was in an audit,
// then not in the ListerWatcher's list, and is in the next audit in the same version
// was there all the time.
//
// Twice is believed. Hearing cannot help such a copy; it is left to client-go, and its
// state says so.

// leftOut is an object that the ListerWatcher does not list.
type leftOut struct {
	mark
	times int
}

// leaves notes what was not in the ListerWatcher's own lists, in a round of polling
// that has asked for it.
func (e *ear) leaves(left map[cache.ObjectName]mark) {
	if _, whole := e.feeder.(*tolerant); whole {
		return // what it leaves out is in the quarantine
	}
	now := make(map[cache.ObjectName]leftOut, len(left))
	for key, m := range left {
		times := 1
		if before, ok := e.left[key]; ok && before.mark == m {
			times += before.times
		}
		now[key] = leftOut{m, times}
	}
	e.left = now
}

// tooNarrow returns an object that the ListerWatcher is known to leave out, after an
// audit.
func (e *ear) tooNarrow(a audited) (cache.ObjectName, bool) {
	for _, d := range a.differences {
		if before, ok := e.left[d.key]; ok && before.mark == d.audited && before.times > 1 {
			return d.key, true
		}
	}
	return cache.ObjectName{}, false
}

// resign makes this copy one without hearing.
func (s *session) resign(example cache.ObjectName) {
	e := s.e
	e.enter(StateDeaf, fmt.Sprintf("Config.ListerWatcher does not list all that there is, for example not %s: "+
		"take its selector away and leave out what is not wanted in handlers, or leave Config.Hearing empty. Nothing is made sure of until the process is started anew", example))
	e.mu.Lock()
	e.resigned = true
	e.mu.Unlock()
	for _, name := range checkNames {
		e.uncheck(name)
	}
	e.probeAfter, e.auditInterval, e.pollInterval, e.left = 0, 0, 0, nil
	e.ledger.forget()
	s.polling, s.seenAt, s.pollAt = false, nil, time.Time{}
	s.doubted, s.judgeAt, s.graceUntil, s.reopened = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if s.inner == nil && s.opening == nil {
		s.retryAt = later(time.Now(), e.brake.until)
	}
}
