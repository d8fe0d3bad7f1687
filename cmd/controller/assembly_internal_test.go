package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

func TestTogether(t *testing.T) {
	broken := errors.New("broken")
	wait := func(ctx context.Context) error { <-ctx.Done(); return nil }
	cases := map[string]struct {
		reason string
		leads  []func(context.Context) error
		cancel bool // the term ends
		want   error
	}{
		"End":     {"all are joined", []func(context.Context) error{wait, wait}, true, nil},
		"Fails":   {"the others end too", []func(context.Context) error{wait, func(context.Context) error { return broken }}, false, broken},
		"Running": {"the lease must not be released", []func(context.Context) error{func(ctx context.Context) error { <-ctx.Done(); return controller.ErrWorkersRunning }, wait}, true, controller.ErrWorkersRunning},
		"Returns": {"one that has nothing to do ends no other", []func(context.Context) error{func(context.Context) error { return nil }, wait}, true, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error, 1)
				var cause error
				leads := append(tc.leads, func(ctx context.Context) error { <-ctx.Done(); cause = context.Cause(ctx); return nil })
				go func() { done <- together(leads...)(ctx) }()
				synctest.Wait()
				if tc.cancel {
					select {
					case err := <-done:
						t.Fatalf("%s: ended by itself with %v", tc.reason, err)
					default:
					}
					cancel(controller.ErrAbort)
				}
				if err := <-done; !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
					t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
				}
				if tc.cancel && cause != controller.ErrAbort {
					t.Errorf("a lead saw the cause %v: passes would go on although the lease is lost", cause)
				}
			})
		})
	}
}
