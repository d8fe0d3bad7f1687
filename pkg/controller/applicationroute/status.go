package applicationroute

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
)

// obstacle is what has kept the pass from rendering all that it should, nil if
// nothing has.
func obstacle(seen observed) *conditions.Problem {
	switch {
	case seen.err != nil:
		return conditions.ProblemOf(seen.err)
	case seen.unavailable != nil:
		return seen.unavailable
	case seen.noGateway:
		return &conditions.Problem{Reason: reasonNoGateway, Lasting: true,
			Message: "there is no Gateway to attach to: name one in spec.gateway, or start the controller with --default-gateway=namespace/name"}
	case seen.wait != nil:
		return &conditions.Problem{Reason: seen.wait.Reason, Message: seen.wait.Message}
	}
	return nil
}

// conflict is about the hostnames that others hold, nil if there are none, and about a
// route without any. Time mends it where all of them are about to be let go.
func conflict(route *v1alpha1.ApplicationRoute, seen observed) *conditions.Problem {
	if len(route.Spec.Hostnames) == 0 { // stored before the schema forbade it
		return &conditions.Problem{Reason: reasonNoHostnames, Lasting: true,
			Message: "spec.hostnames is empty, so that nothing is rendered: name one at least"}
	}
	if len(seen.lost) == 0 {
		return nil
	}
	var held []string
	lasting := false
	for _, c := range seen.lost {
		by := fmt.Sprintf("%q is held by ApplicationRoute %s", c.hostname, c.by)
		if c.why != "" {
			by += " (" + c.why + ")"
		}
		held = append(held, by)
		lasting = lasting || !c.leaving
	}
	rest := "the other hostnames are rendered"
	if len(seen.hostnames) == 0 {
		rest = "no hostname is left, so that nothing is rendered"
	}
	return &conditions.Problem{Reason: reasonHostnameConflict, Lasting: lasting,
		Message: fmt.Sprintf("at Gateway %s %s: take it out there or here; %s",
			seen.gateway, strings.Join(held, ", "), rest)}
}

// dependencies is the condition of that name.
func dependencies(seen observed) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionDependenciesReady, Status: metav1.ConditionTrue, Reason: reasonDependenciesFound}
	var messages []string
	for _, m := range seen.missing {
		messages = append(messages, m.message)
	}
	switch {
	case len(seen.missing) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, seen.missing[0].reason
	case seen.secretUnchecked != "":
		c.Status, c.Reason = metav1.ConditionUnknown, reasonSecretNotChecked
	}
	if seen.secretUnchecked != "" {
		messages = append(messages, seen.secretUnchecked)
	}
	c.Message = strings.Join(messages, "; ")
	return c
}

// computeConditions computes all four, without times. Their order is fixed.
//
// Ready is False for the first of these: what kept the pass from rendering (an error, a
// kind that is not served, no Gateway named, something that has to go first); a missing
// dependency; a hostname that another route holds; what the gateway has against it, see
// verdict. Degraded is True for the first that time alone does not mend, dependencies
// apart, which have a condition of their own. Progressing is about what is rendered
// alone: neither a missing dependency nor a lost hostname ends it, as long as there is
// one left.
func computeConditions(route *v1alpha1.ApplicationRoute, seen observed) []metav1.Condition {
	var (
		ready       = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
		progressing = metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse}
		degraded    = metav1.Condition{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: reasonAsExpected}
		deps        = dependencies(seen)
	)
	blocked, lost := obstacle(seen), conflict(route, seen)
	// against is the first of what the gateway has against the route. What follows
	// from a missing dependency is not: then it has said all that it can.
	var against, work *conditions.Problem
	if !seen.noGateway && len(seen.hostnames) > 0 {
		for _, p := range verdict(route, seen) {
			if !ofMissing(p, seen.missing) {
				against = &p
				break
			}
			work = &conditions.Problem{Reason: deps.Reason, Message: deps.Message, Lasting: true}
		}
	}
	served := servedMessage(route, seen)

	for _, p := range []*conditions.Problem{blocked, lost, against} {
		if p != nil && p.Lasting {
			degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, p.Reason, p.Message
			break
		}
	}

	say := func(c *metav1.Condition, status metav1.ConditionStatus, reason, message string) {
		c.Status, c.Reason, c.Message = status, reason, message
	}
	switch {
	case blocked != nil:
		work = blocked
	case len(seen.hostnames) == 0:
		work = lost
	case against != nil:
		work = against
	}
	switch {
	case work != nil && work.Lasting:
		say(&progressing, metav1.ConditionFalse, work.Reason, work.Message)
	case work != nil:
		say(&progressing, metav1.ConditionTrue, work.Reason, work.Message)
	default:
		say(&progressing, metav1.ConditionFalse, reasonProgrammed, served)
	}

	switch {
	case blocked != nil:
		say(&ready, metav1.ConditionFalse, blocked.Reason, blocked.Message)
	case deps.Status == metav1.ConditionFalse:
		say(&ready, metav1.ConditionFalse, deps.Reason, deps.Message)
	case lost != nil:
		say(&ready, metav1.ConditionFalse, lost.Reason, lost.Message)
	case against != nil:
		say(&ready, metav1.ConditionFalse, against.Reason, against.Message)
	default:
		say(&ready, metav1.ConditionTrue, reasonProgrammed, served)
	}
	return []metav1.Condition{ready, progressing, degraded, deps}
}

// shownHostnames is how many a message lists.
const shownHostnames = 3

// servedMessage says what is served where, once it is.
func servedMessage(route *v1alpha1.ApplicationRoute, seen observed) string {
	hostnames := seen.hostnames
	more := ""
	if len(hostnames) > shownHostnames {
		more = fmt.Sprintf(" and %d more", len(hostnames)-shownHostnames)
		hostnames = hostnames[:shownHostnames]
	}
	message := fmt.Sprintf("Gateway %s serves %s%s", seen.gateway, strings.Join(hostnames, ", "), more)
	if route.Spec.TLSSecret != "" {
		message += " by HTTPS"
	}
	if note := seen.gatewayState.note; note != "" {
		message += "; " + note
	}
	if seen.httpRoute != nil {
		if also := besides(seen.httpRoute, parentOf(route, seen.gateway)); len(also) > 0 {
			message += "; reported besides: " + strings.Join(also, ", ")
		}
	}
	return message
}

// computeStatus is the whole status that seen amounts to. Conditions that are not
// ours are not in it.
func computeStatus(route *v1alpha1.ApplicationRoute, seen observed, now metav1.Time) *v1alpha1.ApplicationRouteStatus {
	return &v1alpha1.ApplicationRouteStatus{
		ObservedGeneration: route.Generation,
		Conditions:         conditions.Carry(route.Status.Conditions, computeConditions(route, seen), route.Generation, seen.err != nil, now),
	}
}

// statusChanged says whether there is anything to write. Conditions of others in
// current do not count.
func statusChanged(current, next *v1alpha1.ApplicationRouteStatus) bool {
	return current.ObservedGeneration != next.ObservedGeneration || conditions.Changed(current.Conditions, next.Conditions)
}
