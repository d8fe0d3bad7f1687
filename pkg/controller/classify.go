package controller

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Class says what kind of end a pass came to. It decides when the key runs
// again, and is a label value of the reconcile metrics.
type Class string

const (
	// ClassDone: nothing left to do until something changes.
	ClassDone Class = "Done"
	// ClassWait: no error, and Result.After asks for another look.
	ClassWait Class = "Wait"
	// ClassStale: the cache has not caught up with a write of our own. Another
	// look follows after a short fixed delay; no failure is counted.
	ClassStale Class = "Stale"
	// ClassConflict: somebody else wrote in between. Retried quickly and counted
	// apart from failures; it backs off all the same if it does not end.
	ClassConflict Class = "Conflict"
	// ClassFieldConflict: server-side apply met a field that another manager
	// owns. Retried slowly: only people can settle it.
	ClassFieldConflict Class = "FieldConflict"
	// ClassRetry: any other error.
	ClassRetry Class = "Retry"
	// ClassInvalid: the API server refused the content (schema, CEL, admission
	// policy). Retried rarely, but within five minutes, since a policy can be mended
	// without touching the object.
	ClassInvalid Class = "Invalid"
	// ClassTerminal: the Reconciler says that only a change helps. Looked at
	// again every Config.TerminalRecheck all the same.
	ClassTerminal Class = "Terminal"
	// ClassDeadline: Config.ReconcileTimeout ended the pass.
	ClassDeadline Class = "Deadline"
	// ClassPanic: the pass panicked.
	ClassPanic Class = "Panic"
	// ClassFrozen: the gate keeps the key from being reconciled.
	ClassFrozen Class = "Frozen"
)

// Classes returns every Class there is, for metrics that start at zero.
func Classes() []Class {
	return []Class{
		ClassDone, ClassWait, ClassStale, ClassConflict, ClassFieldConflict, ClassRetry,
		ClassInvalid, ClassTerminal, ClassDeadline, ClassPanic, ClassFrozen,
	}
}

// ErrStale is returned (or wrapped) by a Reconciler that finds in the middle of
// a pass that its cache is behind a write of its own.
var ErrStale = errors.New("cache is behind a write of our own")

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }

// Terminal marks err as one that no retry can cure: the key then waits for its
// object or something it refers to to change. The message stays err's. Terminal
// of nil is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

// Classify sorts an error by what ought to happen next. It goes by types,
// reasons and causes, never by text, and is never asked for ClassDeadline,
// ClassPanic or ClassFrozen, which the worker alone can know.
//
// The outermost mark wins. Of joined errors (errors.Join, several %w, an
// apimachinery Aggregate) the part that most needs a plain retry decides, so that
// a Terminal part never parks the retryable one beside it.
func Classify(err error) Class {
	if err == nil {
		return ClassDone
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if parts := joined(err); len(parts) > 0 {
			return mostRetryable(parts)
		}
		if _, ok := err.(*terminalError); ok {
			return ClassTerminal
		}
		if err == ErrStale {
			return ClassStale
		}
		if is, ok := err.(interface{ Is(error) bool }); ok && is.Is(ErrStale) {
			return ClassStale
		}
		if s, ok := err.(apierrors.APIStatus); ok {
			return classifyStatus(s.Status())
		}
	}
	return ClassRetry
}

// joined returns the parts of an error that has several.
func joined(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Errors() []error }: // apimachinery's Aggregate, which errors.As does not look into
		return e.Errors()
	}
	return nil
}

// retryability orders classes: earlier ones win among joined errors.
var retryability = []Class{
	ClassRetry, ClassConflict, ClassStale, ClassFieldConflict, ClassInvalid, ClassTerminal,
}

func mostRetryable(parts []error) Class {
	best := len(retryability) - 1
	for _, part := range parts {
		if part == nil {
			continue
		}
		best = min(best, slices.Index(retryability, Classify(part)))
	}
	return retryability[best]
}

func classifyStatus(s metav1.Status) Class {
	switch {
	case s.Reason == metav1.StatusReasonConflict,
		s.Reason == metav1.StatusReasonUnknown && s.Code == http.StatusConflict:
		if len(managerCauses(s)) > 0 {
			return ClassFieldConflict
		}
		return ClassConflict
	// AlreadyExists is a 409 too, but not a race that a quick retry wins: an
	// object that stands in the way stays there, so it has to count as failing.
	case s.Reason == metav1.StatusReasonInvalid,
		s.Reason == metav1.StatusReasonUnknown && s.Code == http.StatusUnprocessableEntity:
		if isPatchTest(s) {
			return ClassConflict
		}
		return ClassInvalid
	}
	return ClassRetry
}

// isPatchTest tells a JSON patch that did not apply (a failed "test", a path that
// is gone) from content that was refused. The API server answers both with 422
// Invalid; but the first is made by NewGenericServerResponse without a resource
// (applyJSPatch in apiserver's patch.go), so its details are present and empty,
// while validation and policies always say what they refused.
func isPatchTest(s metav1.Status) bool {
	d := s.Details
	return d != nil && d.Kind == "" && d.Group == "" && d.Name == "" && len(d.Causes) == 0
}

func managerCauses(s metav1.Status) []metav1.StatusCause {
	if s.Details == nil {
		return nil
	}
	var causes []metav1.StatusCause
	for _, cause := range s.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			causes = append(causes, cause)
		}
	}
	return causes
}

// OwnedField is a field that server-side apply refused to take from another
// manager.
type OwnedField struct {
	// Manager is the other field manager's name.
	Manager string `json:"manager"`
	// Field is its path as the API server writes it, such as ".spec.replicas".
	Field string `json:"field"`
}

// FieldConflicts lists the fields behind a ClassFieldConflict, in the server's
// order, for a condition that names them. It returns nil for any other error.
func FieldConflicts(err error) []OwnedField {
	var fields []OwnedField
	eachStatus(err, func(s metav1.Status) {
		if s.Code != http.StatusConflict && s.Reason != metav1.StatusReasonConflict {
			return
		}
		for _, cause := range managerCauses(s) {
			fields = append(fields, OwnedField{Manager: managerIn(cause.Message), Field: cause.Field})
		}
	})
	return fields
}

// managerIn reads the manager's name from a cause, whose text is the only place
// that has it: `conflict with "kubectl" using apps/v1`. Text in any other form is
// returned as it is.
func managerIn(message string) string {
	_, rest, ok := strings.Cut(message, "conflict with ")
	if !ok {
		return message
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return message
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return message
	}
	return name
}

// maxRetryAfter bounds the Retry-After that is believed: a broken proxy must not
// be able to park a key for days.
const maxRetryAfter = time.Hour

// retryAfter returns the longest delay that an API server asks for in err, or 0.
func retryAfter(err error) time.Duration {
	var longest time.Duration
	eachStatus(err, func(s metav1.Status) {
		if seconds, ok := apierrors.SuggestsClientDelay(&apierrors.StatusError{ErrStatus: s}); ok {
			longest = max(longest, time.Duration(seconds)*time.Second)
		}
	})
	return min(longest, maxRetryAfter)
}

// eachStatus calls f for every API status in err's tree.
func eachStatus(err error, f func(metav1.Status)) {
	for ; err != nil; err = errors.Unwrap(err) {
		for _, part := range joined(err) {
			eachStatus(part, f)
		}
		if s, ok := err.(apierrors.APIStatus); ok {
			f(s.Status())
			return
		}
	}
}
