package informer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// dead dials a peer that takes everything and says nothing.
func dead(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	return near, nil
}

func dial(t *testing.T, c *Connection) net.Conn {
	t.Helper()
	conn, err := c.dialer.DialContext(t.Context(), "tcp", "api:443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func isOpen(conn net.Conn) bool {
	_, err := conn.Write([]byte("x"))
	return err == nil
}

// Namespaces that poll share connections: what one has just opened is not cut by the
// other.
func TestConnectionRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConnection(&rest.Config{Host: "http://api", Dial: dead})
		first := dial(t, c)
		c.renew(13 * time.Second)
		if isOpen(first) {
			t.Error("the first connection is open")
		}
		second := dial(t, c)
		time.Sleep(8 * time.Second)
		c.renew(13 * time.Second)
		if !isOpen(second) {
			t.Error("a connection was closed that was new")
		}
		time.Sleep(8 * time.Second)
		c.renew(13 * time.Second)
		if isOpen(second) {
			t.Error("a connection is open that is old")
		}
		third := dial(t, c)
		c.Close()
		if isOpen(third) {
			t.Error("open after Close")
		}
	})
}

// Where it is the connection that has gone silent another watch on it is silent too.
func TestRemediesLeaveTheConnection(t *testing.T) {
	for name, test := range map[string]struct {
		fault func(*fakeAPI)
		state State
	}{
		"deaf":    {func(a *fakeAPI) { a.freezeOpen() }, StateHearing},
		"polling": {func(a *fakeAPI) { a.with(func(a *fakeAPI) { a.frozen, a.mute = true, true }); a.freezeOpen() }, StatePolling},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				c := NewConnection(&rest.Config{Host: "http://api", Dial: dead})
				i.parts[0].listWatch.ear.connection = c
				conn := dial(t, c)
				test.fault(a)
				a.put("x")
				i.within(70*time.Second, "the change", i.current)
				i.wait(time.Second)
				i.expectState(test.state)
				if isOpen(conn) {
					t.Error("the connection is still in use")
				}
				again := dial(t, c)
				i.wait(time.Minute)
				if open := isOpen(again); open != (test.state == StateHearing) {
					t.Errorf("a minute later: the next connection is in use: %v", open)
				}
				conn.Close()
				again.Close()
			})
		})
	}
}

// pipes is a listener for what is dialed in a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// askInBubble serves what an asker asks over pipes. If the first connection that is
// dialed is dead nothing comes back over it.
func askInBubble(t *testing.T, serve http.HandlerFunc, firstIsDead bool, test func(h *Hearing, a *asker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			serve(w, r)
		})}
		served := make(chan error)
		go func() { served <- server.Serve(listener) }()
		var dialed atomic.Int32
		h, err := NewHearing(HearingConfig{Config: &rest.Config{
			Host:  "http://api",
			Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if dialed.Add(1) == 1 && firstIsDead {
					return dead(ctx, network, address)
				}
				near, far := net.Pipe()
				listener <- far
				return near, nil
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		test(h, h.newAsker(corev1.SchemeGroupVersion.WithResource("configmaps"), ""))
		h.current().close()
		close(listener)
		server.Close()
		<-served
	})
}

// The process's own connection may be the one that is dead: the question is asked
// again on another, which is kept. So is a page of an audit.
func TestQuestionsLeaveADeadConnection(t *testing.T) {
	for name, ask := range map[string]func(*asker) error{
		"question": func(a *asker) error {
			got := a.ask(context.Background(), "110")
			if got.kind != quiet || got.resourceVersion != "120" {
				return fmt.Errorf("answer %+v", got)
			}
			return nil
		},
		"audit": func(a *asker) error {
			got, err := a.list(context.Background())
			if err == nil && got.resourceVersion != "120" {
				err = fmt.Errorf("listing %+v", got)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			askInBubble(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") == "" {
					fmt.Fprint(w, emptyList)
					return
				}
				fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"120"}}}`)
			}, true, func(h *Hearing, a *asker) {
				first := h.current()
				for n, most := range []time.Duration{pageTimeout + time.Second, time.Second} {
					began := time.Now()
					if err := ask(a); err != nil {
						t.Errorf("question %d: %v", n, err)
					}
					if took := time.Since(began); took > most {
						t.Errorf("question %d took %s", n, took)
					}
				}
				if h.current() == first {
					t.Error("the dead connection was kept")
				}
			})
		})
	}
}

const emptyList = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"120"},"items":[]}`

// Watches are silent on every connection, and one of them is dead: the audit that
// follows does not wait for that one.
func TestMuteLeavesADeadConnection(t *testing.T) {
	askInBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, emptyList)
	}, false, func(h *Hearing, a *asker) {
		lost := rest.CopyConfig(h.config)
		lost.Dial = dead
		first, err := newLink(lost)
		if err != nil {
			t.Fatal(err)
		}
		h.link = first
		if got := a.ask(context.Background(), "110"); got.kind != mute {
			t.Errorf("answer %+v", got)
		}
		began := time.Now()
		if _, err := a.list(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second || h.current() == first {
			t.Errorf("the audit took %s, on another connection: %v", took, h.current() != first)
		}
		second := h.current()
		if got := a.ask(context.Background(), "110"); got.kind != mute || h.current() != second {
			t.Errorf("answer %+v; a connection that answers was kept: %v", got, h.current() == second)
		}
	})
}

