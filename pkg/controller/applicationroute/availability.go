package applicationroute

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

const (
	// settleTime is how long a pass waits, without a word, for a copy that is being
	// filled. Otherwise each start of the process would be seen in every status.
	settleTime = 30 * time.Second

	reasonGatewayAPIMissing     = "GatewayAPIMissing"
	reasonGatewayAPIForbidden   = "GatewayAPIForbidden"
	reasonGatewayAPIUnavailable = "GatewayAPIUnavailable"
	reasonChildUndecodable      = "ChildUndecodable"
)

// source is a local copy of a kind that may not be served, or not to us.
type source interface {
	Resource() schema.GroupVersionResource
	HasSynced() bool
	Snapshot() informer.Snapshot
	OnState(func())
}

// availability says whether a kind can be worked with. The copy is asked when it says
// that something has changed, and not in each pass: its Snapshot looks at every object.
type availability struct {
	kind   string
	source source

	mu        sync.Mutex
	standings []standing // of each namespace; nil: not asked yet
	told      []standing // when refresh was called last
}

// standing is how a kind is doing in one namespace, "" for all.
type standing struct {
	namespace string
	// filled: the copy can be relied on as far as it goes.
	filled bool
	reason informer.Reason // "": nothing stands in the way
	// message and since do not count for a change.
	message string
	since   time.Time
}

func (s standing) same(as standing) bool {
	return s.namespace == as.namespace && s.filled == as.filled && s.reason == as.reason
}

// refresh asks the copy and says whether the answer differs from that of the last
// refresh. What a pass has asked in between does not count: others wait for a change
// that it has seen.
func (a *availability) refresh() (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.told
	a.ask()
	a.told = a.standings
	return !slices.EqualFunc(before, a.told, standing.same)
}

// ask is called with the lock held.
func (a *availability) ask() {
	synced, whole := a.source.HasSynced(), a.source.Snapshot()
	parts := whole.Namespaces
	if len(parts) == 0 {
		parts = []informer.Snapshot{whole}
	}
	a.standings = a.standings[:0:0]
	for _, s := range parts {
		at := standing{namespace: s.Namespace, since: s.Since}
		switch s.State {
		case informer.StateStarting:
		case informer.StateUnlistable:
			at.filled, at.reason, at.message = synced, s.Reason, s.Message
		default:
			at.filled = true
		}
		a.standings = append(a.standings, at)
	}
}

// of returns how the kind is doing in namespace. A copy that is being filled is asked
// anew: it holds little, and since when counts.
func (a *availability) of(namespace string) standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	find := func() (standing, bool) {
		at := slices.IndexFunc(a.standings, func(s standing) bool { return s.namespace == "" || s.namespace == namespace })
		if at < 0 {
			return standing{}, false
		}
		return a.standings[at], true
	}
	s, known := find()
	if !known || !s.filled && s.reason == "" {
		a.ask()
		s, _ = find()
	}
	return s
}

// settling returns how long to wait, without a word, for the copy to be filled.
func (a *availability) settling(namespace string, now time.Time) time.Duration {
	s := a.of(namespace)
	if s.filled || lasting(s.reason) {
		return 0
	}
	if s.since.IsZero() { // it has not been started
		return settleTime
	}
	return max(0, settleTime-now.Sub(s.since))
}

// unknown says whether there may be objects in namespace that the copy has not got.
func (a *availability) unknown(namespace string) bool {
	s := a.of(namespace)
	return !s.filled && s.reason != informer.NotFound
}

// problem returns what keeps the kind from being worked with in namespace, nil if
// nothing does. What concerns every kind alike, and passes, is none for a copy that has
// been filled: work goes on with what it holds, as with every other kind.
func (a *availability) problem(namespace string) *conditions.Problem {
	s := a.of(namespace)
	gvr := a.source.Resource()
	apiVersion := gvr.GroupVersion().String()
	switch {
	case s.reason == informer.NotFound:
		return &conditions.Problem{Reason: reasonGatewayAPIMissing, Lasting: true,
			Message: fmt.Sprintf("%s of %s is not served: install the Gateway API CRDs, v1.5 or later", a.kind, apiVersion)}
	case s.reason == informer.Forbidden:
		where := "in all namespaces (ClusterRole)"
		if s.namespace != "" {
			where = fmt.Sprintf("in namespace %q (Role)", s.namespace)
		}
		return &conditions.Problem{Reason: reasonGatewayAPIForbidden, Lasting: true,
			Message: fmt.Sprintf("%s of %s must not be read: grant get, list and watch on %s %s to the controller's ServiceAccount", a.kind, apiVersion, gvr.GroupResource(), where)}
	case lasting(s.reason):
		return &conditions.Problem{Reason: reasonGatewayAPIUnavailable, Lasting: true,
			Message: fmt.Sprintf("%s of %s cannot be listed (%s): %s", a.kind, apiVersion, s.reason, s.message)}
	case !s.filled:
		return &conditions.Problem{Reason: reasonGatewayAPIUnavailable,
			Message: fmt.Sprintf("%s of %s has not been listed yet (%s)", a.kind, apiVersion, cmp.Or(string(s.reason), "no answer"))}
	}
	return nil
}

// lasting says whether time alone does not mend it.
func lasting(reason informer.Reason) bool {
	return reason == informer.NotFound || reason == informer.Forbidden || reason == informer.Conversion
}
