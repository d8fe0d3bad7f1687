package informer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
			synctest.Test(t, func(t *testing.T) {
				listener := make(pipes)
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					if r.URL.Query().Get("watch") == "" {
						fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"120"},"items":[]}`)
						return
					}
					fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"120"}}}`)
				})}
				served := make(chan error)
				go func() { served <- server.Serve(listener) }()
				dialed := 0
				h, err := NewHearing(HearingConfig{Config: &rest.Config{
					Host:  "http://api",
					Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						if dialed++; dialed == 1 {
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
				a := h.newAsker(corev1.SchemeGroupVersion.WithResource("configmaps"), "")
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
				h.current().close()
				close(listener)
				server.Close()
				<-served
			})
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
