package main

import (
	"context"
	"time"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

const controlName = "none"

// startControl starts an installation that no fault touches, on the shared control
// plane, and lets it work until endControl. What a change waits for there is what the
// machine adds, and is allowed for everywhere.
func (l *lab) startControl(ctx context.Context) error {
	p, err := l.sharedPlane()
	if err != nil {
		return err
	}
	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: p.Config()})
	if err != nil {
		return err
	}
	i, err := l.install(ctx, p, proxy, nil)
	if err != nil {
		proxy.Close()
		return err
	}
	s := &scenario{name: controlName, fault: "none: what the machine adds"}
	t := &trial{installation: i, scenario: s, book: &book{}, observer: &observer{}, result: &result{scenario: s}}
	t.writer = &writer{i: i, book: t.book}
	l.control = t
	if err := t.prepare(ctx, options{}); err != nil {
		return err
	}
	t.begin()
	return nil
}

// endControl returns what was measured.
func (l *lab) endControl() *result {
	t := l.control
	t.lift()
	t.sum()
	t.end()
	t.proxy.Close()
	t.result.lost = 0 // The last changes were still on their way.
	return t.result
}

// slack is the longest that a change without a fault waited whose wait falls into a span
// of time.
func (l *lab) slack(from, to time.Time) time.Duration {
	return l.control.book.longest(product, from, to)
}
