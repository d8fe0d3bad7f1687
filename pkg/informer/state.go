package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
)

// State says how the local copy of a resource is doing.
type State string

const (
	// StateStarting: not filled yet, and nothing speaks against it.
	StateStarting State = "starting"
	// StateHearing: filled, and as far as is known the watch tells everything. With
	// Config.Hearing that is made sure of; without it is merely what the last attempt
	// to watch has led to.
	StateHearing State = "hearing"
	// StateDelayed: the watch tells everything, but late.
	StateDelayed State = "delayed"
	// StateDeaf: the watch does not tell what has happened. It is being opened again,
	// unless the message says otherwise.
	StateDeaf State = "deaf"
	// StatePolling: no watch tells what happens. What the copy holds is at most as old
	// as the time between two lists.
	StatePolling State = "polling"
	// StateUnlistable: the last attempt to list or watch was refused, or with
	// Config.Hearing nothing is answered; the Reason says why. What the copy held stays
	// readable.
	StateUnlistable State = "unlistable"
)

// Reason says why a resource is StateUnlistable.
type Reason string

const (
	Forbidden    Reason = "forbidden"
	Unauthorized Reason = "unauthorized"
	NotFound     Reason = "not found"
	Unreachable  Reason = "unreachable"
	Throttled    Reason = "throttled"
	Conversion   Reason = "conversion"
	// Corrupt: the API server cannot decode an object that etcd holds.
	Corrupt     Reason = "corrupt object"
	Expired     Reason = "expired"
	ServerError Reason = "server error"
	Other       Reason = "other"
)

const (
	// maxMessage bounds the server's words, in bytes, in logs and snapshots.
	maxMessage = 512
	// remindAfter is how often a refusal that lasts is logged again.
	remindAfter = 10 * time.Minute
	// healthyAfter is how long a resource has to be well before the same
	// refusal counts as a new one and is logged at once; flapping is not news.
	healthyAfter = time.Minute
)

// classify finds the Reason of an error of List or Watch.
func classify(err error) Reason {
	var netErr net.Error
	switch {
	// A broken conversion has no status reason of its own: the API server
	// passes the words of its apiextensions converter on, mostly as a 500, or
	// within those of a corrupt object. It goes first: nothing is wrong in etcd then.
	case mentionsConversion(err):
		return Conversion
	case mentionsCorruption(err):
		return Corrupt
	case apierrors.IsForbidden(err):
		return Forbidden
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case apierrors.IsNotFound(err):
		return NotFound
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return Expired
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if status.Status().Code >= http.StatusInternalServerError {
			return ServerError
		}
		return Other
	}
	if utilnet.IsConnectionRefused(err) || utilnet.IsProbableEOF(err) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) ||
		errors.Is(err, errNoAnswer) || errors.Is(err, errNotAnswered) || errors.Is(err, errListNotAnswered) {
		return Unreachable
	}
	return Other
}

// mentionsConversion recognises what apiextensions-apiserver says when it
// cannot convert a stored object: the webhook did not answer or refused, or
// the stored version is none of the CRD's any more.
func mentionsConversion(err error) bool {
	message := err.Error()
	return strings.Contains(message, "conversion webhook for ") || strings.Contains(message, "request to convert CR ")
}

// remedy is the way out, for the log.
func remedy(reason Reason, resource schema.GroupVersionResource, namespace string) string {
	where := "in all namespaces (ClusterRole)"
	if namespace != "" {
		where = fmt.Sprintf("in namespace %q (Role)", namespace)
	}
	switch reason {
	case Forbidden:
		return fmt.Sprintf("grant list and watch on %s %s to the ServiceAccount", resource.GroupResource(), where)
	case Unauthorized:
		return "replace the credentials: the API server does not accept this token or client certificate"
	case NotFound:
		return fmt.Sprintf("install the CRD that serves %s in version %s", resource.GroupResource(), resource.Version)
	case Unreachable:
		return "check that the API server runs, that its address can be reached from here and that its certificate is trusted"
	case Throttled:
		return "check the API server's load and its FlowSchemas and PriorityLevelConfigurations"
	case Conversion:
		return fmt.Sprintf("repair the conversion webhook of the CRD of %s, or serve the version that the object is stored in again: kubectl can neither read nor patch what cannot be converted", resource.GroupResource())
	case Corrupt:
		return fmt.Sprintf("repair the value of that object of %s in etcd or from a backup: kubectl can neither read nor patch it. "+
			"What is left to an administrator otherwise is to delete it with the option ignoreStoreReadErrorWithClusterBreakingPotential, which runs no finalizer (KEP-3926)", resource.GroupResource())
	case Expired:
		return "none needed unless it lasts: then check the API server's etcd"
	case ServerError:
		return "read the API server's log"
	default:
		return "read the message"
	}
}

