package applicationroute

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// What no event tells is looked at again.
func TestUncheckedSecretIsLookedAtAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		unchecked string
		listed    bool
		want      time.Duration
	}{
		"Checked":   {"nothing to wait for", "", true, 0},
		"NoGet":     {"the rule may be granted", "must not be read", true, unavailableRecheck},
		"NotListed": {"its granting is a change of state", "must not be listed", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t)
			if !tc.listed {
				c.secretsKind.source.(*fakeSource).snapshot = informer.Snapshot{State: informer.StateUnlistable, Reason: informer.Forbidden}
			}
			route := testRoute()
			seen := observed{gateway: testGateway, hostnames: route.Spec.Hostnames, secretUnchecked: tc.unchecked}
			route.Status = *computeStatus(route, seen, metav1.Now()) // nothing to write
			if got, err := c.report(t.Context(), route, seen); err != nil || got.After != tc.want {
				t.Errorf("%s: got %+v, %v, want %s", tc.reason, got, err, tc.want)
			}
		})
	}
}

// That a child's place is taken is nothing to retry for; what else went wrong may be.
func TestTerminalBesideARetryableError(t *testing.T) {
	notOwned := controller.Terminal(child.NotOwnedError{Kind: kindHTTPRoute, Name: "web", Owner: "nobody", For: kind})
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   controller.Class
	}{
		"Alone":   {"only a change helps", notOwned, controller.ClassTerminal},
		"Twice":   {"as little", errors.Join(notOwned, notOwned), controller.ClassTerminal},
		"Refused": {"nor does this need more than a rare look", errors.Join(apierrors.NewInvalid(groupKind, "web", nil), notOwned), controller.ClassInvalid},
		"Server":  {"the type of the Secret may be told the next time", errors.Join(apierrors.NewInternalError(errors.New("no")), notOwned), controller.ClassRetry},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestController(t)
			route := testRoute()
			seen := observed{gateway: testGateway, hostnames: route.Spec.Hostnames, err: tc.err}
			route.Status = *computeStatus(route, seen, metav1.Now()) // nothing to write
			_, err := c.report(t.Context(), route, seen)
			if class := controller.Classify(err); class != tc.want {
				t.Errorf("%s: got %s (%v), want %s", tc.reason, class, err, tc.want)
			}
			if ready := route.Status.Conditions[0]; ready.Reason != "ChildNotOwned" {
				t.Errorf("%s: Ready is %s: %s", tc.reason, ready.Reason, ready.Message)
			}
		})
	}
}
