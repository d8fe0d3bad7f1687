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

func lost(hostname, by string) claim { return claim{hostname, cache.NewObjectName("other", by)} }

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

func TestConditions(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "httproutes"}, "web", errors.New("no"))
	noService := dependency{"ServiceMissing", `Service "web" does not exist`}
	noSecret := dependency{"SecretMissing", `Secret "web-tls" does not exist`}
	cases := map[string]struct {
		reason  string
		seen    observed
		want    string
		message string
	}{
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
		"OneLostWaiting": {"what is left goes on", converged(func(s *observed) { s.lost = []claim{lost("b", "x")} }, reports()),
			four("False HostnameConflict", "True WaitingForGateway", "True HostnameConflict"),
			`at Gateway infra/public "b" is held by ApplicationRoute other/x: take it out there or here; the other hostnames are rendered`},

		// The Gateway.
		"GatewayMissing": {"a person has to make it, or name another", converged(reports(), func(s *observed) { s.gatewayState = gatewayState{missing: true} }),
			refused("GatewayMissing"), "Gateway infra/public does not exist: create it, or name another in spec.gateway"},
		"GatewayRefused": {"comes before what follows from it", converged(gatewaySays("Accepted=False InvalidParameters bad"), says("Accepted=False NoMatchingParent x")),
			refused("GatewayNotAccepted"), "Gateway infra/public is not accepted: InvalidParameters: bad (look at the parameters of the Gateway and of its GatewayClass)"},
		"GatewayPending": {"nobody has been there", converged(gatewaySays("Accepted=Unknown Pending Waiting for controller", "Programmed=Unknown Pending Waiting for controller")),
			waits("WaitingForGateway"), "Gateway infra/public is not accepted yet: Pending: Waiting for controller"},
		"GatewaySilent": {"no conditions at all", converged(gatewaySays()), waits("WaitingForGateway"),
			"nobody has said whether Gateway infra/public is accepted: does a controller run for its GatewayClass?"},
		"GatewayNoProgrammed": {"one is missing", converged(gatewaySays("Accepted=True Accepted")), waits("WaitingForGateway"),
			"nobody has said whether Gateway infra/public is programmed"},
		"GatewayNoAddress": {"may come by itself", converged(gatewaySays("Accepted=True Accepted", "Programmed=False AddressNotAssigned none")),
			waits("GatewayNotProgrammed"), "Gateway infra/public is not programmed: AddressNotAssigned: none"},
		"GatewayBadAddress": {"does not", converged(gatewaySays("Accepted=True Accepted", "Programmed=False AddressNotUsable in use")),
			refused("GatewayNotProgrammed"), "Gateway infra/public is not programmed: AddressNotUsable: in use (look at the Gateway's spec.addresses)"},
		"GatewayNewReason": {"a reason of a later version", converged(gatewaySays("Accepted=True Accepted", "Programmed=False Thinking hm")),
			waits("GatewayNotProgrammed"), "Gateway infra/public is not programmed: Thinking: hm"},
		"GatewayOtherType": {"only two of its conditions count", converged(gatewaySays("Accepted=True Accepted", "Programmed=True Programmed", "Happy=False Sad no")), good, served},

		// The HTTPRoute.
		"NoReport": {"nobody has looked yet", converged(reports()), waits("WaitingForGateway"),
			`no gateway has reported on HTTPRoute "web" as a route of Gateway infra/public: its controller may be down, or not know of Gateways`},
		"NotWritten": {"not even we have", converged(func(s *observed) { s.httpRoute = nil }), waits("WaitingForGateway"), "the HTTPRoute has not been written yet"},
		"OtherParent": {"a report on another parent is about something else", converged(func(s *observed) {
			s.httpRoute.Status.Parents[0].ParentRef.Name = "private"
		}), waits("WaitingForGateway"), `no gateway has reported on HTTPRoute "web" as a route of Gateway infra/public: its controller may be down, or not know of Gateways`},
		"OtherNamespace": {"left out, it is the route's own", converged(func(s *observed) {
			s.httpRoute.Status.Parents[0].ParentRef.Namespace = nil
		}), waits("WaitingForGateway"), `no gateway has reported on HTTPRoute "web" as a route of Gateway infra/public: its controller may be down, or not know of Gateways`},
		"OtherKind": {"a Service may be a parent too", converged(func(s *observed) {
			s.httpRoute.Status.Parents[0].ParentRef.Group, s.httpRoute.Status.Parents[0].ParentRef.Kind = ptr.To[gatewayv1.Group](""), ptr.To[gatewayv1.Kind]("Service")
		}), waits("WaitingForGateway"), `no gateway has reported on HTTPRoute "web" as a route of Gateway infra/public: its controller may be down, or not know of Gateways`},
		"OtherGroup": {"a Gateway of somebody else's", converged(func(s *observed) {
			s.httpRoute.Status.Parents[0].ParentRef.Group = ptr.To[gatewayv1.Group]("example.com")
		}), waits("WaitingForGateway"), `no gateway has reported on HTTPRoute "web" as a route of Gateway infra/public: its controller may be down, or not know of Gateways`},
		"Section": {"a controller that names the listener that it took", converged(func(s *observed) {
			s.httpRoute.Status.Parents[0].ParentRef.SectionName = ptr.To[gatewayv1.SectionName]("http")
		}), good, served},
		"Refused": {"the gateway's reason and words, and what may help", converged(says("Accepted=False NotAllowedByListeners not you")), refused("NotAllowedByListeners"),
			`example.com/gateway does not accept HTTPRoute "web" as a route of Gateway infra/public: NotAllowedByListeners: not you (allow routes of this namespace in the listeners' allowedRoutes)`},
		"RefusedPending": {"False, but only for now", converged(says("Accepted=False Pending later")), waits("Pending"),
			`example.com/gateway does not accept HTTPRoute "web" as a route of Gateway infra/public: Pending: later`},
		"NewReason": {"passed on as it is", converged(says("Accepted=False BadWeather it rains")), refused("BadWeather"),
			`example.com/gateway does not accept HTTPRoute "web" as a route of Gateway infra/public: BadWeather: it rains`},
		"BadReason": {"one that our own status could not hold", converged(says("Accepted=False bad-reason it rains")), refused("NotAccepted"),
			`example.com/gateway does not accept HTTPRoute "web" as a route of Gateway infra/public: bad-reason: it rains`},
		"NoReason": {"and none, and no words", converged(says("Accepted=False")), refused("NotAccepted"),
			`example.com/gateway does not accept HTTPRoute "web" as a route of Gateway infra/public: no reason given: without a message`},
		"Unknown": {"not known yet", converged(says("Accepted=Unknown Pending hm", "ResolvedRefs=True ResolvedRefs")), waits("WaitingForGateway"),
			`example.com/gateway has not accepted HTTPRoute "web" as a route of Gateway infra/public yet: Pending: hm`},
		"NewStatus": {"a status that there is not yet is not True", converged(says("Accepted=Perhaps Pending hm", "ResolvedRefs=True ResolvedRefs")), waits("WaitingForGateway"),
			`example.com/gateway has not accepted HTTPRoute "web" as a route of Gateway infra/public yet: Pending: hm`},
		"OlderGeneration": {"says nothing of the latest spec, refusals included", converged(reports(report(controllerName, condition(1, "Accepted=False NotAllowedByListeners no")))),
			waits("WaitingForGateway"),
			`nobody has said whether HTTPRoute "web" is accepted by example.com/gateway in its latest form, generation 2; the last word is on generation 1: it may be at work, or down`},
		"NoGeneration": {"may be of any", converged(reports(report(controllerName, condition(0, "Accepted=True Accepted"), condition(0, "ResolvedRefs=True ResolvedRefs")))),
			waits("WaitingForGateway"),
			`nobody has said whether HTTPRoute "web" is accepted by example.com/gateway in its latest form, generation 2; the last word is on generation 0: it may be at work, or down`},
		"NoAccepted": {"a report without the word that counts", converged(says("ResolvedRefs=True ResolvedRefs")), waits("WaitingForGateway"),
			`nobody has said whether HTTPRoute "web" is accepted by example.com/gateway: it may be at work, or down`},
		"NoResolvedRefs": {"half a report", converged(says("Accepted=True Accepted")), waits("WaitingForGateway"),
			`nobody has said whether HTTPRoute "web" is resolved by example.com/gateway: it has not said whether it finds the Services`},
		"OldResolvedRefs": {"each condition has its own generation", converged(reports(report(controllerName, condition(2, "Accepted=True Accepted"), condition(1, "ResolvedRefs=False InvalidKind x")))),
			waits("WaitingForGateway"),
			`nobody has said whether HTTPRoute "web" is resolved by example.com/gateway in its latest form, generation 2; the last word is on generation 1: it has not said whether it finds the Services`},
		"NotFound": {"the gateway's copy may lag behind ours", converged(says("Accepted=True Accepted", "ResolvedRefs=False BackendNotFound web?")), waits("BackendNotFound"),
			`example.com/gateway cannot use what HTTPRoute "web" refers to: BackendNotFound: web? (if the Services are there, the gateway may be about to see them, or may not be permitted to)`},
		"Unresolved": {"lasting", converged(says("Accepted=True Accepted", "ResolvedRefs=False UnsupportedProtocol h3")), refused("UnsupportedProtocol"),
			`example.com/gateway cannot use what HTTPRoute "web" refers to: UnsupportedProtocol: h3 (of a listener it is HTTPS, of a Service's port its appProtocol)`},
		"Partly": {"an older form of the one rule may be in use", converged(says("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs", "PartiallyInvalid=True UnsupportedValue a rule")),
			refused("UnsupportedValue"),
			`example.com/gateway has taken up only a part of HTTPRoute "web": UnsupportedValue: a rule (the gateway does not support a field of the HTTPRoute; a timeout is the first to try without)`},
		"NotPartly": {"the good status of that one", converged(says("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs", "PartiallyInvalid=False Valid")), good, served},
		"OtherTypes": {"shown, and decide nothing", converged(says("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs", "Programmed=False x", "example.com/Happy=True y", "Programmed=False z")),
			good, served + "; reported besides: Programmed=False, example.com/Happy=True"},
		"OtherTypeOld": {"not of an older form", converged(reports(report(controllerName, append(all("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs"), condition(1, "Programmed=False x"))...))),
			good, served},
		"TwoAgree": {"two controllers that report", converged(reports(report("b/b", all("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")...),
			report("a/a", all("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")...))), good, served},
		"OneOfTwoRefuses": {"all must accept", converged(reports(report("b/b", all("Accepted=False NotAllowedByListeners no")...),
			report("a/a", all("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")...))), refused("NotAllowedByListeners"),
			`b/b does not accept HTTPRoute "web" as a route of Gateway infra/public: NotAllowedByListeners: no (allow routes of this namespace in the listeners' allowedRoutes)`},
		"RefusalBeforeWait": {"what lasts comes first", converged(reports(report("a/a", all("Accepted=Unknown Pending x")...),
			report("b/b", all("Accepted=False BadWeather no")...))), refused("BadWeather"),
			`b/b does not accept HTTPRoute "web" as a route of Gateway infra/public: BadWeather: no`},
		"OldOneLeft": {"the report of a gateway that was replaced stays for good", converged(reports(report("a/a", condition(1, "Accepted=False BadWeather no")),
			report("b/b", all("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")...))), good, served},

		// The ListenerSet.
		"TLS":      {"accepted and programmed, with every listener", withTLS(), good, served + " by HTTPS"},
		"TLSQuiet": {"not every gateway reports on each listener", withTLS(func(s *observed) { s.listenerSet.Status.Listeners = nil }), good, served + " by HTTPS"},
		"TLSGatewayReport": {"that the Gateway accepts the route is another matter", withTLS(reports(report(controllerName, all("Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")...))),
			waits("WaitingForGateway"), `no gateway has reported on HTTPRoute "web" as a route of ListenerSet shop/web: its controller may be down, or not know of ListenerSets`},
		"SetNotWritten": {"not even we have", withTLS(func(s *observed) { s.listenerSet = nil }), waits("WaitingForGateway"), "the ListenerSet has not been written yet"},
		"SetSilent": {"as the API server creates it", withTLS(func(s *observed) {
			s.listenerSet.Status.Conditions = []metav1.Condition{condition(0, "Accepted=Unknown Pending Waiting for controller"), condition(0, "Programmed=Unknown Pending Waiting for controller")}
		}), waits("WaitingForGateway"), `nobody has said whether ListenerSet "web" is accepted: the gateway's controller may be down, or not know ListenerSets`},
		"SetNoConditions": {"none at all", withTLS(setSays()), waits("WaitingForGateway"), `nobody has said whether ListenerSet "web" is accepted: the gateway's controller may be down, or not know ListenerSets`},
		"SetOlder": {"of an older form", withTLS(func(s *observed) { s.listenerSet.Generation++ }), waits("WaitingForGateway"),
			`nobody has said whether ListenerSet "web" is accepted in its latest form, generation 3; the last word is on generation 2: the gateway's controller may be down, or not know ListenerSets`},
		"SetUnknown": {"looked at, and not known", withTLS(setSays("Accepted=Unknown Pending hm", "Programmed=True Programmed")), waits("WaitingForGateway"),
			`it is not known whether ListenerSet "web" is accepted: Pending: hm`},
		"SetRefused": {"most Gateways allow none, and the HTTPRoute is refused with it", withTLS(setSays("Accepted=False NotAllowed none", "Programmed=False NotAllowed none"), func(s *observed) {
			s.httpRoute.Status.Parents[0].Conditions = all("Accepted=False NoMatchingParent x")
		}), refused("NotAllowed"), `Gateway infra/public does not accept ListenerSet "web": NotAllowed: none (allow ListenerSets of this namespace in the Gateway's spec.allowedListeners)`},
		"RefusedBySetUndecided": {"no listener is there yet; an Event each time a route is made would be noise", withTLS(setSays("Accepted=Unknown Pending hm"), func(s *observed) {
			s.httpRoute.Status.Parents[0].Conditions = all("Accepted=False NoMatchingParent x")
		}), waits("WaitingForGateway"), `it is not known whether ListenerSet "web" is accepted: Pending: hm`},
		"RefusedBySetAccepted": {"now it means what it says", withTLS(func(s *observed) {
			s.httpRoute.Status.Parents[0].Conditions = all("Accepted=False NoMatchingListenerHostname x")
		}), refused("NoMatchingListenerHostname"),
			`example.com/gateway does not accept HTTPRoute "web" as a route of ListenerSet shop/web: NoMatchingListenerHostname: x (give the Gateway a listener for the hostname)`},
		"SetRefusedListeners": {"a refusal of the set that is not about its listeners comes before them", withTLS(setSays("Accepted=False NotAllowed none"),
			listenerSays("Accepted=False TooManyListeners 64")), refused("NotAllowed"),
			`Gateway infra/public does not accept ListenerSet "web": NotAllowed: none (allow ListenerSets of this namespace in the Gateway's spec.allowedListeners)`},
		"SetNotProgrammed": {"its Gateway is not either", withTLS(setSays("Accepted=True Accepted", "Programmed=False ParentNotProgrammed x"),
			gatewaySays("Accepted=True Accepted", "Programmed=False Pending y")), waits("ParentNotProgrammed"), `ListenerSet "web" is not programmed: ParentNotProgrammed: x`},
		"SetProgrammedUnsaid": {"one is missing", withTLS(setSays("Accepted=True Accepted")), waits("WaitingForGateway"),
			`nobody has said whether ListenerSet "web" is programmed: the gateway is still at work, or down`},
		"SetProgrammedInvalid": {"lasting", withTLS(setSays("Accepted=True Accepted", "Programmed=False Invalid x")), refused("Invalid"), `ListenerSet "web" is not programmed: Invalid: x`},
		"Conflicted": {"the listener says more than the set", withTLS(setSays("Accepted=False ListenersNotValid x", "Programmed=False ListenersNotValid x"),
			listenerSays("Conflicted=True HostnameConflict shop/other has it")), refused("HostnameConflict"),
			`the listener of ListenerSet "web" for "*.shop.example.com" is in conflict with another: HostnameConflict: shop/other has it (another listener of the Gateway has the hostname)`},
		"ConflictedNoReason": {"True is the bad status here", withTLS(listenerSays("Conflicted=True")), refused("Conflicted"),
			`the listener of ListenerSet "web" for "*.shop.example.com" is in conflict with another: no reason given: without a message`},
		"ConflictedOld": {"of an older form", withTLS(func(s *observed) {
			s.listenerSet.Status.Listeners[1].Conditions = []metav1.Condition{condition(1, "Conflicted=True HostnameConflict x")}
		}), good, served + " by HTTPS"},
		"ListenerRefused": {"the set is accepted without it", withTLS(setSays("Accepted=True ListenersNotValid x", "Programmed=True Programmed"), listenerSays("Accepted=False TooManyListeners 64")),
			refused("TooManyListeners"), `the listener of ListenerSet "web" for "*.shop.example.com" is not accepted: TooManyListeners: 64 (name fewer hostnames, or another Gateway)`},
		"BadCertificate": {"the type of a Secret says nothing of its content", withTLS(listenerSays("Accepted=True Accepted", "ResolvedRefs=False InvalidCertificateRef malformed")), refused("InvalidCertificateRef"),
			`the listener of ListenerSet "web" for "*.shop.example.com" refers to what cannot be used: InvalidCertificateRef: malformed (look whether the Secret's tls.crt and tls.key are a certificate and its key)`},
		"ListenerPending": {"a matter of time", withTLS(listenerSays("Programmed=False Pending soon")), waits("Pending"),
			`the listener of ListenerSet "web" for "*.shop.example.com" is not programmed: Pending: soon`},
		"SetListenersNotValid": {"and no listener says why", withTLS(setSays("Accepted=False ListenersNotValid x", "Programmed=True Programmed")), refused("ListenersNotValid"),
			`Gateway infra/public does not accept ListenerSet "web": ListenersNotValid: x (look at its status.listeners)`},
	}
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

