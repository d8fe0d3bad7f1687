package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

var (
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	conflict    = apierrors.NewConflict(deployments, "web", errors.New("the object has been modified"))
	invalid     = apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web",
		field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), -1, "must not be negative")})
	// As applyJSPatch in apiserver's patch.go answers a patch that does not apply.
	patchTest = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "",
		"testing value /metadata/uid failed: test failed", 0, false)
	fieldConflict = apierrors.NewApplyConflict([]metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "kubectl" using apps/v1 at 2026-01-02T03:04:05Z`, Field: ".spec.replicas"},
		{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "h\"pa" with subresource "scale"`, Field: ".spec.template"},
		{Type: metav1.CauseTypeFieldManagerConflict, Message: "somebody", Field: ".spec.paused"},
	}, "Apply failed with 3 conflicts")
)

func TestClassify(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   controller.Class
	}{
		"nil":             {"no error is done", nil, controller.ClassDone},
		"plain":           {"an unknown error may pass", io.EOF, controller.ClassRetry},
		"context":         {"a deadline of the Reconciler's own is an error like any other", context.DeadlineExceeded, controller.ClassRetry},
		"not found":       {"most API errors may pass", apierrors.NewNotFound(deployments, "web"), controller.ClassRetry},
		"forbidden":       {"RBAC can be mended", apierrors.NewForbidden(deployments, "web", io.EOF), controller.ClassRetry},
		"unavailable":     {"an outage passes", apierrors.NewServiceUnavailable("starting"), controller.ClassRetry},
		"exists":          {"a 409, but what stands in the way stays there", apierrors.NewAlreadyExists(deployments, "web"), controller.ClassRetry},
		"conflict":        {"an optimistic lock failed", conflict, controller.ClassConflict},
		"conflict, wraps": {"wrapping does not change what it is", fmt.Errorf("write status: %w", fmt.Errorf("update: %w", conflict)), controller.ClassConflict},
		"409 from a proxy": {"the code counts where the body says nothing",
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusConflict}}, controller.ClassConflict},
		"apply conflict":   {"another manager owns the field", fieldConflict, controller.ClassFieldConflict},
		"invalid":          {"the content was refused", invalid, controller.ClassInvalid},
		"patch test":       {"a test of our JSON patch failed: somebody was faster", patchTest, controller.ClassConflict},
		"patch test, wire": {"the same after a trip through JSON", overTheWire(t, patchTest), controller.ClassConflict},
		"invalid, wire":    {"a refusal stays one after a trip through JSON", overTheWire(t, invalid), controller.ClassInvalid},
		"webhook 422": {"a webhook's refusal has no details at all",
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "denied"}}, controller.ClassInvalid},
		"stale":            {"the Reconciler says so", controller.ErrStale, controller.ClassStale},
		"stale, wraps":     {"with words around it", fmt.Errorf("deployment web: %w", controller.ErrStale), controller.ClassStale},
		"stale, by Is":     {"errors.Is counts", isStale{}, controller.ClassStale},
		"terminal":         {"explicit", controller.Terminal(io.EOF), controller.ClassTerminal},
		"terminal, wraps":  {"marked deep inside", fmt.Errorf("render: %w", controller.Terminal(io.EOF)), controller.ClassTerminal},
		"terminal outside": {"the outermost mark wins", controller.Terminal(conflict), controller.ClassTerminal},
		"joined":           {"a Terminal part must not park a retryable one", errors.Join(controller.Terminal(io.EOF), io.ErrUnexpectedEOF), controller.ClassRetry},
		"joined, alike":    {"all parts are Terminal", errors.Join(controller.Terminal(io.EOF), controller.Terminal(io.EOF)), controller.ClassTerminal},
		"terminal of many": {"marked as a whole", controller.Terminal(errors.Join(io.EOF, conflict)), controller.ClassTerminal},
		"two verbs":        {"several %w are a join", fmt.Errorf("%w and %w", invalid, conflict), controller.ClassConflict},
		"aggregate":        {"errors.As does not look into apimachinery's aggregate", utilerrors.NewAggregate([]error{conflict, invalid}), controller.ClassConflict},
	} {
		t.Run(name, func(t *testing.T) {
			if got := controller.Classify(tc.err); got != tc.want {
				t.Errorf("%s: Classify(%v) = %s, want %s", tc.reason, tc.err, got, tc.want)
			}
		})
	}
}

type isStale struct{}

func (isStale) Error() string        { return "behind" }
func (isStale) Is(target error) bool { return target == controller.ErrStale }

// overTheWire is err as a client sees it.
func overTheWire(t *testing.T, err *apierrors.StatusError) error {
	t.Helper()
	data, jsonErr := json.Marshal(err.Status())
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	var status metav1.Status
	if jsonErr := json.Unmarshal(data, &status); jsonErr != nil {
		t.Fatal(jsonErr)
	}
	return apierrors.FromObject(&status)
}

func TestTerminalKeepsMessageAndChain(t *testing.T) {
	err := controller.Terminal(fmt.Errorf("bad image: %w", io.EOF))
	if err.Error() != "bad image: EOF" || !errors.Is(err, io.EOF) {
		t.Errorf("Terminal changed the error to %q", err)
	}
	if controller.Terminal(nil) != nil {
		t.Error("Terminal(nil) is an error")
	}
}

func TestFieldConflicts(t *testing.T) {
	want := []controller.OwnedField{
		{Manager: "kubectl", Field: ".spec.replicas"},
		{Manager: `h"pa`, Field: ".spec.template"},
		{Manager: "somebody", Field: ".spec.paused"},
	}
	if diff := cmp.Diff(want, controller.FieldConflicts(errors.Join(io.EOF, fmt.Errorf("apply: %w", fieldConflict)))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, err := range []error{nil, io.EOF, conflict, invalid} {
		if got := controller.FieldConflicts(err); got != nil {
			t.Errorf("FieldConflicts(%v) = %v, want none", err, got)
		}
	}
}