// Slow is not away: a watch that is open may deliver all the same.
func TestQuestionsTellSlowFromAway(t *testing.T) {
	for name, test := range map[string]struct {
		latency time.Duration
		want    answerKind
		reason  Reason
	}{
		"slow": {12 * time.Second, refused, Other},
		"away": {time.Hour, unreachable, Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			askInBubble(t, func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
				case <-time.After(test.latency):
					fmt.Fprint(w, emptyList)
				}
			}, false, func(_ *Hearing, a *asker) {
				began := time.Now()
				got := a.ask(context.Background(), "110")
				if got.kind != test.want || classify(got.err) != test.reason {
					t.Errorf("%s: %v (%s)", got.kind, got.err, classify(got.err))
				}
				if took := time.Since(began); took > 26*time.Second {
					t.Errorf("took %s", took)
				}
				if err := a.reach(context.Background()); (err == nil) != (test.want == refused) {
					t.Errorf("reach: %v", err)
				}
			})
		})
	}
}

// What an audit cannot be made of. Each would have been believed.
func TestListsThatSayNothing(t *testing.T) {
	page := func(revision, token, items string) string {
		return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"` + revision + `","continue":"` + token + `"},"items":[` + items + `]}`
	}
	item := func(name, revision string) string {
		return `{"metadata":{"namespace":"ns","name":"` + name + `","uid":"u","resourceVersion":"` + revision + `"}}`
	}
	for name, test := range map[string]struct {
		reason string
		page   func(token string, n int) string
		want   string
	}{
		"limit ignored":         {"all in one page is fine", func(string, int) string { return page("120", "", item("a", "1")+","+item("b", "2")) }, ""},
		"token ignored":         {"the first page again and again", func(string, int) string { return page("120", "t", item("a", "1")) }, errRepeated.Error()},
		"token ignored, others": {"with other tokens", func(_ string, n int) string { return page("120", fmt.Sprint("t", n), item("a", "1")) }, errRepeated.Error()},
		"no revision":           {"as aggregated API servers without storage", func(string, int) string { return page("", "", "") }, `resourceVersion ""`},
		"revision 0":            {"a revision of nothing", func(string, int) string { return page("0", "", item("a", "1")) }, `resourceVersion "0"`},
		"older than its items":  {"another counter", func(string, int) string { return page("7", "", item("a", "120")) }, "resourceVersion 7 and in it ns/a of 120"},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			askInBubble(t, func(w http.ResponseWriter, r *http.Request) {
				n++
				fmt.Fprint(w, test.page(r.URL.Query().Get("continue"), n))
			}, false, func(_ *Hearing, a *asker) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				_, err := a.list(ctx)
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: %v", test.reason, err)
				}
				if n > 3 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// A Connection whose connections are not its own is found when it is used.
func TestConnectionIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		config *rest.Config
		want   string
	}{
		"nil":       {nil, "informer of configmaps: Config.Connection was made from nil: give NewConnection the rest.Config that reaches the API server"},
		"Transport": {&rest.Config{Transport: http.DefaultTransport}, "informer of configmaps: Config.Connection was made from a rest.Config with a Transport, whose connections cannot be told apart and closed: leave Transport empty and set TLSClientConfig, Dial or WrapTransport"},
		"plain":     {&rest.Config{Host: "http://api"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Config[*corev1.ConfigMap]{
				Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Connection: NewConnection(test.config),
				ListerWatcher: func(string) cache.ListerWatcherWithContext { return newFakeAPI() },
			})
			if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// After a rewind what is cached may be newer than what the API server holds: the next
// list leaves bad objects out, and that one alone.
func TestNothingStandsInAfterARewind(t *testing.T) {
	lw := boundTo(t, gadgetClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"GadgetList","apiVersion":"test.steadwatch.dev/v1","metadata":{"resourceVersion":"60"},"items":[`+wire("x", "u", "50", unfit)+`]}`)
	}), heldGadget("x", "u", "70"))
	for n, want := range []int{1, 0, 1} {
		if n == 1 {
			lw.quarantine.standInNever()
		}
		list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(list.(*internalversion.List).Items); got != want {
			t.Errorf("list %d: %d objects, want %d", n, got, want)
		}
	}
}
