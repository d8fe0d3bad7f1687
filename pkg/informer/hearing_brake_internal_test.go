package informer

import (
	"testing"
	"time"
)

// News cannot arrive before there is a watch to bring them. What was missing while the
// brake held back the next watch, and comes at once when that is opened, was not late:
// the state would be delayed for five minutes, and the next change that is missed be
// given twice the time that the brake has taken.
func TestBrakeIsNoLateness(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{PollInterval: -1, AuditInterval: time.Hour}, a, func(i *heardInformer) {
		a.with(func(a *fakeAPI) { a.endAfter, a.frozen = 1200*time.Millisecond, true })
		cutOff(a)
		watches := a.count("watch")
		i.within(30*time.Minute, "a long wait between two watches", func() bool {
			i.wait(2 * time.Minute)
			before := watches
			watches = a.count("watch")
			return watches == before
		})
		a.with(func(a *fakeAPI) { a.endAfter, a.frozen = 0, false })
		// Each audit finds another version missing: the last one does moments before the
		// watch is opened.
		i.within(brakeMax, "a watch", func() bool {
			a.put("x")
			i.parts[0].listWatch.ear.hearing.AuditNow("test")
			i.wait(4 * time.Second)
			return i.current()
		})
		i.wait(10 * time.Second)
		i.expectState(StateHearing)
	})
}

// The same where nothing newer was found meanwhile.
func TestLatenessBeginsWithTheWatch(t *testing.T) {
	hearInBubble(t, HearingConfig{PollInterval: -1}, newFakeAPI(), func(i *heardInformer) {
		now, l := time.Now(), i.parts[0].listWatch
		s := &session{l: l, e: l.ear, doubted: now.Add(-time.Minute), inner: &innerWatch{opened: now.Add(-20 * time.Millisecond)}}
		s.settled(now, true)
		i.expectState(StateHearing)
	})
}
