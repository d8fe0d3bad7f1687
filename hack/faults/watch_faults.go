package main

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

var expired = &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old resource version (by the fault proxy)"}

// mended is what has to hold where one watch is deaf and a new one is not.
func mended(c *checks, s settings) {
	c.actedWithin(s.found())
	c.that(c.r.requests.relists() == 0, "%d relists, want none", c.r.requests.relists())
	c.notRestarted()
	c.nothingLost()
}

// quietly is what has to hold under faults that a healthy stream or a list mends.
func quietly(c *checks, s settings) {
	c.notRestarted()
	c.nothingLost()
	c.streamsAgain(s.back())
}

func watchScenarios() []*scenario {
	watches := faultproxy.Match{Verbs: watchVerb}
	return []*scenario{
		{
			name: "one-watch-frozen", fault: "one informer's watch frozen, all else fine",
			run: under(faultproxy.Rule{Match: webApps("watch"), Scope: faultproxy.OnlyOpen, Freeze: faultproxy.FreezeStream, Permanent: true},
				12*time.Minute, 40*time.Second, options{}),
			check: holds(func(c *checks, s settings) {
				mended(c, s)
				c.onlyReopened("webapps.platform.tejo.dev")
			}),
		},
		{
			name: "half-dead-connection", fault: "the TCP connection of one informer half dead: the proxy answers pings, nothing behind it answers",
			run: halfDead, check: holds(mended),
		},
		{
			name: "silent-connection", fault: "the TCP connection of one informer silent, pings too",
			run: under(faultproxy.Rule{Match: webApps("watch"), Scope: faultproxy.OnlyOpen, Freeze: faultproxy.FreezeConnection, Permanent: true},
				3*time.Minute, 40*time.Second, options{}),
			check: holds(func(c *checks, s settings) {
				c.actedWithin(s.found())
				c.notRestarted()
				c.nothingLost()
			}),
		},
		{
			name: "bookmarks-stripped", fault: "no bookmark comes, while running",
			run:   under(faultproxy.Rule{Match: watches, StripBookmarks: true}, 6*time.Minute, 20*time.Second, options{}),
			check: holds(quietly),
		},
		{
			name: "bookmarks-stripped-start", fault: "no bookmark comes, from the start",
			run:   startUnder(faultproxy.Rule{Match: watches, StripBookmarks: true}, 6*time.Minute, 70*time.Second),
			check: holds(startsUnder),
		},
		{
			name: "initial-end-stripped-start", fault: "the bookmark that ends the initial events does not come, from the start",
			run:   startUnder(faultproxy.Rule{Match: watches, StripInitialEventsEnd: true}, 6*time.Minute, 70*time.Second),
			check: holds(startsUnder),
		},
		{
			name: "eof-at-once", fault: "every watch answered with 200 and an end at once",
			run:   under(faultproxy.Rule{Match: watches, Close: faultproxy.EOF}, 6*time.Minute, 30*time.Second, options{}),
			check: holds(servedByPolling),
		},
		{
			name: "eof-after-1.2s", fault: "every watch answered with 200, no event, and an end after 1.2 s",
			run: under(faultproxy.Rule{Match: watches, Freeze: faultproxy.FreezeStream, Close: faultproxy.EOF, After: 1200 * time.Millisecond},
				6*time.Minute, 30*time.Second, options{}),
			check: holds(servedByPolling),
		},
		{
			name: "410-once", fault: "410 in the stream of every watch, once",
			run: under(faultproxy.Rule{Match: watches, Scope: faultproxy.OnlyOpen, InjectError: expired}, 2*time.Minute, 20*time.Second, options{}),
			check: holds(func(c *checks, s settings) {
				quietly(c, s)
				c.that(c.r.requests.relists() <= 4, "%d relists, want one for each of the 4 kinds", c.r.requests.relists())
			}),
		},
		{
			name: "410-always", fault: "410 in the stream of every watch, always",
			// client-go's own informer asks thousands of times a second then.
			run:   under(faultproxy.Rule{Match: watches, InjectError: expired}, 6*time.Minute, 40*time.Second, options{noPlain: true}),
			check: holds(servedByPolling),
		},
		{
			name: "buffered", fault: "bytes of watches held back until there are 32 KiB, or for 90 s (-short: 9 s)", run: buffered,
			check: holds(func(c *checks, s settings) {
				c.notRestarted()
				c.nothingLost()
				c.streamsAgain(2 * time.Minute)
			}),
		},
		{
			name: "opaque-versions", fault: "resourceVersions that cannot be compared; then one informer's watch frozen",
			// Leases are written by protobuf, in which they cannot be put back.
			proxy: faultproxy.Config{OpaqueResourceVersions: true, ClearResources: []string{"leases"}},
			run: under(faultproxy.Rule{Match: webApps("watch"), Scope: faultproxy.OnlyOpen, Freeze: faultproxy.FreezeStream, Permanent: true},
				5*time.Minute, 40*time.Second, options{}),
			check: holds(mended),
		},
	}
}

// startsUnder is for processes that start while WatchLists do not end.
func startsUnder(c *checks, s settings) {
	quietly(c, s)
	// The bound on a WatchList is the product's own and has no flag.
	c.actedWithin(75 * time.Second)
}

// servedByPolling is for faults under which no watch works.
func servedByPolling(c *checks, s settings) {
	quietly(c, s)
	c.settledWithin(s.polledAge(), s)
	// Each of the four kinds opens a watch with every round, after what it takes to
	// give up: a watch, a WatchList, a list.
	n := c.r.requests.relists() + c.r.requests.watches
	limit := 4 * (6 + int(c.r.lifted.Sub(c.r.began)/s.pollInterval))
	c.that(n <= limit, "%d lists and watches, want at most %d", n, limit)
}

func buffered(ctx context.Context, t *trial) error {
	rule := faultproxy.Rule{
		Match: faultproxy.Match{Verbs: watchVerb}, BufferBytes: 32 << 10, BufferFor: t.lab.of(90*time.Second, 9*time.Second),
	}
	return under(rule, 10*time.Minute, 60*time.Second, options{})(ctx, t)
}

// halfDead freezes all that is and comes on the connections that carry the watch.
func halfDead(ctx context.Context, t *trial) error {
	if err := t.prepare(ctx, options{}); err != nil {
		return err
	}
	var connections []int64
	for _, r := range t.proxy.Requests(webApps("watch")) {
		if r.Ended.IsZero() && !r.MetadataOnly {
			connections = append(connections, r.Connection)
		}
	}
	t.begin()
	t.proxy.Add(faultproxy.Rule{
		Match:  faultproxy.Match{Func: func(r faultproxy.Request) bool { return slices.Contains(connections, r.Connection) }},
		Freeze: faultproxy.FreezeStream,
	})
	if err := t.during(ctx, t.lab.of(12*time.Minute, 40*time.Second)); err != nil {
		return err
	}
	t.lift() // What is poisoned stays so.
	return t.finish(ctx)
}
