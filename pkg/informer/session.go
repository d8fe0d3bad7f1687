package informer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// session is a watch as the Reflector holds it. The watch of the API server behind
// it, the inner one, may be replaced, or its place be taken by polling, and the
// Reflector does not notice: no relist, no gap. One goroutine, run, does all that
// is done; what takes time runs beside it and reports back.
type session struct {
	l     *listWatch
	e     *ear
	ctx   context.Context
	stop  context.CancelFunc
	out   chan watch.Event
	over  bool  // the Reflector's watch is to end
	early error // why the first inner watch was refused, where the Reflector is not told

	inner    *innerWatch    // nil while there is none
	opening  *request       // nil unless one is being opened
	asking   sync.WaitGroup // questions, audits and what polling fetches
	routines sync.WaitGroup // the rest

	// initial is set until a WatchList's initial events have ended.
	initial  bool
	fill     *fill
	begun    chan answer        // whether WatchLists begin; nil: not asked
	unask    context.CancelFunc // ends that question
	notAdded time.Time          // when the first event came that is taken for a change

	// What is doubtful: see doubt.go.
	busy       bool      // a question or an audit is under way; one at a time
	began      time.Time // when that was asked
	answeredAt time.Time // when the API server has answered one last
	answers    chan answer
	audits     chan auditResult
	asked      time.Time // last answer
	suspect    bool      // the WatchList before has delivered nothing: ask at once
	judgeAt    time.Time // zero: nothing is open
	doubted    time.Time // since when something is
	graceUntil time.Time // what was opened last has until then
	reopened   time.Time // zero: not since doubts came up
	slow       bool      // reopened because it was slow, once

	// Polling: see poll.go.
	polling   bool
	pollAt    time.Time
	fetched   chan fetched
	seenAt    map[cache.ObjectName]seen // delivered by polling
	trialFrom string                    // where to try watches from; "": from what was polled last
	retryAt   time.Time                 // when to open the next watch, without polling
}

// innerWatch is a watch of the API server.
type innerWatch struct {
	watch.Interface
	cancel context.CancelFunc
	opened time.Time
	ends   time.Time // when the API server should have ended it
	heard  time.Time // last frame; zero: none
}

// request is one for a watch that has not been answered.
type request struct {
	done   chan opened
	cancel context.CancelFunc
	began  time.Time
	life   time.Duration
}

type opened struct {
	w   watch.Interface
	err error
}

func sendsInitialEvents(opts metav1.ListOptions) bool {
	return opts.SendInitialEvents != nil && *opts.SendInitialEvents
}

// listen begins a session. It returns the API server's error if it answers soon;
// else inflight is done when the session has ended.
func (l *listWatch) listen(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s := &session{
		l: l, e: l.ear, out: make(chan watch.Event), initial: sendsInitialEvents(opts),
		answers: make(chan answer, 1), audits: make(chan auditResult, 1), fetched: make(chan fetched, 1),
	}
	s.ctx, s.stop = context.WithCancel(withInforming(ctx, ctx))
	s.e.turn.Lock()
	if s.initial {
		s.fill, s.e.from = s.e.record.begin(), ""
		opts = s.e.listing(opts)
	} else if s.e.from = opts.ResourceVersion; s.e.from == "0" {
		s.e.from = ""
	}
	s.asked = time.Now()
	s.open(opts)
	patience := openPatience
	if s.initial && s.e.probeAfter > 0 {
		patience = beginAfter
	}
	patient := time.NewTimer(patience)
	defer patient.Stop()
	select {
	case o := <-s.opening.done:
		switch {
		case o.err == nil:
			s.took(o.w)
		case !s.initial && startIsGone(o.err) && !s.e.brake.pass(time.Now()):
			s.opening.cancel()
			s.opening, s.early = nil, o.err
		default:
			s.stop()
			s.e.turn.Unlock()
			return nil, s.failedToOpen(o.err)
		}
	case <-patient.C:
	case <-ctx.Done():
	}
	go func() {
		defer l.inflight.Done()
		s.run()
	}()
	return s, nil
}

// failedToOpen returns what the Reflector is told of a watch that was refused.
func (s *session) failedToOpen(err error) error {
	if s.initial && startIsGone(err) {
		return s.e.startAnew(err)
	}
	return err
}

// ResultChan is there for watch.Interface.
func (s *session) ResultChan() <-chan watch.Event { return s.out }

// Stop is there for watch.Interface.
func (s *session) Stop() { s.stop() }

// run returns when the Reflector's watch has ended, and with it all that the session
// has started.
func (s *session) run() {
	defer func() {
		s.stop()
		close(s.out)
		s.drop()
		s.asking.Wait() // the next session may ask
		s.e.turn.Unlock()
		s.routines.Wait()
	}()
	s.begin()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !s.over {
		timer.Reset(s.untilNext())
		var frames <-chan watch.Event
		var opened chan opened
		if s.inner != nil {
			frames = s.inner.ResultChan()
		}
		if s.opening != nil {
			opened = s.opening.done
		}
		select {
		case <-s.ctx.Done():
			return
		case event, ok := <-frames:
			if ok {
				s.frame(event)
			} else {
				s.ended(nil)
			}
		case o := <-opened:
			if o.err == nil {
				s.took(o.w)
				break
			}
			s.opening.cancel()
			s.opening = nil
			s.refused(o.err)
		case a := <-s.answers:
			s.answered(a)
		case a := <-s.audits:
			s.audited(a)
		case a := <-s.begun:
			s.beginsAnswered(a)
		case f := <-s.fetched:
			s.deliver(f)
		case reason := <-s.e.alarm:
			s.alarmed(reason)
		case <-timer.C:
			s.tick(time.Now())
		}
	}
}

