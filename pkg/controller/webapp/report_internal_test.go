package webapp

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

// That the Service's place is taken is nothing to retry for; that the Deployment could
// not be written may be.
func TestTerminalBesideARetryableError(t *testing.T) {
	notOwned := controller.Terminal(child.NotOwnedError{Kind: "Service", Name: "web", Owner: "nobody", For: "WebApp"})
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   controller.Class
	}{
		"Alone":  {"only a change helps", errors.Join(nil, notOwned), controller.ClassTerminal},
		"Server": {"the next try may do", errors.Join(apierrors.NewInternalError(errors.New("no")), notOwned), controller.ClassRetry},
	} {
		t.Run(name, func(t *testing.T) {
			app, seen := testApp(), observed{err: tc.err}
			app.Status = *computeStatus(app, seen, metav1.Now()) // nothing to write
			_, err := newTestController(t).report(t.Context(), app, seen)
			if class := controller.Classify(err); class != tc.want {
				t.Errorf("%s: got %s (%v), want %s", tc.reason, class, err, tc.want)
			}
		})
	}
}
