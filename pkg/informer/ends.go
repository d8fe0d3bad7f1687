package informer

import (
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// shortWatch is how long a watch without any event has to last for its end to be
// nothing special. Load balancers end idle connections after half a minute and more.
const shortWatch = 10 * time.Second

// ended handles the end of the inner watch, with an ERROR if that is not nil.
func (s *session) ended(failure *watch.Event) {
	now := time.Now()
	w := s.inner
	s.drop()
	var err error
	if failure != nil {
		err = apierrors.FromObject(failure.Object)
	}
	broke := err == nil || apierrors.HasStatusCause(err, brokenWatch)
	switch {
	case broke && s.e.connection.cutSince(w.opened):
		s.cutOff()
	case s.initial:
		s.initialEnded(failure, err, w)
	case s.polling: // the next round opens another
		if err != nil && startIsGone(err) {
			s.trialFrom = ""
		}
		s.e.log().V(2).Info("A watch has ended that was tried while polling", "after", now.Sub(w.opened).Round(time.Millisecond), "err", err)
	case broke && (!w.heard.IsZero() || now.Sub(w.opened) >= shortWatch):
		// Watched again from where it ended. A stream that breaks (HTTP/2 reset,
		// connection lost) is handed on as an ERROR by client-go, which makes the
		// Reflector list; nothing was lost up to there. If it broke for what comes
		// next, then the next watch breaks at once.
		s.over = true
	case err != nil && apierrors.IsTooManyRequests(err):
		s.pass(*failure) // the Reflector's own backoff
	case s.e.brake.pass(now):
		if failure != nil {
			s.pass(*failure)
		}
		s.over = true
	default:
		s.fallBack(restartEarly, "watches end at once", err)
	}
}

// cutOff goes on after a watch that we have cut ourselves, for another namespace of the
// Informer, which shares the connection. Nothing is known against it.
func (s *session) cutOff() {
	switch {
	case s.initial:
		s.over = true // anew: what has come says nothing
	case s.polling: // the next round opens another
	default:
		s.openNext(s.e.from, watchSeconds())
	}
}

// pass hands an ERROR on.
func (s *session) pass(failure watch.Event) {
	s.l.saw(failure, s.initial)
	s.send(failure)
	s.over = true
}

// refused handles that a watch that was reopened, or answered late, is refused.
func (s *session) refused(err error) {
	began := time.Now()
	if s.opening != nil {
		began = s.opening.began
	}
	s.drop()
	if !errors.Is(err, errNotAnswered) && classify(err) == Unreachable && s.e.connection.cutSince(began) {
		s.cutOff()
		return
	}
	if errors.Is(err, errNotAnswered) {
		s.e.connection.renew(openTimeout) // the next one would be sent over the same
	}
	switch {
	case s.initial:
		if errors.Is(err, errNotAnswered) {
			s.l.condition.failed(err) // the list that follows may not be either, for long
		}
		if isRetried(err) {
			s.l.condition.failed(err)
			if helpsToWait(err) {
				s.l.hold(err)
				s.over = true
				return
			}
			err = errBehind
		}
		s.fail(s.failedToOpen(err))
	case s.polling:
		if startIsGone(err) {
			s.trialFrom = ""
		}
		s.e.log().V(2).Info("A watch is refused that was tried while polling", "err", err)
	case startIsGone(err) && s.e.brake.pass(time.Now()):
		s.fail(err)
	case startIsGone(err):
		s.fallBack(restartEarly, "watches are refused", err)
	default:
		// The Reflector tries again, from where the last one has got to. It is not told
		// why, so that it does not list for it.
		if !errors.Is(err, errNotAnswered) || !s.answeredAt.After(began) {
			s.l.condition.failed(err)
		}
		if isRetried(err) {
			s.l.hold(err)
		}
		s.over = true
	}
}

// fallBack is for when no watch works: polling, or if that is off another try when
// the brake allows.
func (s *session) fallBack(reason, message string, err error) {
	if err != nil {
		message += ": " + words(err)
	}
	if s.e.pollInterval > 0 {
		s.poll(message)
		return
	}
	s.e.enter(StateDeaf, message)
	s.drop()
	s.e.restarted(reason)
	s.retryAt = s.e.brake.until
}

// startIsGone reports whether an error says that a list or watch cannot begin where
// it should: too old, or ahead of the API server.
func startIsGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || isTooLarge(err)
}

// isTooLarge is client-go's: whatever it takes for that it answers by another
// WatchList at once.
func isTooLarge(err error) bool {
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return true
	}
	status := apierrors.APIStatus(nil)
	if !apierrors.IsTimeout(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Message == tooLarge { // API servers of 1.17 and 1.18
			return true
		}
	}
	return strings.Contains(status.Status().Message, tooLarge) // before
}

const tooLarge = "Too large resource version"
