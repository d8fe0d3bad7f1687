package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// fetchSingly is up to how many differences are fetched one by one, more of them
	// by one list.
	fetchSingly = 20
	// pollObjects is up to how many objects pollInterval holds; with more of them it
	// grows in proportion.
	pollObjects = 5000
	// trialSeconds is the shortest life of a watch that is tried while polling: the
	// API server sends no bookmark to one of 1 or 2 s.
	trialSeconds = 3
)

// Polling is an audit that delivers: what a list of metadata has and was not
// delivered is fetched, handed to the Reflector as the events that no watch has
// brought, and a bookmark with the list's revision follows. The Reflector notices
// nothing. To let it list instead would leave the time between lists to its own
// backoff, which grows to a minute.
//
// Each round opens another watch too, on a new connection. The first one that
// delivers anything ends the polling.

// seen is what polling has delivered.
type seen struct {
	resourceVersion string
	at              time.Time
}

// fetched is what a round has to deliver.
type fetched struct {
	found  audited
	events []watch.Event
	left   map[cache.ObjectName]mark // asked for, and not in what was fetched
	err    error
}

// poll begins to poll.
func (s *session) poll(reason string) {
	e := s.e
	s.doubted, s.judgeAt, s.graceUntil, s.reopened = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	s.slow, e.lag = false, 0
	s.polling, s.pollAt, s.trialFrom = true, time.Now(), ""
	s.seenAt = map[cache.ObjectName]seen{}
	e.polledTo = ""
	message := reason
	if every := s.pollEvery(); every > e.pollInterval {
		message = fmt.Sprintf("%s; for %d objects every %s", reason, e.record.len(), every.Round(time.Second))
	}
	e.enter(StatePolling, message)
}

// pollEvery is the time between rounds.
func (s *session) pollEvery() time.Duration {
	interval := s.e.pollInterval
	return max(interval, interval*time.Duration(s.e.record.len())/pollObjects)
}

func (s *session) pollTime() time.Time {
	if !s.polling || s.busy {
		return time.Time{}
	}
	return s.pollAt
}

// compared fetches what a round has found.
func (s *session) compared(a auditResult) {
	if !a.polled {
		return // of before; the first round follows
	}
	if a.err != nil {
		s.endRound()
		return
	}
	s.busy = true
	s.asking.Go(func() {
		events, left, err := s.e.fetch(s.ctx, a.audited)
		s.fetched <- fetched{a.audited, events, left, err}
	})
}

// deliver hands on what a round has fetched.
func (s *session) deliver(f fetched) {
	s.busy = false
	e := s.e
	if !s.polling {
		s.again() // a watch was faster; what it has not brought is still open
		return
	}
	e.polled.Store(true)
	for _, event := range f.events {
		o := event.Object.(metav1.Object)
		if e.superseded(event, o) {
			continue
		}
		key := cache.MetaObjectToName(o)
		if !s.send(event) {
			return
		}
		if event.Type == watch.Deleted {
			e.record.drop(key)
		} else {
			e.record.put(key, markOf(o))
		}
		s.seenAt[key] = seen{o.GetResourceVersion(), time.Now()}
	}
	if f.err != nil {
		if s.ctx.Err() == nil {
			e.checked(checkPolling, f.err) // the audit before was answered
		}
		s.endRound()
		return
	}
	e.leaves(f.left)
	revision := f.found.listing.resourceVersion
	if len(f.events) > 0 && comparable(e.from, revision) {
		s.trialFrom = e.from
	}
	if !s.send(watch.Event{Type: watch.Bookmark, Object: s.bookmark(revision)}) {
		return
	}
	e.arrived(revision)
	maps.DeleteFunc(s.seenAt, func(_ cache.ObjectName, o seen) bool { return time.Since(o.at) > max(slowFor, 2*s.pollEvery()) })
	e.polledTo = revision
	s.l.heard(revision)
	s.passedCheck(checkPolling)
	s.endRound()
}

// endRound tries another watch unless the one before is still young.
//
// It begins before what polling has found last, if that is known and not too old,
// so that a watch that works has something to deliver at once. Else it would have to
// wait for the next change, or for a bookmark, which the API server sends only if
// anything has changed in the cluster.
func (s *session) endRound() {
	every := s.pollEvery()
	s.pollAt = time.Now().Add(every)
	life := max(every-2*time.Second, trialSeconds*time.Second)
	var began time.Time
	switch {
	case s.opening != nil:
		began = s.opening.began
	case s.inner != nil:
		began = s.inner.opened
	}
	if !began.IsZero() && time.Since(began) < life || s.e.from == "" {
		return
	}
	s.e.restarted(restartPolling)
	s.drop()
	s.e.connection.renew(life)
	s.openNext(cmp.Or(s.trialFrom, s.e.from), int64(life.Seconds()))
}

