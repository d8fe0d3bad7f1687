package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A process that is stopped between the admission of a write and its bytes, and
// wakes up when the lease may be another's, must not send them.
func TestFenceLooksAgainWhenBytesAreWritten(t *testing.T) {
	for name, c := range map[string]struct {
		slept time.Duration
		sent  bool
	}{
		"within the lease": {slept: 14 * time.Second, sent: true},
		"past the lease":   {slept: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var received atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Store(true) }))
			defer server.Close()
			clock := &fakeClock{reading{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}
			f := newFence(10*time.Second, 15*time.Second, clock.read)
			f.renew(clock.read())
			f.open()
			defer f.close()
			transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := f.dial(ctx, network, address)
				clock.step(c.slept, c.slept)
				return conn, err
			}}
			defer transport.CloseIdleConnections()

			request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := f.wrap(transport).RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if received.Load() != c.sent {
				t.Errorf("received %t, want %t; the client got %v", received.Load(), c.sent, err)
			}
			if !c.sent && !errors.Is(err, ErrNotLeading) {
				t.Errorf("got %v, want an ErrNotLeading", err)
			}
		})
	}
}

// Every client that writes has both: the first one that lacked the second was found
// by reading.
func TestFencedConfig(t *testing.T) {
	config := fencedConfig(&rest.Config{Host: "https://127.0.0.1:1"}, newFence(10*time.Second, 15*time.Second, systemClock()), "steadwatch-webapp", 5, 10)
	if config.WrapTransport == nil || config.Dial == nil {
		t.Fatalf("wrapped %t, dialled %t, want both", config.WrapTransport != nil, config.Dial != nil)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{})
	if !errors.Is(err, ErrNotLeading) {
		t.Errorf("got %v, want an ErrNotLeading", err)
	}
}
