package faultproxy_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"k8s.io/client-go/rest"
)

// apiServer speaks just enough of the protocol: a watch sends what the test
// puts into frames, anything else answers with body.
type apiServer struct {
	*httptest.Server
	frames chan string // "" ends a watch
	body   string

	mu   sync.Mutex
	seen []string // "METHOD uri [body] [authorization]"
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{frames: make(chan string), body: `{"kind":"ConfigMap","metadata":{"resourceVersion":"123"}}`}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.seen = append(s.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), body, r.Header.Get("Authorization"))))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		_, _ = io.WriteString(w, s.body)
		return
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case f := <-s.frames:
			if f == "" {
				return
			}
			_, _ = io.WriteString(w, f+"\n")
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

type fixture struct {
	*faultproxy.Proxy
	t      *testing.T
	api    *apiServer
	client *http.Client
}

func setup(t *testing.T, cfg faultproxy.Config) *fixture {
	t.Helper()
	api := newAPIServer(t)
	cfg.Upstream = api.config()
	p, err := faultproxy.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	f := &fixture{Proxy: p, t: t, api: api}
	f.client = f.newClient(&rest.Config{UserAgent: "tester"})
	return f
}

func (f *fixture) newClient(cfg *rest.Config) *http.Client {
	f.t.Helper()
	client, err := rest.HTTPClientFor(f.ClientConfig(cfg))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(client.CloseIdleConnections)
	return client
}

func (f *fixture) do(method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.URL()+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	return f.client.Do(req)
}

// patience bounds every wait that has no bound of its own to show.
const patience = 30 * time.Second

// stream is a client's open watch.
type stream struct {
	t     *testing.T
	lines chan string
	err   error // once lines is closed
}

const (
	watchPath = "/api/v1/namespaces/default/configmaps?watch=true"
	objPath   = "/api/v1/namespaces/default/configmaps/x"
)

func (f *fixture) watch(path string) *stream {
	f.t.Helper()
	resp, err := f.do("GET", path, "")
	if err != nil {
		f.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		f.t.Fatalf("watch: %s", resp.Status)
	}
	s := &stream{t: f.t, lines: make(chan string, 100)}
	go func() {
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				s.err = err
				close(s.lines)
				return
			}
			s.lines <- strings.TrimSpace(line)
		}
	}()
	return s
}

func (s *stream) want(line string) {
	s.t.Helper()
	select {
	case got, ok := <-s.lines:
		if !ok {
			s.t.Fatalf("the stream ended (%v), want %s", s.err, line)
		}
		if got != line {
			s.t.Fatalf("got %s, want %s", got, line)
		}
	case <-time.After(patience):
		s.t.Fatalf("nothing came within %s, want %s", patience, line)
	}
}

func (s *stream) wantSilence() {
	s.t.Helper()
	select {
	case got, ok := <-s.lines:
		s.t.Fatalf("got %q (open: %t, %v), want silence", got, ok, s.err)
	case <-time.After(200 * time.Millisecond):
	}
}

func (s *stream) wantEnd() error {
	s.t.Helper()
	select {
	case got, ok := <-s.lines:
		if ok {
			s.t.Fatalf("got %s, want the end", got)
		}
		return s.err
	case <-time.After(patience):
		s.t.Fatalf("the stream did not end within %s", patience)
		return nil
	}
}

func (f *fixture) send(frame string) {
	f.t.Helper()
	select {
	case f.api.frames <- frame:
	case <-time.After(patience):
		f.t.Fatalf("no watch took %q within %s", frame, patience)
	}
}

func frame(kind, rv string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"resourceVersion":%q}}}`, kind, rv)
}

const initialEnd = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`

var onWatch = faultproxy.Match{Verbs: []string{"watch"}}

func eachProtocol(t *testing.T, run func(*testing.T, faultproxy.Config)) {
	t.Run("HTTP2", func(t *testing.T) { run(t, faultproxy.Config{}) })
	t.Run("HTTP1", func(t *testing.T) { run(t, faultproxy.Config{HTTP1: true}) })
}

func TestFreezeStreamHoldsBackWhatComesUntilRemoved(t *testing.T) {
	eachProtocol(t, func(t *testing.T, cfg faultproxy.Config) {
		f := setup(t, cfg)
		s := f.watch(watchPath)
		f.send(frame("ADDED", "1"))
		s.want(frame("ADDED", "1"))
		fault := f.Add(faultproxy.Rule{Match: onWatch, Freeze: faultproxy.FreezeStream})
		f.send(frame("ADDED", "2"))
		f.send("") // The end is not told either.
		s.wantSilence()
		// What does not match goes on, on the same connection.
		if resp, err := f.do("GET", objPath, ""); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v, %v", resp, err)
		}
		fault.Remove()
		s.want(frame("ADDED", "2"))
		if err := s.wantEnd(); err != io.EOF {
			t.Fatal(err)
		}
		if fault.Hits() != 1 {
			t.Errorf("%d hits", fault.Hits())
		}
	})
}