// heardAgain ends the polling: a watch has delivered its first event.
func (s *session) heardAgain(event watch.Event, o metav1.Object, now time.Time) {
	e := s.e
	if before, ok := s.seenAt[cache.MetaObjectToName(o)]; ok && event.Type != watch.Bookmark && atLeast(before.resourceVersion, o.GetResourceVersion()) {
		// Polling was faster.
		since := before.at
		if s.inner.opened.After(since) {
			since = s.inner.opened
		}
		if late := now.Sub(since); late > e.patience() {
			if 2*late > e.pollInterval {
				return
			}
			e.lag, e.lateAt = late, now
		}
	}
	s.polling, s.seenAt, s.pollAt = false, nil, time.Time{}
	e.uncheck(checkPolling)
	s.asked = now
	if e.lag > 0 {
		e.enter(StateDelayed, fmt.Sprintf("news take %s to arrive", e.lag.Round(time.Millisecond)))
		return
	}
	e.enter(StateHearing, "")
}

// superseded reports whether the Reflector has been given the object of event in
// the same version or a later one. Never a version below the one delivered: after
// polling a watch begins with what polling has brought.
func (e *ear) superseded(event watch.Event, o metav1.Object) bool {
	if event.Type == watch.Bookmark {
		return false
	}
	got, ok := e.record.get(cache.MetaObjectToName(o))
	if !ok {
		return event.Type == watch.Deleted && e.polled.Load()
	}
	if event.Type == watch.Deleted {
		return below(o.GetResourceVersion(), got.resourceVersion)
	}
	return atLeast(got.resourceVersion, o.GetResourceVersion())
}

// bygone reports whether event is part of how that came to be which polling has
// delivered as a whole. An object that is gone would else be back for as long as it
// takes the watch to tell that again.
func (e *ear) bygone(event watch.Event, o metav1.Object) bool {
	return event.Type != watch.Bookmark && atLeast(e.polledTo, o.GetResourceVersion())
}

// fetch gets what was not delivered, as the events that should have come. left is what
// the audit has found and the ListerWatcher does not list.
func (e *ear) fetch(ctx context.Context, found audited) (events []watch.Event, left map[cache.ObjectName]mark, err error) {
	left = map[cache.ObjectName]mark{}
	missing := map[cache.ObjectName]difference{}
	for _, d := range found.differences {
		if !d.gone() {
			missing[d.key], left[d.key] = d, d.audited
		}
	}
	collect := func(event watch.Event) {
		key := cache.MetaObjectToName(event.Object.(metav1.Object))
		delete(left, key)
		d := missing[key]
		switch {
		case event.Type == watch.Deleted:
		case d.delivered == (mark{}):
			event.Type = watch.Added
		case d.delivered.uid != "" && event.Object.(metav1.Object).GetUID() != d.delivered.uid:
			events = append(events, e.feeder.gone(ctx, key, d.delivered, event.Object.(metav1.Object).GetResourceVersion()))
			event.Type = watch.Added
		}
		events = append(events, event)
	}
	wanted := func(key cache.ObjectName) bool { _, is := missing[key]; return is }
	// Over the resource's own connection, which may be what is dead: the end of the
	// round leaves it.
	feed := func(opts metav1.ListOptions) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, pageTimeout)
		defer cancel()
		next, err := e.feeder.feed(ctx, opts, wanted, collect)
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return "", fmt.Errorf("no answer within %s: %w", pageTimeout, err)
		case err == nil && next != "" && next == opts.Continue:
			return "", errRepeated
		}
		return next, err
	}
	if len(missing) <= fetchSingly {
		for key := range missing {
			selector := "metadata.name=" + key.Name
			if key.Namespace != "" {
				selector += ",metadata.namespace=" + key.Namespace
			}
			if _, err = feed(metav1.ListOptions{FieldSelector: selector}); err != nil {
				break
			}
		}
	} else {
		opts := metav1.ListOptions{Limit: pageSize}
		for more := true; more && err == nil; more = opts.Continue != "" {
			opts.Continue, err = feed(opts)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	for _, d := range found.differences {
		if d.gone() {
			events = append(events, e.feeder.gone(ctx, d.key, d.delivered, d.revision))
		}
	}
	// In the order in which they would have come, as far as that is known.
	slices.SortStableFunc(events, func(a, b watch.Event) int {
		order, _ := resourceversion.CompareResourceVersion(a.Object.(metav1.Object).GetResourceVersion(), b.Object.(metav1.Object).GetResourceVersion())
		return order
	})
	return events, left, nil
}