// begin sets the state of a watch that has just been asked for.
func (s *session) begin() {
	e := s.e
	if e.auditAt.IsZero() && e.auditInterval > 0 {
		e.auditAt = time.Now().Add(e.hearing.auditAfter())
	}
	if s.initial {
		return
	}
	if s.early != nil {
		s.fallBack(restartEarly, "watches are refused", s.early)
		return
	}
	if silent := e.takeSilent(); silent && e.probeAfter > 0 {
		s.suspect = true
	} else if silent && e.pollInterval > 0 {
		s.poll("the WatchList before has delivered nothing")
		return
	}
	s.hearing()
	s.again()
}

// hearing is the state of a watch that nothing is known against; a slow one does
// not become faster because it is another one.
func (s *session) hearing() {
	if s.e.lag == 0 {
		s.e.enter(StateHearing, "")
	}
}

// open asks for a watch.
func (s *session) open(opts metav1.ListOptions) {
	ctx, cancel := context.WithCancel(s.ctx)
	o := &request{done: make(chan opened, 1), cancel: cancel, began: time.Now()}
	if opts.TimeoutSeconds != nil {
		o.life = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	s.opening = o
	s.routines.Go(func() {
		w, err := s.l.inner.WatchWithContext(ctx, opts)
		o.done <- opened{w, err}
	})
}

// openNext asks for a watch from a revision.
func (s *session) openNext(from string, seconds int64) {
	s.l.note(func(c *counts) { c.watches++ })
	s.open(metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(seconds)})
}

// watchSeconds is how long watches last, as the Reflector chooses it.
func watchSeconds() int64 { return 300 + rand.Int64N(300) }

// took makes the watch that was opened the one to listen to.
func (s *session) took(w watch.Interface) {
	now := time.Now()
	s.inner = &innerWatch{Interface: w, cancel: s.opening.cancel, opened: now}
	if s.opening.life > 0 {
		s.inner.ends = now.Add(s.opening.life + endSlack)
	}
	s.opening = nil
	if !s.reopened.IsZero() {
		s.reopened, s.graceUntil = now, later(s.graceUntil, now.Add(s.e.grace()))
	}
	if !s.initial {
		s.l.condition.succeeded()
	}
}

// drop leaves the inner watch, or the request for one, to itself.
func (s *session) drop() {
	if o := s.opening; o != nil {
		s.opening = nil
		o.cancel()
		s.routines.Go(func() {
			if late := <-o.done; late.w != nil {
				discard(late.w)
			}
		})
	}
	if w := s.inner; w != nil {
		s.inner = nil
		w.cancel()
		s.routines.Go(func() { discard(w) })
	}
}

// discard ends a watch and waits for its producer.
func discard(w watch.Interface) {
	w.Stop()
	for range w.ResultChan() { // what nobody waits for any more
	}
}

// frame hands an event on.
func (s *session) frame(event watch.Event) {
	now := time.Now()
	if event.Type == watch.Error {
		s.ended(&event) // which nothing was heard by
		return
	}
	s.l.condition.reached()
	before := s.inner.heard
	s.inner.heard = now
	if now.Sub(s.inner.opened) >= healthyStream {
		s.e.brake.reset()
	}
	o, ok := event.Object.(metav1.Object)
	if !ok {
		s.send(event) // the Reflector complains
		return
	}
	if s.initial {
		s.initialEvent(event, o, before, now)
		return
	}
	switch {
	case !before.IsZero():
	case s.polling:
		s.heardAgain(event, o, now)
	case s.judgeAt.IsZero():
		s.hearing() // one that was opened when the brake allowed
	}
	if s.e.polled.Load() && (s.e.superseded(event, o) || s.e.bygone(event, o)) {
		rv := o.GetResourceVersion()
		if below(rv, s.e.from) {
			rv = s.e.from
		}
		event = watch.Event{Type: watch.Bookmark, Object: s.bookmark(rv)}
		o = event.Object.(metav1.Object)
	}
	s.l.saw(event, false)
	if !s.send(event) {
		return
	}
	s.e.record.see(event.Type, o)
	if rv := o.GetResourceVersion(); rv != "" {
		s.e.from = rv
	}
	if !s.judgeAt.IsZero() {
		s.judgeAt = earlier(s.judgeAt, now.Add(settlePause))
	}
}

// bookmark makes one of the informer's own type: the Reflector drops others.
func (s *session) bookmark(resourceVersion string) object {
	mark := s.e.newObject()
	mark.SetResourceVersion(resourceVersion)
	return mark
}

// send hands an event to the Reflector; false: it has stopped.
func (s *session) send(event watch.Event) bool {
	select {
	case <-s.ctx.Done():
		s.over = true
		return false
	case s.out <- event:
		return true
	}
}

// fail ends the Reflector's watch with an error.
func (s *session) fail(err error) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	event := watch.Event{Type: watch.Error, Object: ptr.To(status.Status())}
	s.l.saw(event, s.initial)
	s.send(event)
	s.over = true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
