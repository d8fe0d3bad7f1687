package faultproxy

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
)

// Request is one request as the API server's audit log would describe it, and
// what became of it.
type Request struct {
	Time time.Time // of arrival
	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection; for paths outside the API's resources the HTTP method in
	// lower case.
	Verb string
	// Group to Name are empty outside the API's resources. Name is also that of
	// a field selector for one object.
	Group, Resource, Subresource, Namespace, Name string

	WatchList bool // a watch that asks for the initial events
	// MetadataOnly: a list, watch or get that asks for objects' metadata alone.
	MetadataOnly bool
	UserAgent    string
	URL          string // path and query
	Connection   int64  // number of the client's connection, from 1

	Code   int       // HTTP status sent to the client; 0: none yet, or never
	Frames int       // frames of a watch that were sent to the client
	Bytes  int64     // of the response's body that were sent to the client
	Ended  time.Time // zero while the request is in flight
}

// WatchKind narrows Match down to one way to watch.
type WatchKind int

// Ways to watch. Requests that are no watches match AnyWatch only.
const (
	AnyWatch WatchKind = iota
	OnlyWatchList
	OnlyPlainWatch
)

// Match selects requests. A zero field selects all.
type Match struct {
	Verbs []string // as in Request
	// Group is an API group; "core" is the one without a name.
	Group string
	// Resource is the plural, "leases".
	Resource string
	// Subresource is "status", or "-" for requests to no subresource.
	Subresource     string
	Namespace, Name string
	UserAgentPrefix string
	Watch           WatchKind
	// Func narrows further where it is set. It is called under the proxy's
	// lock: it must return at once and call no method of the Proxy.
	Func func(Request) bool
}

func (m Match) matches(r Request) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	group, subresource := r.Group, r.Subresource
	if group == "" && r.Resource != "" {
		group = "core"
	}
	if subresource == "" {
		subresource = "-"
	}
	return (len(m.Verbs) == 0 || slices.Contains(m.Verbs, r.Verb)) &&
		is(m.Group, group) && is(m.Resource, r.Resource) && is(m.Subresource, subresource) &&
		is(m.Namespace, r.Namespace) && is(m.Name, r.Name) &&
		strings.HasPrefix(r.UserAgent, m.UserAgentPrefix) &&
		(m.Watch == AnyWatch || r.Verb == "watch" && r.WatchList == (m.Watch == OnlyWatchList)) &&
		(m.Func == nil || m.Func(r))
}

// parse describes a request by the API server's own rules (RequestInfo).
func parse(r *http.Request) Request {
	out := Request{
		Time: time.Now(), Verb: strings.ToLower(r.Method),
		UserAgent: r.UserAgent(), URL: r.URL.RequestURI(),
		MetadataOnly: strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"),
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		out.Group, parts = parts[1], parts[3:]
	default:
		return out
	}
	at := func(i int) string {
		if i < len(parts) {
			return parts[i]
		}
		return ""
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		out.Namespace = parts[1]
		// /namespaces/x/status and /finalize belong to the namespace itself.
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	out.Resource, out.Name, out.Subresource = parts[0], at(1), at(2)

	query := r.URL.Query()
	switch r.Method {
	case http.MethodPost:
		out.Verb = "create"
	case http.MethodPut:
		out.Verb = "update"
	case http.MethodGet, http.MethodHead:
		out.Verb = "get"
		if out.Name != "" {
			break
		}
		out.Verb = "list"
		if watch := query.Get("watch"); query.Has("watch") && watch != "false" && watch != "0" {
			out.Verb = "watch"
			out.WatchList = query.Get("sendInitialEvents") == "true"
		}
	case http.MethodDelete:
		if out.Name == "" {
			out.Verb = "deletecollection"
		}
	}
	if out.Name == "" {
		if selector, err := fields.ParseSelector(query.Get("fieldSelector")); err == nil {
			out.Name, _ = selector.RequiresExactMatch("metadata.name")
		}
	}
	return out
}

// Requests are the requests so far that match, in the order of their arrival.
func (p *Proxy) Requests(m Match) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Request
	for _, x := range p.log {
		if m.matches(x.request) {
			out = append(out, x.request)
		}
	}
	return out
}

// Count is how many requests so far match.
func (p *Proxy) Count(m Match) int { return len(p.Requests(m)) }

// Counts are the requests so far that match, by "verb resource" ("watch
// leases"); those outside the API's resources by "verb path".
func (p *Proxy) Counts(m Match) map[string]int {
	out := map[string]int{}
	for _, r := range p.Requests(m) {
		what := r.Resource
		if what == "" {
			what, _, _ = strings.Cut(r.URL, "?")
		}
		out[r.Verb+" "+what]++
	}
	return out
}

// Stats are what the clients' connections have seen since the start.
type Stats struct {
	// Received from and Sent to clients, in bytes on the wire, TLS included.
	Received, Sent int64
	// Opened connections, those of them that the proxy has reset, and those
	// Open now.
	Opened, Reset, Open int64
}

// Stats are the numbers now.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Received: p.received.Load(), Sent: p.written.Load(),
		Opened: p.opened.Load(), Reset: p.resets.Load(), Open: int64(len(p.conns)),
	}
}
