package applicationroute

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
