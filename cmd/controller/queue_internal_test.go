package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller"
)

// runController runs a controller of two workers in a bubble and returns what asks
// its debug and health servers.
func runController(t *testing.T, reconcile controller.ReconcilerFunc) (*controller.Controller, func(method, path string) (int, string)) {
	t.Helper()
	c, err := controller.New(controller.Config{
		Name: "webapp", Workers: 2, ReconcileTimeout: time.Minute, Reconciler: reconcile,
		Keys: func() []cache.ObjectName { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/", debugHandler(nil, nil, map[string]*controller.Controller{"webapp": c}))
	handle(mux, "/healthz", []canary.Check{{Name: "webapp", Check: c.Check, Note: wedgedNote(c)}})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return c, func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, w.Body.String()
	}
}

func named(names ...string) (keys []cache.ObjectName) {
	for _, name := range names {
		keys = append(keys, cache.NewObjectName("ns", name))
	}
	return keys
}

// R43, R53: a pass that never returns and ignores its context, for as many keys as
// there are workers. Others go on, and the keys are named.
func TestWedgedKeysAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		ran := make(chan string, 100)
		c, ask := runController(t, func(_ context.Context, key cache.ObjectName) (controller.Result, error) {
			if strings.HasPrefix(key.Name, "hung") {
				<-hang
			}
			ran <- key.Name
			return controller.Result{}, nil
		})
		t.Cleanup(func() { close(hang) })
		c.Enqueue(controller.Urgent, named("hung-1", "hung-2")...)
		synctest.Wait()
		c.Enqueue(controller.Normal, named("a", "b", "c")...)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(ran) != 3 {
			t.Errorf("%d of 3 other keys have run", len(ran))
		}
		code, body := ask(http.MethodGet, "/healthz?verbose")
		if want := "[+]webapp ok: 2 wedged: ns/hung-1, ns/hung-2\n"; code != 200 || !strings.Contains(body, want) {
			t.Errorf("/healthz?verbose: %d\n%s\nwant 200 and %q", code, body, want)
		}
		_, body = ask(http.MethodGet, "/debug/queue?format=text&limit=2")
		for _, want := range []string{"ns/hung-1  Wedged  2m0s", "ns/hung-2  Wedged  2m0s", "2, 4 running, 2 wedged", "skip=2"} {
			if !strings.Contains(body, want) {
				t.Errorf("/debug/queue lacks %q:\n%s", want, body)
			}
		}
		_, body = ask(http.MethodGet, "/debug/queue")
		if want := `"wedged": [
      "ns/hung-1",
      "ns/hung-2"
    ]`; !strings.Contains(body, want) {
			t.Errorf("/debug/queue lacks %s:\n%s", want, body)
		}

		// Replacements are bounded: when they are wedged too only a restart helps.
		c.Enqueue(controller.Urgent, named("hung-3", "hung-4")...)
		time.Sleep(2 * time.Minute)
		code, body = ask(http.MethodGet, "/healthz?verbose")
		if code != 503 || !strings.Contains(body, "ns/hung-1, ns/hung-2, ns/hung-3, ns/hung-4") {
			t.Errorf("/healthz?verbose with every worker wedged: %d\n%s", code, body)
		}
	})
}

// The table for people: totals, then what is most interesting.
func TestQueueText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c, ask := runController(t, func(_ context.Context, key cache.ObjectName) (controller.Result, error) {
			switch key.Name {
			case "runs":
				<-hang
			case "fails":
				return controller.Result{}, controller.Terminal(errors.New("no such image\nforged  line"))
			case "held":
				return controller.Result{}, apierrors.NewTooManyRequests("slow down", 60)
			case "waits":
				return controller.Result{After: 90 * time.Second, Reason: "certificate is not ready"}, nil
			}
			return controller.Result{}, nil
		})
		t.Cleanup(func() { close(hang) })
		for _, key := range named("done", "fails", "waits", "held", "runs") {
			c.Enqueue(controller.Normal, key)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		code, body := ask(http.MethodGet, "/debug/queue?format=text")
		var got []string
		for line := range strings.Lines(body) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		for i, line := range got { // delays are jittered
			for _, name := range []string{"ns/fails", "ns/held"} {
				if strings.HasPrefix(line, name+" ") {
					before, rest, _ := strings.Cut(line, " in ")
					_, rest, _ = strings.Cut(rest, " ")
					got[i] = before + " in X " + rest
				}
			}
		}
		want := []string{
			"webapp: running", "",
			"Workers 2, 2 running, 0 wedged",
			"Processing 1",
			"Ready 0 urgent, 0 normal, 0 background; the oldest is due since 0s",
			"Waiting 3",
			"Failing 2, and 0 in conflicts; the oldest since 4s",
			"Frozen 0",
			"Timers 0 early, 0 left over", "",
			"KEY STATE FOR NEXT LAST RUN CLASS TRIES FAILING WHY",
			"ns/runs Processing 1s - - - 0 - -",
			"ns/fails Waiting 4s in X 4s Terminal 1 4s no such image forged line",
			"ns/held Waiting 2s in X (Retry-After) 2s Retry 1 2s slow down",
			"ns/waits Waiting 3s in 1m27s 3s Wait 0 - certificate is not ready",
			"ns/done Idle 5s - 5s Done 0 - -", "",
			"To run a waiting key now: POST /debug/queue/retry?key=namespace/name",
		}
		if diff := cmp.Diff(want, got); diff != "" || code != 200 {
			t.Errorf("status %d (-want +got):\n%s\n%s", code, diff, body)
		}

		// Pages.
		var keys []string
		for skip := 0; ; skip += 2 {
			_, body := ask(http.MethodGet, fmt.Sprintf("/debug/queue?format=text&limit=2&skip=%d", skip))
			for line := range strings.Lines(body) {
				if strings.HasPrefix(line, "ns/") {
					keys = append(keys, strings.Fields(line)[0])
				}
			}
			if !strings.Contains(body, "More with") {
				break
			}
		}
		if want := "ns/runs ns/fails ns/held ns/waits ns/done"; strings.Join(keys, " ") != want {
			t.Errorf("pages show %v, want %s", keys, want)
		}

		// Retry: what waits, whatever for.
		if code, body := ask(http.MethodPost, "/debug/queue/retry?key=ns/held"); code != 200 || !strings.Contains(body, `"webapp"`) {
			t.Errorf("retry: %d %s", code, body)
		}
		synctest.Wait()
		if s, _ := c.Key(cache.NewObjectName("ns", "held")); s.Attempts != 2 {
			t.Errorf("the key has not run again: %+v", s)
		}
		if code, _ := ask(http.MethodPost, "/debug/queue/retry?key=ns/done"); code != 404 {
			t.Errorf("retry of a key that does not wait: %d, want 404", code)
		}
		for _, path := range []string{"/debug/queue?format=xml", "/debug/queue?skip=-1", "/debug/queue?format=text&skip=x"} {
			if code, _ := ask(http.MethodGet, path); code != 400 {
				t.Errorf("%s: %d, want 400", path, code)
			}
		}
	})
}
