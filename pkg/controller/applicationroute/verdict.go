package applicationroute

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
)

// verdict is what stands against a route in what gateways have reported: of the
// Gateway, of the ListenerSet and of the HTTPRoute, as they are now. None: all is
// accepted and programmed. What lasts comes first, and then what the rest may be a
// consequence of:
//
//  1. the Gateway does not exist, or is not accepted;
//  2. the ListenerSet is not accepted, then its listeners in their order, then it is
//     not programmed;
//  3. the HTTPRoute is not accepted, or what it refers to is not found, by the names
//     of those who report it;
//  4. the Gateway is not programmed.
func verdict(route *v1alpha1.ApplicationRoute, seen observed) []conditions.Problem {
	gateway := parent{kindGateway, seen.gateway}
	all := gatewayAccepted(route, gateway, seen.gatewayState)
	ofRoute := ofHTTPRoute(seen.httpRoute, parentOf(route, seen.gateway))
	if route.Spec.TLSSecret != "" {
		ofSet := ofListenerSet(seen.listenerSet, gateway)
		// Both are new at the same time. As long as the gateway has not made up its
		// mind about the ListenerSet it may find no listener for the HTTPRoute.
		if len(ofSet) > 0 && !slices.ContainsFunc(ofSet, isLasting) {
			for n := range ofRoute {
				ofRoute[n].Lasting = false
			}
		}
		all = append(all, ofSet...)
	}
	all = append(all, ofRoute...)
	all = append(all, gatewayProgrammed(gateway, seen.gatewayState)...)
	for n := range all {
		// A Gateway that is not known may not be there at all, which would be why.
		if note := seen.gatewayState.note; note != "" && all[n].Reason == reasonWaitingForGateway {
			all[n].Message += "; " + note
		}
	}
	slices.SortStableFunc(all, func(a, b conditions.Problem) int {
		switch {
		case a.Lasting == b.Lasting:
			return 0
		case a.Lasting:
			return -1
		}
		return 1
	})
	return all
}

func isLasting(p conditions.Problem) bool { return p.Lasting }

// answer is what a condition says that is wanted to be True.
type answer int

const (
	// unsaid: there is no such condition, or it is of an older generation, or Unknown,
	// or has a status of which nothing is known here.
	unsaid answer = iota
	yes
	no
)

// ask looks for what conditions say of that generation, 0 being any. The condition is
// nil if there is none.
func ask(all []metav1.Condition, conditionType string, generation int64) (answer, *metav1.Condition) {
	c := meta.FindStatusCondition(all, conditionType)
	switch {
	case c == nil || c.ObservedGeneration < generation:
		return unsaid, c
	case c.Status == metav1.ConditionTrue:
		return yes, c
	case c.Status == metav1.ConditionFalse:
		return no, c
	}
	return unsaid, c
}

// refusal is a condition's word against something: its own reason, and what it is
// about before its own message.
func refusal(about string, c *metav1.Condition, lasting bool) conditions.Problem {
	reason := c.Type
	if c.Status == metav1.ConditionFalse {
		reason = "Not" + c.Type
	}
	reason = reasonFrom(c, reason)
	return conditions.Problem{Reason: reason, Message: about + said(c), Lasting: lasting}
}

func waiting(format string, args ...any) conditions.Problem {
	return conditions.Problem{Reason: reasonWaitingForGateway, Message: fmt.Sprintf(format, args...)}
}

// gatewayAccepted and gatewayProgrammed take the Gateway's conditions whatever their
// generation: an edit of a Gateway with 20,000 routes is not the end of 20,000 routes.
func gatewayAccepted(route *v1alpha1.ApplicationRoute, gateway parent, state gatewayState) []conditions.Problem {
	if state.missing {
		where := "name another in spec.gateway"
		if route.Spec.Gateway == nil {
			where = "name one in spec.gateway, or start the controller with another --default-gateway"
		}
		return []conditions.Problem{{Reason: reasonGatewayMissing, Lasting: true, Message: fmt.Sprintf("%s does not exist: create it, or %s", gateway, where)}}
	}
	if !state.known {
		return nil
	}
	switch answer, c := ask(state.conditions, string(gatewayv1.GatewayConditionAccepted), 0); {
	case answer == no:
		return []conditions.Problem{{Reason: reasonGatewayNotAccepted, Lasting: !passing[c.Reason], Message: fmt.Sprintf("%s is not accepted%s", gateway, said(c))}}
	case answer == unsaid && c != nil:
		return []conditions.Problem{waiting("%s is not accepted yet%s", gateway, said(c))}
	case answer == unsaid:
		return []conditions.Problem{waiting("nobody has said whether %s is accepted: does a controller run for its GatewayClass?", gateway)}
	}
	return nil
}