// words are the server's own, without what client-go wraps around them, which
// would name the Go type instead of the resource.
func words(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Message != "" {
		return cut(status.Status().Message)
	}
	return cut(err.Error())
}

// cut bounds a message to maxMessage bytes.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}

// condition is the state of one namespace of one resource. It changes only by
// failed and succeeded and speaks up when that is news: at once, then every
// remindAfter while it lasts, and once when it is over. Retries, at most 60 s
// apart, drive the reminders, so that no timer is needed.
type condition struct {
	resource  schema.GroupVersionResource
	namespace string    // "" for all
	news      stateNews // nil: nobody wants to know
	optional  bool      // not being served is no fault

	mu       sync.Mutex
	logger   klog.Logger
	reason   Reason // "" while nothing is wrong
	message  string
	suspect  string               // the stored object that it comes of, if known
	tries    int                  // failed alike since since
	walkedAt time.Time            // when it was looked for by a walk
	since    time.Time            // of this state and reason
	named    map[Reason]time.Time // when each was logged last
	spoken   bool                 // something was logged since the last success
	expired  bool                 // one Expired has been let pass since the last success
	healedAt time.Time
}

// failed notes that an attempt to list or watch has failed for good, that is:
// client-go has no other way to get the same and will back off.
func (c *condition) failed(err error) {
	reason := classify(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason == Expired && c.reason == "" && !c.expired {
		// A watch from a revision that has been compacted: the relist that
		// follows puts it right. Only one that does not is worth a word.
		c.expired = true
		return
	}
	now := time.Now()
	news := c.reason == "" && now.Sub(c.healedAt) >= healthyAfter
	if c.reason != reason {
		c.reason, c.since = reason, now
		c.news.tell()
		c.suspect, c.tries, c.walkedAt = "", 0, time.Time{}
	}
	c.message = words(err)
	c.tries++
	if suspect := suspects(err, c.resource.GroupResource()); suspect != "" {
		c.suspect = suspect
	}
	named := c.named[reason]
	absent := c.optional && reason == NotFound
	if !news && (now.Sub(named) < remindAfter || absent && !named.IsZero()) {
		return
	}
	c.named[reason], c.spoken = now, true
	if absent {
		c.logger.Info("Kind is not served, going on without it", "resource", c.resource.GroupResource(), "namespace", c.namespace,
			"remedy", remedy(reason, c.resource, c.namespace))
		return
	}
	logger := c.logger
	if c.suspect != "" {
		logger = logger.WithValues("suspect", c.suspect)
	}
	logger.Error(nil, "Cannot list or watch", "resource", c.resource.GroupResource(), "namespace", c.namespace,
		"reason", reason, "message", c.message, "remedy", remedy(reason, c.resource, c.namespace), "since", c.since)
}

// succeeded notes that the resource is being watched. A successful list alone
// is no success: with list granted and watch forbidden every try has one.
func (c *condition) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.spoken {
		c.logger.Info("Can list and watch again", "resource", c.resource.GroupResource(), "namespace", c.namespace,
			"reason", c.reason, "after", now.Sub(c.since).Round(time.Second))
	}
	if c.reason != "" || c.healedAt.IsZero() {
		c.since, c.healedAt = now, now
	}
	c.reason, c.message, c.spoken, c.expired = "", "", false, false
	c.news.tell()
	c.suspect, c.tries, c.walkedAt = "", 0, time.Time{}
}

func newCondition(resource schema.GroupVersionResource, namespace string) *condition {
	return &condition{resource: resource, namespace: namespace, logger: klog.Background(), named: map[Reason]time.Time{}}
}

// started sets where c logs to and since when it is starting.
func (c *condition) started(logger klog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logger, c.since = logger, time.Now()
}

// describe fills in the state; filled says whether the copy has been filled.
func (c *condition) describe(s *Snapshot, filled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Since, s.Reason, s.Message, s.Suspect = c.since, c.reason, c.message, c.suspect
	switch {
	case c.reason != "":
		s.State = StateUnlistable
	case filled:
		s.State = StateHearing
	default:
		s.State = StateStarting
	}
}
