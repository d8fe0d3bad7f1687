package conditions

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

// reasonNamespaceTerminating is that of a [Problem] in a namespace that is being
// deleted.
const reasonNamespaceTerminating = "NamespaceTerminating"

// Problem is what keeps an object from being Ready.
type Problem struct {
	Reason, Message string
	// Lasting: time alone does not mend it.
	Lasting bool
}

// maxMessage bounds a server's words in a condition; the API allows 32 KiB.
const maxMessage = 1024

// ProblemOf sorts an error for people, by types and causes. That of nil is nil.
func ProblemOf(err error) *Problem {
	if err == nil {
		return nil
	}
	p := &Problem{Message: err.Error(), Lasting: true}
	if len(p.Message) > maxMessage {
		// Half a character would be stored as another one, and so be written anew
		// by every pass.
		p.Message = strings.ToValidUTF8(p.Message[:maxMessage], "") + "…"
	}
	var notOwned child.NotOwnedError
	fields := controller.FieldConflicts(err)
	class := controller.Classify(err)
	switch {
	case NamespaceTerminating(err):
		p.Reason, p.Message = reasonNamespaceTerminating, "the namespace is being deleted: nothing can be created in it"
	case errors.As(err, &notOwned):
		p.Reason, p.Message = "ChildNotOwned", notOwned.Error()
	case len(fields) > 0:
		p.Reason, p.Message = "FieldConflict", fmt.Sprintf("%s is owned by field manager %q", fields[0].Field, fields[0].Manager)
	case class == controller.ClassInvalid:
		p.Reason = "Invalid"
	case apierrors.IsForbidden(err):
		p.Reason = "Forbidden"
	case class == controller.ClassTerminal:
		p.Reason = "Terminal"
	default:
		p.Reason, p.Lasting = string(apierrors.ReasonForError(err)), false
		if p.Reason == "" {
			p.Reason = "ReconcileError"
		}
	}
	return p
}

// NamespaceTerminating says whether the API server refused to create something
// because its namespace is being deleted.
func NamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