func gatewayProgrammed(gateway parent, state gatewayState) []conditions.Problem {
	if !state.known {
		return nil
	}
	switch answer, c := ask(state.conditions, string(gatewayv1.GatewayConditionProgrammed), 0); {
	case answer == yes:
		return nil
	case c == nil:
		return []conditions.Problem{waiting("nobody has said whether %s is programmed", gateway)}
	default:
		return []conditions.Problem{{Reason: reasonGatewayNotProgrammed, Message: fmt.Sprintf("%s is not programmed%s", gateway, said(c)),
			Lasting: answer == no && lastingProgrammed[c.Reason]}}
	}
}

// ofListenerSet is nil if the ListenerSet is accepted and programmed and no listener
// of it complains. That a listener says nothing is all right: not all gateways report
// on each.
func ofListenerSet(set *gatewayv1.ListenerSet, gateway parent) []conditions.Problem {
	if set == nil {
		return []conditions.Problem{waiting("the ListenerSet has not been written yet")}
	}
	name := fmt.Sprintf("%s %q", kindListenerSet, set.Name)
	accepted, a := ask(set.Status.Conditions, string(gatewayv1.ListenerSetConditionAccepted), set.Generation)
	programmed, p := ask(set.Status.Conditions, string(gatewayv1.ListenerSetConditionProgrammed), set.Generation)
	var all []conditions.Problem
	var ofSet []conditions.Problem
	switch {
	case accepted == no:
		ofSet = append(ofSet, refusal(fmt.Sprintf("%s does not accept %s", gateway, name), a, !passing[a.Reason]))
	case accepted == unsaid:
		ofSet = append(ofSet, unsaidOf(name, a, set.Generation, "accepted", "the gateway's controller may be down, or not know ListenerSets"))
	}
	if accepted == no && a.Reason != string(gatewayv1.ListenerSetReasonListenersNotValid) {
		all, ofSet = ofSet, nil
	}
	for _, l := range set.Spec.Listeners {
		all = append(all, ofListener(set, l, name)...)
	}
	// What the listeners say of themselves says more than that something is wrong
	// with them.
	all = append(all, ofSet...)
	switch {
	case programmed == no:
		all = append(all, refusal(name+" is not programmed", p, lastingProgrammed[p.Reason]))
	case programmed == unsaid && accepted != unsaid:
		all = append(all, unsaidOf(name, p, set.Generation, "programmed", "the gateway is still at work, or down"))
	}
	return all
}

// unsaidOf says what is not known of something yet, c being what there is instead.
func unsaidOf(name string, c *metav1.Condition, generation int64, what, why string) conditions.Problem {
	switch {
	case c == nil || c.ObservedGeneration == 0 && c.Status == metav1.ConditionUnknown: // as created
		return waiting("nobody has said whether %s is %s: %s", name, what, why)
	case c.ObservedGeneration < generation:
		return waiting("nobody has said whether %s is %s in its latest form, generation %d; the last word is on generation %d: %s",
			name, what, generation, c.ObservedGeneration, why)
	}
	return waiting("it is not known whether %s is %s%s", name, what, said(c))
}

// ofListener is what the status of one listener complains about.
func ofListener(set *gatewayv1.ListenerSet, l gatewayv1.ListenerEntry, name string) []conditions.Problem {
	n := slices.IndexFunc(set.Status.Listeners, func(s gatewayv1.ListenerEntryStatus) bool { return s.Name == l.Name })
	if n < 0 {
		return nil
	}
	about := fmt.Sprintf("the listener of %s", name)
	if l.Hostname != nil {
		about = fmt.Sprintf("the listener of %s for %q", name, *l.Hostname)
	}
	said := set.Status.Listeners[n].Conditions
	var all []conditions.Problem
	if answer, c := ask(said, string(gatewayv1.ListenerEntryConditionConflicted), set.Generation); answer == yes {
		all = append(all, refusal(about+" is in conflict with another", c, true))
	}
	if answer, c := ask(said, string(gatewayv1.ListenerEntryConditionAccepted), set.Generation); answer == no {
		all = append(all, refusal(about+" is not accepted", c, !passing[c.Reason]))
	}
	if answer, c := ask(said, string(gatewayv1.ListenerEntryConditionResolvedRefs), set.Generation); answer == no {
		all = append(all, refusal(about+" refers to what cannot be used", c, !passing[c.Reason]))
	}
	if answer, c := ask(said, string(gatewayv1.ListenerEntryConditionProgrammed), set.Generation); answer == no {
		all = append(all, refusal(about+" is not programmed", c, lastingProgrammed[c.Reason]))
	}
	return all
}

