package informer

import (
	"context"
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// An API server that does not answer ends no watch and refuses none: a session would
// go on in silence. So it is what questions find, or where there are none audits, that
// makes the state StateUnlistable for being Unreachable; whatever is heard after that
// ends it. It is no reason to do anything about the watch.
//
// What fails otherwise, as an audit that is not permitted, does not say that anything
// is missing, only that nobody would know. It is told in Snapshot.Message and the log.

const (
	// listTimeout bounds one list of the Reflector's, or page of one. The API server
	// gives it a minute (--request-timeout) unless told otherwise.
	listTimeout = 5 * time.Minute
	// listProbe is how long a list may take before it is asked whether the API server
	// answers at all, where ProbeAfter does not say.
	listProbe = 30 * time.Second
)

// The checks that may fail, in the order of Snapshot.Message.
var checkNames = []string{checkQuestions, checkAudits, checkPolling}

const (
	checkQuestions = "questions"
	checkAudits    = "audits"
	checkPolling   = "polls"
)

// check is how one of them is doing.
type check struct {
	message string // "" while it works
	since   time.Time
	named   time.Time // logged last
	spoken  bool      // logged since it works no more
}

// checked notes how a check has gone. It is logged when it fails first, every
// remindAfter at most while it does and however often it begins anew, and when it works
// again.
func (e *ear) checked(name string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.checks[name]
	now := time.Now()
	if err == nil {
		if c.spoken {
			e.logger.Info("Can make sure again that nothing is missed", "check", name, "after", now.Sub(c.since).Round(time.Second))
		}
		e.checks[name] = check{named: c.named}
		return
	}
	if c.message == "" {
		c.since = now
	}
	c.message = words(err)
	if c.named.IsZero() || now.Sub(c.named) >= remindAfter {
		c.named, c.spoken = now, true
		e.logger.Error(nil, "Cannot make sure that nothing is missed", "check", name, "message", c.message, "since", c.since)
	}
	e.checks[name] = c
}

// uncheck drops a check that is made no more.
func (e *ear) uncheck(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checks[name] = check{named: e.checks[name].named}
}

// failing says which checks fail and why. mu is held.
func (e *ear) failing() string {
	var all []string
	for _, name := range checkNames {
		if c := e.checks[name]; c.message != "" {
			all = append(all, name+" fail: "+c.message)
		}
	}
	return strings.Join(all, "; ")
}

// failedCheck notes a check that has failed since began: as one that nothing can be
// reached for, or as any other.
func (s *session) failedCheck(name string, err error, began time.Time) {
	switch {
	case s.ctx.Err() != nil: // it was we who ended it
	case classify(err) != Unreachable:
		s.answeredAt = time.Now()
		s.l.condition.reached()
		s.e.checked(name, err)
	case s.inner != nil && s.inner.heard.After(began), name == checkAudits && s.e.probeAfter > 0 && !s.l.condition.unreachable():
		// The watch knows better, or the next question will: an audit is a larger
		// request and may take too long for itself.
		s.e.checked(name, err)
	default:
		s.l.condition.failed(err)
		if name == checkPolling {
			s.e.checked(name, err) // a watch that is opened and says nothing ends the above
		}
	}
}

// passedCheck notes one that was answered.
func (s *session) passedCheck(name string) {
	s.answeredAt = time.Now()
	s.l.condition.reached()
	s.e.checked(name, nil)
}

// reached notes that the API server answers. Whether it lets this resource be watched
// is another question.
func (c *condition) reached() {
	if c.unreachable() {
		c.succeeded()
	}
}

func (c *condition) unreachable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason == Unreachable
}

// errListNotAnswered ends a list.
var errListNotAnswered = errors.New("the API server has not answered a list to its end")

// boundedList lists for a Reflector, which would wait for ever: on a connection that
// is half dead nothing ends a list. While it takes long it is asked whether the API
// server answers anything.
func (l *listWatch) boundedList(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	e := l.ear
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errListNotAnswered)
	watched := make(chan struct{})
	defer func() {
		cancel()
		<-watched
	}()
	go func() {
		defer close(watched)
		every := listProbe
		if e.probeAfter > 0 {
			every = e.probeAfter
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
			}
			if err := e.asker.reach(ctx); err == nil {
				l.condition.reached()
			} else if ctx.Err() == nil {
				l.condition.failed(err)
			}
		}
	}()
	list, err := l.inner.ListWithContext(ctx, opts)
	if err != nil && errors.Is(context.Cause(ctx), errListNotAnswered) {
		klog.FromContext(ctx).V(2).Info("A list was given up", "err", err)
		e.connection.Close() // it may be what is dead
		return nil, errListNotAnswered
	}
	return list, err
}
