package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A WatchList is over with the bookmark that ends the initial events. The Reflector
// waits for that bookmark for as long as the stream lasts, tries again when it ends,
// and never lists instead (client-go 0.37, kubernetes/kubernetes#140890). It must not
// be answered with 410 either: it repeats that at once, without any backoff. Any
// other error makes it list.

const (
	// beginAfter is how long a WatchList may say nothing before it is asked whether
	// another one would.
	beginAfter = time.Second
	// initialPause is how long the initial events do not pause.
	initialPause = time.Second
	// initialFor is how long they may take at any rate.
	initialFor = 5 * time.Minute
)

// errWatchList is such an error.
var errWatchList = errors.New("WatchLists do not come to their end here, listing instead")

// errNotAnswered is for a watch that the API server has not so much as accepted.
var errNotAnswered = errors.New("the API server does not answer")

// errRewound ends a watch whose revisions are of another history, errLeftOut one that
// does not bring what it has passed. Both make the Reflector list.
var (
	errRewound = expire("the API server was set back to an older revision")
	errLeftOut = expire("the watch has left out an event")
)

func expire(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: message,
	}}
}

// refuseWatchLists returns an error while this resource is to be listed.
func (e *ear) refuseWatchLists() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().Before(e.listUntil) {
		return errWatchList
	}
	return nil
}

// listInstead makes this resource list for a while.
func (e *ear) listInstead(reason string, silent bool) {
	e.restarted(restartWatchList)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listUntil, e.cut, e.silent = time.Now().Add(listFor), 0, silent
	e.logger.Info("WatchList does not come to its end, listing instead", "reason", reason, "for", listFor)
}

// takeSilent reports, once, that the WatchList before has delivered nothing.
func (e *ear) takeSilent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.silent
	e.silent = false
	return was
}

// startAnew makes the next list start from no revision, after a WatchList could not
// begin at the Reflector's, and returns what it is told: it must not see a 410.
func (e *ear) startAnew(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fresh = true
	return fmt.Errorf("listing from the newest revision instead: %s", words(err))
}

// initialUntil is until when the initial events have to go on, zero if they are over.
func (s *session) initialUntil() time.Time {
	if !s.initial {
		return time.Time{}
	}
	silence := s.e.watchListSilence()
	var last time.Time
	switch {
	case s.opening != nil:
		last = s.opening.began
	case s.inner == nil:
		return time.Time{}
	case s.inner.heard.IsZero():
		last = s.inner.opened
	default:
		last = s.inner.heard
	}
	if !s.notAdded.IsZero() {
		// Changes are streamed already. They may go on for ever.
		return earlier(last.Add(silence), s.notAdded.Add(silence))
	}
	return last.Add(silence)
}

// beginsAt is when to ask whether WatchLists begin, zero for not.
func (s *session) beginsAt() time.Time {
	if !s.initial || s.e.probeAfter == 0 || s.begun != nil || s.inner != nil && !s.inner.heard.IsZero() {
		return time.Time{}
	}
	return s.asked.Add(beginAfter)
}

// askBegins asks that, once. The first initial event makes it idle.
func (s *session) askBegins() {
	var ctx context.Context
	ctx, s.unask = context.WithCancel(s.ctx)
	s.begun = make(chan answer, 1)
	s.asking.Go(func() { s.begun <- s.e.asker.begins(ctx) })
}

// beginsAnswered handles the answer. Only where another WatchList is as silent, and a
// list is not, is a list known to be sooner: one that is merely slow to begin has its
// time.
func (s *session) beginsAnswered(a answer) {
	s.unask()
	s.e.log().V(5).Info("Asked whether WatchLists begin", "answer", a.kind, "err", a.err)
	if a.kind != mute || !s.initial || s.inner != nil && !s.inner.heard.IsZero() {
		return
	}
	s.l.condition.reached()
	s.endWatchList("it has delivered nothing, nor does another one", true)
}

// refuseWatchList ends a WatchList that does not end itself.
func (s *session) refuseWatchList() {
	if s.opening != nil { // that says nothing about WatchLists
		s.refused(errNotAnswered)
		return
	}
	reason, silent := "it has stood still", s.inner.heard.IsZero()
	switch {
	case silent:
		reason = "it has delivered nothing"
	case !s.inner.ends.IsZero() && !time.Now().Before(s.inner.ends):
		reason = "it has outlived its timeout"
	case !s.notAdded.IsZero():
		reason = "changes come without the bookmark that ends the initial events"
	}
	s.endWatchList(reason, silent)
}

// endWatchList makes the Reflector list.
func (s *session) endWatchList(reason string, silent bool) {
	s.e.listInstead(reason, silent)
	s.drop()
	s.e.connection.Close()
	s.fail(errWatchList)
}

// initialEvent hands on one of a WatchList's initial events; before is when the one
// before came. What comes after a pause, or is not ADDED, is taken for a change: the
// API server sends the initial events from memory, one after the other.
func (s *session) initialEvent(event watch.Event, o metav1.Object, before, now time.Time) {
	end := event.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	paused := !before.IsZero() && now.Sub(before) >= initialPause
	if s.notAdded.IsZero() && (event.Type != watch.Added || paused || !before.IsZero() && now.Sub(s.inner.opened) >= initialFor) {
		s.notAdded = now
	}
	if s.unask != nil {
		s.unask()
	}
	s.l.saw(event, true)
	if !s.send(event) {
		return
	}
	if !end {
		s.fill.see(event.Type, o)
		return
	}
	s.initial = false
	// The watch begins here. One that ends at once, each time, has delivered nothing.
	s.inner.opened, s.inner.heard = now, time.Time{}
	s.fill.commit(o.GetResourceVersion())
	s.e.from = o.GetResourceVersion()
	s.e.polled.Store(false)
	s.e.filled()
	s.hearing()
	s.again()
}

// initialEnded handles the end of a WatchList before that of its initial events.
func (s *session) initialEnded(failure *watch.Event, err error, w *innerWatch) {
	switch {
	case err != nil && startIsGone(err):
		s.fail(s.e.startAnew(err))
	case failure != nil:
		s.pass(*failure)
	default:
		s.over = true
		s.e.mu.Lock()
		s.e.cut++
		cut := s.e.cut
		s.e.mu.Unlock()
		if cut > 1 {
			s.e.listInstead("it has ended before its end, twice", w.heard.IsZero())
			s.fail(errWatchList)
		}
	}
}