func TestFreezePermanentAndPassEnd(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	s := f.watch(watchPath)
	fault := f.Add(faultproxy.Rule{Match: onWatch, Scope: faultproxy.OnlyOpen, Freeze: faultproxy.FreezeStream, Permanent: true, PassEnd: true})
	fault.Remove()
	f.send(frame("ADDED", "1"))
	s.wantSilence()
	f.send("")
	if err := s.wantEnd(); err != io.EOF {
		t.Fatal(err)
	}
	// A new one was never touched.
	s = f.watch(watchPath)
	f.send(frame("ADDED", "2"))
	s.want(frame("ADDED", "2"))
}

func TestFreezeHidesThatTheAPIServerIsGone(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	s := f.watch(watchPath)
	fault := f.Add(faultproxy.Rule{Match: onWatch, Freeze: faultproxy.FreezeStream})
	f.api.CloseClientConnections()
	s.wantSilence()
	fault.Remove()
	if err := s.wantEnd(); err == io.EOF {
		t.Fatal("a broken upstream was passed on as a clean end")
	}
}

// wantPending fails when a request is answered that should be held.
func wantPending(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("not held: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
}

func TestFreezePlainRequestUntilRemoved(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	fault := f.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"update"}, Resource: "configmaps", Name: "x"}, Freeze: faultproxy.FreezeStream})
	done := make(chan error, 1)
	go func() {
		_, err := f.do("PUT", objPath, "{}")
		done <- err
	}()
	if err := fault.WaitHits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	wantPending(t, done)
	if seen := f.api.requests(); len(seen) != 0 {
		t.Fatalf("the API server saw %q", seen)
	}
	fault.Remove()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A frozen connection, or proxy, is one whose HTTP/2 pings find nobody.
func TestSilentConnections(t *testing.T) {
	tests := map[string]struct {
		freeze func(*fixture) (thaw func())
	}{
		"one connection": {func(f *fixture) func() {
			return f.Add(faultproxy.Rule{Match: onWatch, Freeze: faultproxy.FreezeConnection}).Remove
		}},
		"all": {func(f *fixture) func() {
			f.BlackHole()
			return func() { _ = f.Up() }
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := setup(t, faultproxy.Config{})
			s := f.watch(watchPath)
			thaw := tc.freeze(f)
			f.send(frame("ADDED", "1"))
			s.wantSilence()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "GET", f.URL()+objPath, nil)
			if _, err := f.client.Do(req); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a request on the silent connection: %v", err)
			}
			if seen := f.api.requests(); len(seen) != 1 {
				t.Fatalf("the silent connection was heard: %q", seen)
			}
			thaw()
			s.want(frame("ADDED", "1"))
		})
	}
}

