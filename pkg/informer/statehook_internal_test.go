package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// hooked is an Informer of the namespaces a and b in a bubble, each with an API
// server of its own, and what it said each time it called a function of OnState.
type hooked struct {
	*Informer[*corev1.ConfigMap]
	a, b *fakeAPI

	mu   sync.Mutex
	told []string
	more int // calls of another function
}

// calls are those since the n-th, and how many there are in all.
func (i *hooked) calls(n int) (told []string, total int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.told[n:]), len(i.told)
}

// hook runs an Informer while test runs. The API servers are as before leaves them
// when the first request comes; nil: well.
func hook(t *testing.T, before, test func(i *hooked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h, err := NewHearing(HearingConfig{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
		if err != nil {
			t.Fatal(err)
		}
		i := &hooked{a: newFakeAPI(), b: newFakeAPI()}
		apis := map[string]*fakeAPI{"a": i.a, "b": i.b}
		i.Informer, err = New(Config[*corev1.ConfigMap]{
			Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Hearing: h, Namespaces: []string{"a", "b"},
			ListerWatcher: func(namespace string) cache.ListerWatcherWithContext { return apis[namespace] },
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range i.parts {
			p.listWatch.ear.asker = apis[p.namespace]
		}
		i.OnState(func() {
			s := i.Snapshot() // outside of all locks
			var parts []string
			for _, p := range s.Namespaces {
				parts = append(parts, strings.TrimSpace(fmt.Sprint(p.Namespace, " ", p.State, " ", p.Reason)))
			}
			i.mu.Lock()
			defer i.mu.Unlock()
			i.told = append(i.told, fmt.Sprint(strings.Join(parts, ", "), ", synced ", i.HasSynced()))
		})
		i.OnState(func() {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.more++
			panic("no")
		})
		if before != nil {
			before(i)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig())))
		done := make(chan error)
		go func() { done <- i.Run(ctx) }()
		test(i)
		i.mu.Lock()
		one, another := len(i.told), i.more
		i.mu.Unlock()
		if one != another {
			t.Errorf("one function was called %d times, another one %d times", one, another)
		}
		if n := i.Snapshot().HandlerPanics; n != uint64(another) {
			t.Errorf("%d panics counted, want %d", n, another)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A controller that has told its users that a kind cannot be listed, or that it
// waits for it, has to be woken when that is no longer so, and when it becomes so.
func TestOnState(t *testing.T) {
	no := apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no"))
	gone := apierrors.NewGenericServerResponse(404, "get", corev1.Resource("configmaps"), "", "", 0, true)
	refuse := func(a *fakeAPI, err error) {
		a.with(func(a *fakeAPI) { a.refuse = func(string) error { return err } })
	}
	hook(t, func(i *hooked) { refuse(i.b, gone) }, func(i *hooked) {
		total := 0
		expect := func(what string, want ...string) {
			t.Helper()
			var got []string
			if got, total = i.calls(total); !cmp.Equal(want, got, cmpopts.EquateEmpty()) {
				t.Errorf("%s: calls %q, want %q", what, got, want)
			}
		}
		// last is for where more than one step leads there.
		last := func(what, want string) {
			t.Helper()
			var got []string
			if got, total = i.calls(total); len(got) == 0 || got[len(got)-1] != want {
				t.Errorf("%s: calls found %q, want %q last", what, got, want)
			}
		}
		pass(time.Second)
		last("start", "a hearing, b unlistable not found, synced false")

		pass(10 * time.Minute)
		expect("retries of the same")

		refuse(i.b, no)
		pass(time.Minute)
		expect("another reason", "a hearing, b unlistable forbidden, synced false")

		refuse(i.b, nil)
		pass(time.Minute)
		last("healed, and with it the first sync", "a hearing, b hearing, synced true")

		for n := range 1000 {
			i.a.put(fmt.Sprint("cm-", n%10))
		}
		pass(30 * time.Minute) // watches end and are opened again, audits
		expect("events")

		refuse(i.a, gone)
		i.a.freezeOpen()
		pass(30 * time.Minute)
		last("became unlistable", "a unlistable not found, b hearing, synced true")

		refuse(i.a, nil)
		pass(time.Minute)
		expect("healed", "a hearing, b hearing, synced true")
	})
}

// What hearing finds out is a state too, told at once.
func TestOnStateOfHearing(t *testing.T) {
	hook(t, nil, func(i *hooked) {
		pass(time.Second)
		for _, state := range []State{StateDeaf, StatePolling, StateDelayed, StateHearing} {
			i.parts[0].listWatch.ear.enter(state, "for a test")
			synctest.Wait()
			told, n := i.calls(0)
			if want := fmt.Sprintf("a %s, b hearing, synced true", state); told[n-1] != want {
				t.Errorf("the last call found %q, want %q", told[n-1], want)
			}
		}
	})
}

// Before Run there is nobody to call, and without a function nothing runs for it.
func TestOnStateIsOptional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		i, err := New(Config[*corev1.ConfigMap]{
			Resource:      corev1.SchemeGroupVersion.WithResource("configmaps"),
			ListerWatcher: func(string) cache.ListerWatcherWithContext { return api },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- i.Run(ctx) }()
		pass(time.Minute)
		if s := i.Snapshot(); s.State != StateHearing {
			t.Errorf("%+v", s)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
