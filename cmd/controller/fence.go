package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// ErrNotLeading is returned (wrapped in a *url.Error by net/http) for a
// mutating request made by a process that does not lead, or that has not
// renewed its lease within the renew deadline. Where the error says that the
// request was under way, the server may have carried it out.
var ErrNotLeading = errors.New("this process does not lead")

// reading is one look at both clocks. Neither is enough alone: the monotonic
// one stops while a virtual machine is suspended, the wall clock can be set
// back. (A process stopped by SIGSTOP sees both go on.)
type reading struct {
	mono time.Duration
	wall time.Time
}

// since is the longer of the two clocks' answers, so that a clock which stood
// still or was set back never makes a lease look younger than it is.
func (r reading) since(earlier reading) time.Duration {
	return max(r.mono-earlier.mono, r.wall.Sub(earlier.wall))
}

// systemClock reads the clocks of this machine.
func systemClock() func() reading {
	start := time.Now()
	return func() reading {
		now := time.Now()
		return reading{mono: now.Sub(start), wall: now.Round(0)}
	}
}

// fence stands around the transport of every client that writes on behalf of
// the leader. Whatever the code above it believes, a mutating request leaves
// this process only during a term and only while the lease was renewed within
// the renew deadline.
//
// It sits under the client's rate limiter, directly around the transport: a
// request that queued for ten seconds is judged when it is sent, not when it
// was made.
//
// It cannot take back what was sent. A request that is already on the wire when
// the lease lapses is cancelled, but the server may carry it out: that is the
// limit of every fence that stands on the client's side, and why writes must be
// safe to repeat and carry a UID or a resourceVersion where they destroy.
type fence struct {
	// renewDeadline is the age of the lease from which on nothing is sent,
	// leaseDuration the one at which another process may lead and what is
	// under way is cancelled. Both zero: no lease, age means nothing.
	renewDeadline, leaseDuration time.Duration
	now                          func() reading

	mu      sync.Mutex
	renewed reading // taken before the request that renewed the lease was sent
	// term is non-nil while this process leads and ends when it ceases to or
	// the lease lapses.
	term  context.Context
	end   context.CancelCauseFunc
	lapse *time.Timer
	held  bool // renewed at least once since the last campaign began
}

func newFence(renewDeadline, leaseDuration time.Duration, now func() reading) *fence {
	return &fence{renewDeadline: renewDeadline, leaseDuration: leaseDuration, now: now}
}

// renew notes that the lease was renewed by a request sent not before at. It
// prolongs what is under way, but opens nothing: a renewal that arrives after
// the term was given up must not admit a write.
func (f *fence) renew(at reading) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = at
	f.held = true
	if f.term != nil && f.lapse != nil {
		f.lapse.Reset(f.untilLapseLocked())
	}
}

// open begins a term.
func (f *fence) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.term, f.end = context.WithCancelCause(context.Background())
	if f.leaseDuration > 0 {
		end := f.end
		f.lapse = time.AfterFunc(f.untilLapseLocked(), func() { end(ErrNotLeading) })
	}
}

// close ends the term: from here on nothing is sent, and what is under way is
// cancelled. Closing a closed fence does nothing.
func (f *fence) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = false
	if f.term == nil {
		return
	}
	if f.lapse != nil {
		f.lapse.Stop()
	}
	f.end(ErrNotLeading)
	f.term, f.end, f.lapse = nil, nil, nil
}

// wasHeld reports whether the lease was this process's since the last close.
func (f *fence) wasHeld() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

// untilLapse is how long the lease remains ours if it is never renewed again;
// negative when it has lapsed.
func (f *fence) untilLapse() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.untilLapseLocked()
}

func (f *fence) untilLapseLocked() time.Duration {
	return f.leaseDuration - f.now().since(f.renewed)
}

// check returns nil while mutating requests pass, else an ErrNotLeading that
// says why they do not.
func (f *fence) check() error {
	_, err := f.admit()
	return err
}

// admit returns the context of the running term.
func (f *fence) admit() (context.Context, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.term == nil {
		return nil, ErrNotLeading
	}
	if f.leaseDuration == 0 {
		return f.term, nil
	}
	if age := f.now().since(f.renewed); age > f.renewDeadline {
		return nil, fmt.Errorf("%w: its lease was last renewed %s ago, the renew deadline is %s",
			ErrNotLeading, age.Round(time.Millisecond), f.renewDeadline)
	}
	return f.term, nil
}

// wrap puts the fence around a transport; for rest.Config.Wrap.
func (f *fence) wrap(next http.RoundTripper) http.RoundTripper {
	return &fencedTransport{fence: f, next: next}
}

type fencedTransport struct {
	fence *fence
	next  http.RoundTripper
}

// RoundTrip passes reads. Every other method needs a term and ends with it.
// The deadline moves with each renewal: a write that a slow admission webhook
// holds up for longer than the lease lasts is cut short only if the lease is
// not renewed in the meantime.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return t.next.RoundTrip(req)
	}
	term, err := t.fence.admit()
	if err != nil {
		// The contract of http.RoundTripper: the body is closed, on errors too.
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	detach := context.AfterFunc(term, func() { cancel(ErrNotLeading) })
	release := func() {
		detach()
		cancel(nil)
	}
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		lost := errors.Is(context.Cause(ctx), ErrNotLeading)
		release()
		if lost && !errors.Is(err, ErrNotLeading) {
			return nil, fmt.Errorf("%w: its lease lapsed while the request was under way: %w", ErrNotLeading, err)
		}
		return nil, err
	}
	resp.Body = &releasingBody{ReadCloser: resp.Body, release: release}
	return resp, nil
}

// WrappedRoundTripper lets client-go reach the transport below, to close idle
// connections for instance.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// releasingBody frees the request's context once the answer has been read.
type releasingBody struct {
	io.ReadCloser
	release func()
}

func (b *releasingBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}

// dial is a rest.Config.Dial for the clients whose transport is wrapped. A process
// can be stopped after a request was admitted and before its bytes were written,
// which in HTTP/2 another goroutine does; woken up, it would send them late. So the
// lease is looked at once more at the last moment there is. Reads share the
// connection: they are made in passes, which have ended by then.
func (f *fence) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &fencedConn{Conn: conn, fence: f}, nil
}

type fencedConn struct {
	net.Conn
	fence *fence
}

func (c *fencedConn) Write(p []byte) (int, error) {
	if c.fence.leaseDuration > 0 && c.fence.untilLapse() <= 0 {
		return 0, fmt.Errorf("%w: its lease has lapsed", ErrNotLeading)
	}
	return c.Conn.Write(p)
}