func TestRefuseAndUpOnTheSamePort(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	s := f.watch(watchPath)
	f.Refuse()
	if err := s.wantEnd(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the open watch: %v", err)
	}
	if _, err := f.do("GET", objPath, ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new request: %v", err)
	}
	for range 2 { // Up is idempotent.
		if err := f.Up(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.do("GET", objPath, ""); err != nil {
		t.Fatal(err)
	}
	if s := f.Stats(); s.Reset != 1 || s.Opened != 2 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
}

func TestClose(t *testing.T) {
	tests := map[string]struct {
		reason string
		kind   faultproxy.CloseKind
		ok     func(error) bool
	}{
		"EOF":             {"clean", faultproxy.EOF, func(err error) bool { return err == io.EOF }},
		"ResetStream":     {"HTTP/2 says which stream", faultproxy.ResetStream, func(err error) bool { return strings.Contains(err.Error(), "stream error") }},
		"ResetConnection": {"a RST, no FIN", faultproxy.ResetConnection, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := setup(t, faultproxy.Config{})
			s := f.watch(watchPath)
			fault := f.Add(faultproxy.Rule{Match: onWatch, Close: tc.kind, AfterFrames: 2})
			f.send(frame("ADDED", "1"))
			s.want(frame("ADDED", "1"))
			f.send(frame("ADDED", "2"))
			if tc.kind != faultproxy.ResetConnection { // A RST may overtake it.
				s.want(frame("ADDED", "2"))
			} else if line, ok := <-s.lines; ok && line != frame("ADDED", "2") {
				t.Fatalf("got %s", line)
			}
			if err := s.wantEnd(); !tc.ok(err) {
				t.Errorf("%v: %s", err, tc.reason)
			}
			fault.Remove()
			s = f.watch(watchPath)
			f.Add(faultproxy.Rule{Match: onWatch, Close: tc.kind})
			if err := s.wantEnd(); !tc.ok(err) {
				t.Errorf("at once: %v", err)
			}
		})
	}
}

func TestCloseAfterAndAfterIdle(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	f.Add(faultproxy.Rule{Match: onWatch, Times: 1, Close: faultproxy.EOF, After: 300 * time.Millisecond})
	start := time.Now()
	if err := f.watch(watchPath).wantEnd(); err != io.EOF || time.Since(start) < 300*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	// A pause of a slow machine between two frames must not be as long.
	const idle = 2 * time.Second
	f.Add(faultproxy.Rule{Match: onWatch, Close: faultproxy.EOF, AfterIdle: idle})
	s := f.watch(watchPath)
	var last time.Time
	for start := time.Now(); time.Since(start) < idle+idle/4; <-time.After(50 * time.Millisecond) {
		last = time.Now()
		f.send(frame("ADDED", "1"))
		s.want(frame("ADDED", "1"))
	}
	if err := s.wantEnd(); err != io.EOF || time.Since(last) < idle {
		t.Errorf("%v %v after the last frame", err, time.Since(last))
	}
}

func TestStripAndInject(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	s := f.watch(watchPath)
	ends := f.Add(faultproxy.Rule{Match: onWatch, StripInitialEventsEnd: true})
	f.send(initialEnd)
	f.send(frame("BOOKMARK", "10"))
	s.want(frame("BOOKMARK", "10"))
	ends.Remove()
	all := f.Add(faultproxy.Rule{Match: onWatch, StripBookmarks: true})
	f.send(initialEnd)
	f.send(frame("BOOKMARK", "11"))
	f.send(frame("ADDED", "12"))
	s.want(frame("ADDED", "12"))
	all.Remove()
	f.send(initialEnd)
	s.want(initialEnd)
	f.Add(faultproxy.Rule{Match: onWatch, InjectError: faultproxy.Expired()})
	line := <-s.lines
	if !strings.HasPrefix(line, `{"type":"ERROR","object":{`) || !strings.Contains(line, `"code":410`) || !strings.Contains(line, `"reason":"Expired"`) {
		t.Errorf("%s", line)
	}
	if err := s.wantEnd(); err != io.EOF {
		t.Error(err)
	}
}

func TestDelayFramesAndBuffer(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	s := f.watch(watchPath)
	delay := f.Add(faultproxy.Rule{Match: onWatch, DelayFrames: 300 * time.Millisecond})
	start := time.Now()
	f.send(frame("ADDED", "1"))
	f.send(frame("ADDED", "2"))
	s.want(frame("ADDED", "1"))
	s.want(frame("ADDED", "2"))
	if d := time.Since(start); d < 300*time.Millisecond {
		t.Errorf("after %v", d)
	}
	delay.Remove()
	one := len(frame("ADDED", "1")) + 1
	const late = 2 * time.Second // later than a slow machine looks at silence
	f.Add(faultproxy.Rule{Match: onWatch, BufferBytes: 2 * one, BufferFor: late})
	f.send(frame("ADDED", "3"))
	s.wantSilence()
	f.send(frame("ADDED", "4"))
	s.want(frame("ADDED", "3"))
	s.want(frame("ADDED", "4"))
	start = time.Now()
	f.send(frame("ADDED", "5"))
	s.want(frame("ADDED", "5"))
	if d := time.Since(start); d < late {
		t.Errorf("after %v", d)
	}
}

func TestAnswer(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	f.Add(faultproxy.Rule{Times: 1, Answer: &faultproxy.Answer{Code: 429, RetryAfter: 7 * time.Second}})
	resp, err := f.do("GET", watchPath, "")
	if err != nil || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" {
		t.Fatalf("%v %v", resp, err)
	}
	f.Add(faultproxy.Rule{Times: 1, Delay: 200 * time.Millisecond, Answer: &faultproxy.Answer{Status: faultproxy.ResourceVersionTooLarge(), Pretty: true}})
	start := time.Now()
	resp, err = f.do("GET", watchPath, "")
	if err != nil || resp.StatusCode != 504 || time.Since(start) < 200*time.Millisecond {
		t.Fatalf("%v %v after %v", resp, err, time.Since(start))
	}
	if body, _ := io.ReadAll(resp.Body); strings.Count(string(body), "\n") < 5 {
		t.Errorf("not pretty: %s", body)
	}
	if seen := f.api.requests(); len(seen) != 0 {
		t.Errorf("forwarded: %q", seen)
	}
}

