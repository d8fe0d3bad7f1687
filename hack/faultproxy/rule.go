package faultproxy

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scope says which requests a rule applies to.
type Scope int

// Scopes. Only watches that are open when the rule is added count as open.
const (
	NewAndOpen Scope = iota
	OnlyNew
	OnlyOpen
)

// FreezeKind is what stands still while the TCP connection stays open.
type FreezeKind int

const (
	// FreezeNothing is no effect.
	FreezeNothing FreezeKind = iota
	// FreezeStream: an accepted watch (200) delivers no bytes and does not end;
	// any other request is not forwarded and not answered.
	FreezeStream
	// FreezeConnection: the client's whole TCP connection, in both directions,
	// HTTP/2 pings included. The request itself is forwarded.
	FreezeConnection
)

// CloseKind is how a response ends before its time.
type CloseKind int

const (
	// NoClose is no effect.
	NoClose CloseKind = iota
	// EOF is a clean end: 200, and a watch stops, any other body is empty.
	EOF
	// ResetStream resets the HTTP/2 stream; under HTTP/1.1 it closes the connection.
	ResetStream
	// ResetConnection cuts the TCP connection by a RST, with all that runs on it.
	// As on any network, the RST may overtake bytes that were sent before.
	ResetConnection
)

// Answer is a response that comes from the proxy. The request is not forwarded.
type Answer struct {
	// Code is the HTTP status; 0: that of Status, else 200.
	Code int
	// RetryAfter sets the header, in whole seconds. 0: none.
	RetryAfter time.Duration
	// Status is the body. nil: one made from Code.
	Status *metav1.Status
	// Pretty writes Status over several lines.
	Pretty bool
	// Body goes in place of Status, as ContentType ("": application/json).
	Body        []byte
	ContentType string
}

// Rule does something to the requests that match. The effects below apply
// together; a rule with none only counts.
type Rule struct {
	Match Match
	// Times is to how many requests the rule applies. 0: all. Once used up, it
	// goes on for the watches it applies to.
	Times int
	Scope Scope

	// Before the request is forwarded; such a rule is for new requests only.

	// Hold is called for each request and may block; what it does not hold up is
	// then forwarded. Its context ends with the request or the proxy.
	Hold   func(context.Context, Request)
	Answer *Answer

	// When the API server has answered.

	// Delay holds back the start of the response, also that of Answer. For new
	// requests only.
	Delay time.Duration
	// DropResponse lets the API server execute the request and cuts the client
	// off, by Close, or by ResetConnection if that is not set. For new requests
	// only.
	DropResponse bool

	// Streams, unless said otherwise.

	// Freeze stops all bytes. What came meanwhile is delivered when the rule is
	// removed.
	Freeze FreezeKind
	// Permanent keeps frozen what is frozen when the rule is removed.
	Permanent bool
	// PassEnd lets a frozen stream end when the API server ends it.
	PassEnd bool

	// DelayFrames delivers each frame that much later, in order.
	DelayFrames time.Duration
	// BufferBytes and BufferFor hold bytes back until there are that many, or
	// the first has waited that long. One alone has no other limit.
	BufferBytes int
	BufferFor   time.Duration

	// StripBookmarks drops every BOOKMARK; StripInitialEventsEnd only the one
	// that ends the initial events.
	StripBookmarks, StripInitialEventsEnd bool

	// InjectError sends an ERROR frame with this Status, and ends the stream.
	InjectError *metav1.Status
	// Close ends the response; that of a request that is no watch too, which is
	// then not forwarded.
	Close CloseKind

	// After, AfterFrames and AfterIdle hold InjectError and Close back until the
	// request is that old, that many frames have been delivered under this rule,
	// and the stream has delivered nothing for that long. AfterFrames and
	// AfterIdle are for watches.
	After       time.Duration
	AfterFrames int
	AfterIdle   time.Duration
}

var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put", "head", "options"}