func TestLongWords(t *testing.T) {
	seen := converged(says("Accepted=False BadWeather x" + strings.Repeat("é", 20000)))
	for _, c := range computeConditions(testRoute(withoutTLS), seen) {
		if len(c.Message) > maxWords+200 || strings.ToValidUTF8(c.Message, "") != c.Message {
			t.Errorf("%s: %d bytes of another's words, valid UTF-8: %t", c.Type, len(c.Message), strings.ToValidUTF8(c.Message, "") == c.Message)
		}
	}
}

func TestLongReason(t *testing.T) {
	for _, c := range computeConditions(testRoute(withoutTLS), converged(says("Accepted=False "+strings.Repeat("x", 1025)+" no"))) {
		if len(c.Reason) > 1024 {
			t.Errorf("%s: a reason of %d characters, which the API server would refuse", c.Type, len(c.Reason))
		}
	}
}

// The order in a status is its writers'; ours must not change with it.
func TestOrderOfReportsDoesNotMatter(t *testing.T) {
	a := report("a/a", all("Accepted=False BadWeather no", "X=True x")...)
	b := report("b/b", all("Accepted=False GoodWeather no", "Y=True y")...)
	ab := computeConditions(testRoute(withoutTLS), converged(reports(a, b)))
	ba := computeConditions(testRoute(withoutTLS), converged(reports(b, a)))
	if diff := cmp.Diff(ab, ba); diff != "" {
		t.Errorf("(-a, b +b, a):\n%s", diff)
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