func TestDropResponseOfAWriteThatWasExecuted(t *testing.T) {
	eachProtocol(t, func(t *testing.T, cfg faultproxy.Config) {
		f := setup(t, cfg)
		f.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"update"}}, Times: 1, DropResponse: true})
		if resp, err := f.do("PUT", objPath, "{}"); err == nil {
			t.Fatalf("answered: %v", resp)
		}
		want := []string{"PUT " + objPath + " {}"}
		if diff := cmp.Diff(want, f.api.requests()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHoldAndScope(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	s := f.watch(watchPath)
	f.Add(faultproxy.Rule{Match: onWatch, Scope: faultproxy.OnlyNew, StripBookmarks: true})
	f.send(frame("BOOKMARK", "1"))
	s.want(frame("BOOKMARK", "1"))

	var held []faultproxy.Request
	release := make(chan struct{})
	fault := f.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"get"}}, Hold: func(ctx context.Context, r faultproxy.Request) {
		held = append(held, r)
		<-release
	}})
	done := make(chan error, 1)
	go func() {
		_, err := f.do("GET", objPath, "")
		done <- err
	}()
	if err := fault.WaitHits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	wantPending(t, done)
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(held) != 1 || held[0].Name != "x" || held[0].Verb != "get" || held[0].UserAgent != "tester" {
		t.Errorf("%+v", held)
	}
}

func TestOpaqueResourceVersions(t *testing.T) {
	f := setup(t, faultproxy.Config{OpaqueResourceVersions: true})
	resp, err := f.do("GET", objPath, "")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if want := strings.Replace(f.api.body, "123", "opaque.321", 1); string(body) != want {
		t.Errorf("got %s, want %s", body, want)
	}
	if _, err := f.do("PUT", objPath, string(body)); err != nil {
		t.Fatal(err)
	}
	s := f.watch(watchPath + "&resourceVersion=opaque.321")
	f.send(frame("ADDED", "1240"))
	s.want(frame("ADDED", "opaque.0421"))
	want := []string{"GET " + objPath, "PUT " + objPath + " " + f.api.body, "GET " + watchPath + "&resourceVersion=123"}
	if diff := cmp.Diff(want, f.api.requests()); diff != "" {
		t.Error(diff)
	}
}

func TestClearResources(t *testing.T) {
	f := setup(t, faultproxy.Config{OpaqueResourceVersions: true, ClearResources: []string{"configmaps"}})
	resp, err := f.do("GET", objPath, "")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != f.api.body {
		t.Errorf("got %s, want %s", body, f.api.body)
	}
	s := f.watch(watchPath)
	f.send(frame("ADDED", "1240"))
	s.want(frame("ADDED", "1240"))
}

func TestCountsAndTokens(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	f.client = f.newClient(&rest.Config{UserAgent: "other", BearerToken: "secret"})
	for range 2 {
		if _, err := f.do("GET", objPath, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.do("GET", "/version", ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"get configmaps": 2, "get /version": 1}, f.Counts(faultproxy.Match{UserAgentPrefix: "oth"})); diff != "" {
		t.Error(diff)
	}
	if n := f.Count(faultproxy.Match{UserAgentPrefix: "tester"}); n != 0 {
		t.Errorf("%d by nobody", n)
	}
	if got := f.api.requests()[0]; !strings.HasSuffix(got, "Bearer secret") {
		t.Errorf("the token did not arrive: %s", got)
	}
	if r := f.Requests(faultproxy.Match{Resource: "configmaps"})[0]; r.Code != 200 || r.Bytes != int64(len(f.api.body)) || r.Connection != 1 {
		t.Errorf("%+v", r)
	}
}

func TestCloseEndsEverythingAtOnce(t *testing.T) {
	eachProtocol(t, func(t *testing.T, cfg faultproxy.Config) {
		before := runtime.NumGoroutine()
		t.Run("inner", func(t *testing.T) {
			f := setup(t, cfg)
			s := f.watch(watchPath)
			f.Add(faultproxy.Rule{Freeze: faultproxy.FreezeStream})
			f.watch(watchPath)
			f.BlackHole()
			start := time.Now()
			f.Close()
			if d := time.Since(start); d > 10*time.Second { // it waits for nobody
				t.Errorf("took %v", d)
			}
			if err := s.wantEnd(); err == io.EOF {
				t.Error("a clean end")
			}
		})
		deadline := time.Now().Add(patience)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Fatalf("%d goroutines, were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
			<-time.After(10 * time.Millisecond)
		}
	})
}

func TestAddRefusesNonsense(t *testing.T) {
	f := setup(t, faultproxy.Config{})
	for name, rule := range map[string]faultproxy.Rule{
		"verb":  {Match: faultproxy.Match{Verbs: []string{"WATCH"}}},
		"scope": {Scope: faultproxy.OnlyOpen, Answer: &faultproxy.Answer{}},
		"drop":  {DropResponse: true, Close: faultproxy.EOF},
		"minus": {Delay: -1},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			f.Add(rule)
		}()
	}
}