func (r Rule) validate() error {
	for _, verb := range r.Match.Verbs {
		if !slices.Contains(verbs, verb) {
			return fmt.Errorf("Rule.Match.Verbs: unknown verb %q: use one of %q", verb, verbs)
		}
	}
	if r.Times < 0 || r.BufferBytes < 0 || r.AfterFrames < 0 ||
		min(r.Delay, r.DelayFrames, r.BufferFor, r.After, r.AfterIdle) < 0 {
		return fmt.Errorf("Rule: a negative number or duration: leave out what is not wanted: %+v", r)
	}
	if r.DropResponse && r.Close == EOF {
		return fmt.Errorf("Rule: DropResponse with Close: EOF would be a response: use ResetStream or ResetConnection")
	}
	if r.Scope == OnlyOpen && !r.forOpenStreams() {
		return fmt.Errorf("Rule.Scope: OnlyOpen with nothing that can be done to an open stream")
	}
	return nil
}

// forOpenStreams is false for rules that would waste Times on watches which are
// past what the rule does.
func (r Rule) forOpenStreams() bool {
	return r.Scope != OnlyNew && r.Hold == nil && r.Answer == nil && r.Delay == 0 && !r.DropResponse &&
		(r.Freeze != FreezeNothing || r.DelayFrames > 0 || r.buffers() || r.StripBookmarks ||
			r.StripInitialEventsEnd || r.InjectError != nil || r.Close != NoClose)
}

func (r Rule) buffers() bool { return r.BufferBytes > 0 || r.BufferFor > 0 }

// Fault is a Rule in force.
type Fault struct {
	p    *Proxy
	rule Rule

	// Under p.mu.
	hits    int
	hit     chan struct{} // closed and replaced at each hit
	removed bool
	frozen  []*conn
}

// Add puts a rule in force. It panics on one that makes no sense.
func (p *Proxy) Add(r Rule) *Fault {
	if err := r.validate(); err != nil {
		panic("faultproxy: " + err.Error())
	}
	f := &Fault{p: p, rule: r, hit: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	if r.forOpenStreams() {
		for x := range p.exchanges {
			if x.request.Verb == "watch" {
				x.bind(f)
			}
		}
	}
	return f
}

// Remove takes the rule out of force. A second call does nothing.
func (f *Fault) Remove() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.removed {
		return
	}
	f.removed = true
	f.p.faults = slices.DeleteFunc(f.p.faults, func(g *Fault) bool { return g == f })
	if !f.rule.Permanent {
		for _, c := range f.frozen {
			c.silent.open()
		}
	}
	for x := range f.p.exchanges {
		x.wake()
	}
}

// Hits is to how many requests the rule has been applied.
func (f *Fault) Hits() int {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return f.hits
}

// WaitHits waits until the rule has been applied to n requests.
func (f *Fault) WaitHits(ctx context.Context, n int) error {
	for {
		f.p.mu.Lock()
		hits, hit := f.hits, f.hit
		f.p.mu.Unlock()
		if hits >= n {
			return nil
		}
		select {
		case <-hit:
		case <-ctx.Done():
			return fmt.Errorf("fault proxy: %d of %d hits: %w", hits, n, ctx.Err())
		}
	}
}

// binding is a rule that applies to one exchange.
type binding struct {
	*Fault
	frames int // delivered under it
}

// exchange is one request and its response.
type exchange struct {
	conn    *conn
	changed chan struct{} // has room for one: a rule was bound or removed

	// Under Proxy.mu.
	request  Request
	bindings []*binding
}

// bind applies f if it matches and is not used up. Under p.mu.
func (x *exchange) bind(f *Fault) {
	if f.rule.Times > 0 && f.hits >= f.rule.Times || !f.rule.Match.matches(x.request) {
		return
	}
	f.hits++
	close(f.hit)
	f.hit = make(chan struct{})
	x.bindings = append(x.bindings, &binding{Fault: f})
	if f.rule.Freeze == FreezeConnection && !slices.Contains(f.frozen, x.conn) {
		f.frozen = append(f.frozen, x.conn)
		x.conn.silent.shut()
	}
	x.wake()
}

func (x *exchange) wake() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// faults are the rules that apply now.
func (x *exchange) faults() []*binding {
	x.conn.p.mu.Lock()
	defer x.conn.p.mu.Unlock()
	x.bindings = slices.DeleteFunc(x.bindings, func(b *binding) bool {
		return b.removed && !(b.rule.Permanent && b.rule.Freeze != FreezeNothing)
	})
	return slices.Clone(x.bindings)
}
