package faultproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// begin notes a request and binds the rules. nil: the proxy is closed.
func (p *Proxy) begin(r *http.Request) *exchange {
	c := connOf(r.Context())
	x := &exchange{conn: c, changed: make(chan struct{}, 1), request: parse(r)}
	x.request.Connection = c.number
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.joined.Add(1)
	p.exchanges[x] = struct{}{}
	p.log = append(p.log, x)
	for _, f := range p.faults {
		if f.rule.Scope != OnlyOpen {
			x.bind(f)
		}
	}
	return x
}

func (p *Proxy) end(x *exchange) {
	p.mu.Lock()
	x.request.Ended = time.Now()
	delete(p.exchanges, x)
	p.mu.Unlock()
	p.joined.Done()
}

// note changes what the log says about the request.
func (x *exchange) note(change func(*Request)) {
	x.conn.p.mu.Lock()
	defer x.conn.p.mu.Unlock()
	change(&x.request)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	x := p.begin(r)
	if x == nil {
		panic(http.ErrAbortHandler)
	}
	defer p.end(x)
	w = &countingWriter{ResponseWriter: w, x: x}
	ctx, watch := r.Context(), x.request.Verb == "watch"

	if r.Header.Get("Upgrade") != "" {
		fail(w, http.StatusNotImplemented, "the fault proxy passes no upgrades")
		return
	}
	// Read in full before anything else: net/http notices that an HTTP/1.1
	// client has gone only once the body has been read.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}

	for _, b := range x.faults() {
		if b.rule.Hold != nil {
			b.rule.Hold(ctx, x.snapshot())
		}
	}
	if !watch {
		x.thaw(ctx)
	}
	for _, b := range x.faults() {
		if b.rule.Answer != nil {
			x.delay(ctx)
			b.rule.Answer.write(w)
			return
		}
		if !watch && b.rule.Close != NoClose && !b.rule.DropResponse {
			sleep(ctx, time.Until(x.request.Time.Add(b.rule.After)))
			x.close(b.rule.Close)
			w.WriteHeader(http.StatusOK)
			return
		}
	}

	resp, err := p.forward(r, body)
	if err == nil {
		defer resp.Body.Close()
	}
	if watch && (err != nil || resp.StatusCode != http.StatusOK) {
		// Frozen means that not even a failure is heard of.
		x.thaw(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		code := http.StatusBadGateway
		if err == errUnknownCertificate {
			code = http.StatusUnauthorized
		}
		fail(w, code, err.Error())
		return
	}

	for _, b := range x.faults() {
		if !b.rule.DropResponse {
			continue
		}
		if !watch { // The response's end tells that the request was executed.
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		if b.rule.Close == NoClose {
			x.close(ResetConnection)
		}
		x.close(b.rule.Close)
	}
	x.delay(ctx)

	opaque := p.opaque(x.request)
	copyHeader(w.Header(), resp.Header)
	if watch || opaque {
		w.Header().Del("Content-Length")
	}
	switch {
	case watch && resp.StatusCode == http.StatusOK:
		w.WriteHeader(resp.StatusCode)
		p.stream(ctx, x, w, resp)
	case opaque:
		content, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(hideVersions(content))
	default:
		w.WriteHeader(resp.StatusCode)
		if _, err := io.Copy(flushWriter{w}, resp.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func (x *exchange) snapshot() Request {
	x.conn.p.mu.Lock()
	defer x.conn.p.mu.Unlock()
	return x.request
}

// thaw waits until no rule freezes the request.
func (x *exchange) thaw(ctx context.Context) {
	for {
		frozen := false
		for _, b := range x.faults() {
			frozen = frozen || b.rule.Freeze == FreezeStream
		}
		if !frozen {
			return
		}
		select {
		case <-x.changed:
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// delay holds the response back for the longest delay, counted from now: the API
// server's own time comes on top.
func (x *exchange) delay(ctx context.Context) {
	var d time.Duration
	for _, b := range x.faults() {
		d = max(d, b.rule.Delay)
	}
	sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// close ends the response. It returns for EOF only, and then the handler has to.
func (x *exchange) close(kind CloseKind) {
	switch kind {
	case ResetConnection:
		x.conn.reset()
		panic(http.ErrAbortHandler)
	case ResetStream:
		panic(http.ErrAbortHandler)
	}
}

// Headers that belong to a connection, and those that the proxy answers for.
var notForwarded = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Accept-Encoding",
}

func copyHeader(dst, src http.Header) {
	for k, v := range src {
		dst[k] = v
	}
	for _, k := range notForwarded {
		dst.Del(k)
	}
}

// opaque reports whether resourceVersions in the answer are to be hidden.
func (p *Proxy) opaque(r Request) bool {
	return p.cfg.OpaqueResourceVersions && !slices.Contains(p.cfg.ClearResources, r.Resource)
}

func (p *Proxy) forward(r *http.Request, body []byte) (*http.Response, error) {
	transport, err := p.identity.of(r)
	if err != nil {
		return nil, err
	}
	target := *p.upstream.Load()
	target.Path = strings.TrimSuffix(target.Path, "/") + r.URL.Path
	target.RawQuery = r.URL.RawQuery
	if p.cfg.OpaqueResourceVersions {
		// In a create they are text alone, such as that of an Event's object.
		if r.Method != http.MethodPost && strings.Contains(r.Header.Get("Content-Type"), "protobuf") && versionOpaque.Match(body) {
			return nil, fmt.Errorf("resourceVersions in a protobuf body cannot be made opaque: make the client with Proxy.ClientConfig, or name the resource in Config.ClearResources")
		}
		if !strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
			body = showVersions(body)
		}
		target.RawQuery = string(showVersions([]byte(target.RawQuery)))
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	copyHeader(out.Header, r.Header)
	if p.cfg.ForceJSON {
		out.Header.Set("Accept", acceptJSON(r.Header.Get("Accept")))
	}
	return transport.RoundTrip(out)
}

// acceptJSON keeps the parameters, which ask for metadata or a table.
func acceptJSON(accept string) string {
	var out []string
	for clause := range strings.SplitSeq(accept, ",") {
		if kind, params, _ := strings.Cut(strings.TrimSpace(clause), ";"); kind == "application/json" {
			out = append(out, strings.TrimSpace(clause))
		} else if params != "" && strings.Contains(params, "as=") {
			out = append(out, "application/json;"+params)
		}
	}
	if len(out) == 0 {
		return "application/json"
	}
	return strings.Join(out, ",")
}

func (a *Answer) write(w http.ResponseWriter) {
	code := a.Code
	if code == 0 && a.Status != nil {
		code = int(a.Status.Code)
	}
	if code == 0 {
		code = http.StatusOK
	}
	if a.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.RetryAfter.Round(time.Second)/time.Second)))
	}
	body := a.Body
	if body == nil {
		body = encodeStatus(a.Status, code, "answered by the fault proxy", a.Pretty)
	}
	kind := a.ContentType
	if kind == "" {
		kind = "application/json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(encodeStatus(nil, code, "fault proxy: "+message, false))
}

// encodeStatus writes s, or one made from code and message where s is nil.
func encodeStatus(s *metav1.Status, code int, message string, pretty bool) []byte {
	if s == nil {
		s = &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: message}
		if code < 400 {
			s.Status = metav1.StatusSuccess
		}
	}
	s = s.DeepCopy()
	s.APIVersion, s.Kind = "v1", "Status"
	if s.Code == 0 {
		s.Code = int32(code)
	}
	var out []byte
	if pretty {
		out, _ = json.MarshalIndent(s, "", "  ")
	} else {
		out, _ = json.Marshal(s)
	}
	return append(out, '\n')
}

// countingWriter tells the log what was sent.
type countingWriter struct {
	http.ResponseWriter
	x *exchange
}

func (w *countingWriter) WriteHeader(code int) {
	w.x.note(func(r *Request) { r.Code = code })
	w.ResponseWriter.WriteHeader(code)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.x.note(func(r *Request) { r.Bytes += int64(n) })
	return n, err
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// flushWriter hands every piece on at once, as for logs that are followed.
type flushWriter struct{ http.ResponseWriter }

func (w flushWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	return n, err
}