// ofHTTPRoute is nil if everybody who has reported on the HTTPRoute's latest form, as
// a route of p, accepts it and has found what it refers to; and somebody has.
//
// Several controllers may report. The word of one on an older form counts for nothing
// once another has spoken of the latest: that of a gateway which is not there any more
// stays in the status for good.
func ofHTTPRoute(route *gatewayv1.HTTPRoute, p parent) []conditions.Problem {
	if route == nil {
		return []conditions.Problem{waiting("the HTTPRoute has not been written yet")}
	}
	name := fmt.Sprintf("%s %q", kindHTTPRoute, route.Name)
	const accepted = string(gatewayv1.RouteConditionAccepted)
	reports := reportsOf(route, p)
	current := slices.DeleteFunc(slices.Clone(reports), func(r gatewayv1.RouteParentStatus) bool {
		c := meta.FindStatusCondition(r.Conditions, accepted)
		return c == nil || c.ObservedGeneration < route.Generation
	})
	switch {
	case len(reports) == 0:
		return []conditions.Problem{waiting("no gateway has reported on %s as a route of %s: its controller may be down, or not know of %ss", name, p, p.kind)}
	case len(current) == 0:
		r := reports[0]
		return []conditions.Problem{unsaidOf(name, meta.FindStatusCondition(r.Conditions, accepted), route.Generation,
			fmt.Sprintf("accepted by %s", r.ControllerName), "it may be at work, or down")}
	}
	var all []conditions.Problem
	for _, r := range current {
		all = append(all, ofReport(r, route.Generation, name, p)...)
	}
	return all
}

// ofReport is what one controller has against the HTTPRoute. Its Accepted condition is
// of that generation.
func ofReport(r gatewayv1.RouteParentStatus, generation int64, name string, p parent) []conditions.Problem {
	switch answer, c := ask(r.Conditions, string(gatewayv1.RouteConditionAccepted), generation); answer {
	case no:
		return []conditions.Problem{refusal(fmt.Sprintf("%s does not accept %s as a route of %s", r.ControllerName, name, p), c, !passing[c.Reason])}
	case unsaid:
		return []conditions.Problem{waiting("%s has not accepted %s as a route of %s yet%s", r.ControllerName, name, p, said(c))}
	}
	var all []conditions.Problem
	switch answer, c := ask(r.Conditions, string(gatewayv1.RouteConditionResolvedRefs), generation); answer {
	case no:
		all = append(all, refusal(fmt.Sprintf("%s cannot use what %s refers to", r.ControllerName, name), c, !passing[c.Reason]))
	case unsaid:
		all = append(all, unsaidOf(name, c, generation, fmt.Sprintf("resolved by %s", r.ControllerName), "it has not said whether it finds the Services"))
	}
	if answer, c := ask(r.Conditions, string(gatewayv1.RouteConditionPartiallyInvalid), generation); answer == yes {
		all = append(all, refusal(fmt.Sprintf("%s has taken up only a part of %s", r.ControllerName, name), c, true))
	}
	return all
}

// reportsOf are the reports on the HTTPRoute as a route of p, by controller name. A
// sectionName or port that a controller adds to what it was given does not matter.
func reportsOf(route *gatewayv1.HTTPRoute, p parent) []gatewayv1.RouteParentStatus {
	var reports []gatewayv1.RouteParentStatus
	for _, r := range route.Status.Parents {
		ref := r.ParentRef
		if or(ref.Group, gatewayv1.GroupName) == gatewayv1.GroupName && or(ref.Kind, kindGateway) == p.kind &&
			or(ref.Namespace, gatewayv1.Namespace(route.Namespace)) == p.Namespace && string(ref.Name) == p.Name {
			reports = append(reports, r)
		}
	}
	slices.SortStableFunc(reports, func(a, b gatewayv1.RouteParentStatus) int { return cmp.Compare(a.ControllerName, b.ControllerName) })
	return reports
}

// or is what p points to, fallback for nil.
func or[T ~string](p *T, fallback T) string {
	if p == nil {
		return string(fallback)
	}
	return string(*p)
}

// known are the condition types that ofReport understands.
var known = map[string]bool{
	string(gatewayv1.RouteConditionAccepted):         true,
	string(gatewayv1.RouteConditionResolvedRefs):     true,
	string(gatewayv1.RouteConditionPartiallyInvalid): true,
}

// ofMissing says whether p only repeats that a dependency is missing, which has a
// condition of its own.
func ofMissing(p conditions.Problem, missing []dependency) bool {
	return slices.ContainsFunc(missing, func(m dependency) bool {
		switch p.Reason {
		case string(gatewayv1.RouteReasonBackendNotFound):
			return m.reason == reasonServiceMissing || m.reason == reasonPortMissing
		case string(gatewayv1.ListenerEntryReasonInvalidCertificateRef), string(gatewayv1.ListenerSetReasonListenersNotValid),
			string(gatewayv1.ListenerSetReasonInvalid):
			return m.reason == reasonSecretMissing || m.reason == reasonSecretWrongType
		}
		return false
	})
}

// besides are the other conditions that are reported of the HTTPRoute's latest form,
// as Type=Status. Nobody here knows which status is the good one: they are shown, and
// decide nothing.
func besides(route *gatewayv1.HTTPRoute, p parent) []string {
	var all []string
	for _, r := range reportsOf(route, p) {
		for _, c := range r.Conditions {
			if !known[c.Type] && c.ObservedGeneration >= route.Generation {
				all = append(all, fmt.Sprintf("%s=%s", c.Type, c.Status))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
