package applicationroute

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
)

// condition is "Type=Status Reason message" of a generation; 0: none is given.
func condition(generation int64, text string) metav1.Condition {
	conditionType, rest, _ := strings.Cut(text, "=")
	words := strings.SplitN(rest+"  ", " ", 3)
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionStatus(words[0]), Reason: words[1],
		Message: strings.TrimSpace(words[2]), ObservedGeneration: generation}
}

// testGeneration is that of the children. Older reports are of 1.
const testGeneration = 2

func all(texts ...string) []metav1.Condition {
	var list []metav1.Condition
	for _, t := range texts {
		list = append(list, condition(testGeneration, t))
	}
	return list
}

const controllerName = "example.com/gateway"

// report is what a controller says of the HTTPRoute as a route of the Gateway.
func report(by string, conditions ...metav1.Condition) gatewayv1.RouteParentStatus {
	return gatewayv1.RouteParentStatus{ControllerName: gatewayv1.GatewayController(by), Conditions: conditions,
		ParentRef: gatewayv1.ParentReference{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: "public"}}
}

// converged is a route without TLS of which all is well.
func converged(change ...func(*observed)) observed {
	seen := observed{
		gateway:      testGateway,
		gatewayState: gatewayState{known: true, conditions: all("Accepted=True Accepted", "Programmed=True Programmed")},
		hostnames:    testRoute().Spec.Hostnames,
		httpRoute: &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: testGeneration},
			Status: gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{
				report(controllerName, all("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")...)}}}},
	}
	for _, f := range change {
		f(&seen)
	}
	return seen
}

// reports replaces those on the HTTPRoute.
func reports(list ...gatewayv1.RouteParentStatus) func(*observed) {
	return func(seen *observed) { seen.httpRoute.Status.Parents = list }
}

// says replaces what the one controller says of the HTTPRoute.
func says(texts ...string) func(*observed) { return reports(report(controllerName, all(texts...)...)) }

func gatewaySays(texts ...string) func(*observed) {
	return func(seen *observed) { seen.gatewayState.conditions = all(texts...) }
}

// withTLS is a route with a ListenerSet of which all is well.
func withTLS(change ...func(*observed)) observed {
	seen := converged(func(seen *observed) {
		ref := &seen.httpRoute.Status.Parents[0].ParentRef
		ref.Kind, ref.Namespace, ref.Name = ptr.To[gatewayv1.Kind]("ListenerSet"), nil, "web"
		seen.listenerSet = decodeListenerSet()
		seen.listenerSet.Generation = testGeneration
		seen.listenerSet.Status.Conditions = all("Accepted=True Accepted", "Programmed=True Programmed")
		for _, l := range seen.listenerSet.Spec.Listeners {
			seen.listenerSet.Status.Listeners = append(seen.listenerSet.Status.Listeners, gatewayv1.ListenerEntryStatus{Name: l.Name,
				Conditions: all("Accepted=True Accepted", "Programmed=True Programmed", "ResolvedRefs=True ResolvedRefs", "Conflicted=False NoConflicts")})
		}
	})
	for _, f := range change {
		f(&seen)
	}
	return seen
}

func decodeListenerSet() *gatewayv1.ListenerSet {
	set := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for _, h := range testRoute().Spec.Hostnames {
		set.Spec.Listeners = append(set.Spec.Listeners, gatewayv1.ListenerEntry{Name: listenerName(h), Hostname: ptr.To(gatewayv1.Hostname(h))})
	}
	return set
}

func setSays(texts ...string) func(*observed) {
	return func(seen *observed) { seen.listenerSet.Status.Conditions = all(texts...) }
}

// listenerSays replaces what is said of the second listener, that of the wildcard.
func listenerSays(texts ...string) func(*observed) {
	return func(seen *observed) { seen.listenerSet.Status.Listeners[1].Conditions = all(texts...) }
}

func lost(hostname, by string) claim {
	return claim{hostname: hostname, by: cache.NewObjectName("other", by)}
}

// summary is "Status Reason" of the four, in their order, and the message of Ready.
func summary(all []metav1.Condition) (four, message string) {
	var words []string
	for _, c := range all {
		words = append(words, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(words, ", "), all[0].Message
}

// four is what summary says where the dependencies are found.
func four(ready, progressing, degraded string) string {
	return fourOf(ready, progressing, degraded, "True DependenciesFound")
}

func fourOf(ready, progressing, degraded, deps string) string {
	return fmt.Sprintf("Ready=%s, Progressing=%s, Degraded=%s, DependenciesReady=%s", ready, progressing, degraded, deps)
}

// refused and waits are three that often come together.
func refused(reason string) string {
	return four("False "+reason, "False "+reason, "True "+reason)
}

func waits(reason string) string {
	return four("False "+reason, "True "+reason, "False AsExpected")
}

var good = four("True Programmed", "False Programmed", "False AsExpected")

const served = "Gateway infra/public serves shop.example.com, *.shop.example.com"

// conditionsCase is what a pass has found out, and what has to be said of it: by
// summary, and as the message of Ready.
type conditionsCase struct {
	reason  string
	seen    observed
	want    string
	message string
}

// checkConditions is about a route without TLS where there is no ListenerSet, but for
// the case that it has not been written yet.
func checkConditions(t *testing.T, cases map[string]conditionsCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			route := testRoute()
			if tc.seen.listenerSet == nil && name != "SetNotWritten" {
				withoutTLS(route)
			}
			got, message := summary(computeConditions(route, tc.seen))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.message, message); diff != "" {
				t.Errorf("%s: message of Ready (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "httproutes"}, "web", errors.New("no"))
	noService := dependency{"ServiceMissing", `Service "web" does not exist`}
	noSecret := dependency{"SecretMissing", `Secret "web-tls" does not exist`}
	checkConditions(t, map[string]conditionsCase{
		"Converged": {"accepted and programmed", converged(), good, served},
		"ManyHostnames": {"kubectl has one line for it", converged(func(s *observed) { s.hostnames = []string{"a", "b", "c", "d", "e"} }), good,
			"Gateway infra/public serves a, b, c and 2 more"},
		"GatewayUnknown": {"what cannot be read stands in nobody's way, and is said", converged(func(s *observed) {
			s.gatewayState = gatewayState{note: "Gateway infra/public has not been looked at"}
		}), good, served + "; Gateway infra/public has not been looked at"},
		"GatewayGoing": {"as long as it works", converged(func(s *observed) { s.gatewayState.note = "Gateway infra/public is being deleted" }), good,
			served + "; Gateway infra/public is being deleted"},

		// What keeps a pass from rendering.
		"Error": {"an error that time mends", converged(func(s *observed) { s.err = errors.New("dial tcp: refused") }),
			waits("ReconcileError"), "dial tcp: refused"},
		"Forbidden": {"one that it does not", converged(func(s *observed) { s.err = forbidden }), refused("Forbidden"), `httproutes "web" is forbidden: no`},
		"ErrorFirst": {"an error comes before all that may follow from it", converged(func(s *observed) {
			s.err, s.missing, s.lost = forbidden, []dependency{noService}, []claim{lost("a", "x")}
		}), fourOf("False Forbidden", "False Forbidden", "True Forbidden", "False ServiceMissing"), `httproutes "web" is forbidden: no`},
		"NotServed": {"only a person can install it", observed{gateway: testGateway, hostnames: []string{"a"},
			unavailable: &conditions.Problem{Reason: "GatewayAPIMissing", Message: "install it", Lasting: true}}, refused("GatewayAPIMissing"), "install it"},
		"NotListedYet": {"a list that is under way", observed{gateway: testGateway, hostnames: []string{"a"},
			unavailable: &conditions.Problem{Reason: "GatewayAPISyncing", Message: "soon"}}, waits("GatewayAPISyncing"), "soon"},
		"NoGateway": {"field and flag are named", observed{noGateway: true, hostnames: []string{"a"}}, refused("NoGateway"),
			"there is no Gateway to attach to: name one in spec.gateway, or start the controller with --default-gateway=namespace/name"},
		"Waiting": {"something has to go first", converged(func(s *observed) { s.wait = &child.WaitError{Reason: "ChildTerminating", Message: "it goes"} }),
			waits("ChildTerminating"), "it goes"},

		// Dependencies.
		"Missing": {"the rest is rendered and served", converged(func(s *observed) {
			s.missing = []dependency{noService, {"PortMissing", `Service "b" has no port 1`}}
		}), fourOf("False ServiceMissing", "False Programmed", "False AsExpected", "False ServiceMissing"),
			`Service "web" does not exist; Service "b" has no port 1`},
		"MissingSaidTwice": {"the gateway says so too, which is no news", converged(func(s *observed) { s.missing = []dependency{noService} },
			says("Accepted=True Accepted", "ResolvedRefs=False BackendNotFound gone")),
			fourOf("False ServiceMissing", "False ServiceMissing", "False AsExpected", "False ServiceMissing"), `Service "web" does not exist`},
		"MissingAndRefused": {"another refusal is news, and Ready names what is missing", converged(func(s *observed) { s.missing = []dependency{noService} },
			says("Accepted=False NotAllowedByListeners no")),
			fourOf("False ServiceMissing", "False NotAllowedByListeners", "True NotAllowedByListeners", "False ServiceMissing"), `Service "web" does not exist`},
		"SecretMissing": {"the listeners complain of nothing else", withTLS(func(s *observed) { s.missing = []dependency{noSecret} },
			setSays("Accepted=False ListenersNotValid x", "Programmed=False Invalid x"), listenerSays("ResolvedRefs=False InvalidCertificateRef x")),
			fourOf("False SecretMissing", "False SecretMissing", "False AsExpected", "False SecretMissing"), `Secret "web-tls" does not exist`},
		"ServiceMissingBadSecret": {"one missing thing does not hide another's refusal", withTLS(func(s *observed) { s.missing = []dependency{noService} },
			listenerSays("ResolvedRefs=False InvalidCertificateRef x")),
			fourOf("False ServiceMissing", "False InvalidCertificateRef", "True InvalidCertificateRef", "False ServiceMissing"), `Service "web" does not exist`},
		"SecretUnchecked": {"Ready follows the gateway", withTLS(func(s *observed) { s.secretUnchecked = "no permission" }),
			fourOf("True Programmed", "False Programmed", "False AsExpected", "Unknown SecretNotChecked"), served + " by HTTPS"},

		// Hostnames.
		"OneLost": {"the others are served", converged(func(s *observed) { s.hostnames, s.lost = s.hostnames[1:], []claim{lost("shop.example.com", "x")} }),
			four("False HostnameConflict", "False Programmed", "True HostnameConflict"),
			`at Gateway infra/public "shop.example.com" is held by ApplicationRoute other/x: take it out there or here; the other hostnames are rendered`},
		"AllLost": {"nothing is left to progress with", observed{gateway: testGateway, lost: []claim{lost("a", "x"), lost("b", "y")}}, refused("HostnameConflict"),
			`at Gateway infra/public "a" is held by ApplicationRoute other/x, "b" is held by ApplicationRoute other/y: take it out there or here; no hostname is left, so that nothing is rendered`},
		"AllAboutToBeLetGo": {"time mends that", observed{gateway: testGateway, lost: []claim{{hostname: "a", by: cache.NewObjectName("other", "x"), leaving: true}}}, waits("HostnameConflict"),
			`at Gateway infra/public "a" is held by ApplicationRoute other/x: take it out there or here; no hostname is left, so that nothing is rendered`},
		"OneAboutToBeLetGo": {"not all of it", observed{gateway: testGateway, lost: []claim{{hostname: "a", by: cache.NewObjectName("other", "x"), why: "in words", leaving: true}, lost("b", "y")}}, refused("HostnameConflict"),
			`at Gateway infra/public "a" is held by ApplicationRoute other/x (in words), "b" is held by ApplicationRoute other/y: take it out there or here; no hostname is left, so that nothing is rendered`},
		"OneLostWaiting": {"what is left goes on", converged(func(s *observed) { s.lost = []claim{lost("b", "x")} }, reports()),
			four("False HostnameConflict", "True WaitingForGateway", "True HostnameConflict"),
			`at Gateway infra/public "b" is held by ApplicationRoute other/x: take it out there or here; the other hostnames are rendered`},
	})
}

// An object that was stored before the schema demanded one.
func TestNoHostnames(t *testing.T) {
	route := testRoute(withoutTLS, func(r *v1alpha1.ApplicationRoute) { r.Spec.Hostnames = nil })
	got, message := summary(computeConditions(route, observed{gateway: testGateway, gatewayState: converged().gatewayState}))
	if want := refused("NoHostnames"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if want := "spec.hostnames is empty, so that nothing is rendered: name one at least"; message != want {
		t.Errorf("got %q, want %q", message, want)
	}
}

func TestGatewayMissingByDefault(t *testing.T) {
	route := testRoute(withoutTLS, func(r *v1alpha1.ApplicationRoute) { r.Spec.Gateway = nil })
	_, message := summary(computeConditions(route, observed{gateway: testGateway, hostnames: []string{"a"}, gatewayState: gatewayState{missing: true}}))
	if want := "Gateway infra/public does not exist: create it, or name one in spec.gateway, or start the controller with another --default-gateway"; message != want {
		t.Errorf("a Gateway that the route has not named: got %q, want %q", message, want)
	}
}

func TestDependenciesMessage(t *testing.T) {
	seen := converged(func(s *observed) {
		s.missing, s.secretUnchecked = []dependency{{"PortMissing", `Service "b" has no port 1`}}, "Secrets are not read"
	})
	got := computeConditions(testRoute(), seen)[3]
	if got.Status != metav1.ConditionFalse || got.Reason != "PortMissing" || got.Message != `Service "b" has no port 1; Secrets are not read` {
		t.Errorf("what is missing and what is not known: got %s %s %q", got.Status, got.Reason, got.Message)
	}
}

func TestComputeStatus(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	first := computeStatus(testRoute(withoutTLS), converged(), then)
	if first.ObservedGeneration != 3 || len(first.Conditions) != 4 {
		t.Errorf("got generation %d and %d conditions, want 3 and 4", first.ObservedGeneration, len(first.Conditions))
	}
	route := testRoute(withoutTLS, func(r *v1alpha1.ApplicationRoute) { r.Status = *first })
	again := computeStatus(route, converged(), now)
	if diff := cmp.Diff(first, again); diff != "" || statusChanged(first, again) {
		t.Errorf("nothing changed, later (-first +again):\n%s", diff)
	}

	refused := computeStatus(route, converged(says("Accepted=False BadWeather no")), now)
	if !statusChanged(first, refused) {
		t.Error("a refusal does not count as a change")
	}
	for _, c := range refused.Conditions {
		moved := c.LastTransitionTime == now
		if shouldMove := c.Type == "Ready" || c.Type == "Degraded"; moved != shouldMove || c.ObservedGeneration != 3 {
			t.Errorf("%s is %s now, of generation %d: lastTransitionTime has moved: %t, want %t", c.Type, c.Status, c.ObservedGeneration, moved, shouldMove)
		}
	}

	newer := testRoute(withoutTLS, func(r *v1alpha1.ApplicationRoute) { r.Generation, r.Status = 4, *first })
	if !statusChanged(first, computeStatus(newer, converged(), now)) {
		t.Error("a new generation does not count as a change")
	}

	fail := func(message string) observed { return converged(func(s *observed) { s.err = errors.New(message) }) }
	failed := computeStatus(route, fail("dial 10.0.0.1:5123"), now)
	route.Status = *failed
	if statusChanged(failed, computeStatus(route, fail("dial 10.0.0.1:6001"), now)) {
		t.Error("another port in an error is written anew")
	}
}
