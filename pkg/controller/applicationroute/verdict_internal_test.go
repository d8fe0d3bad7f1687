package applicationroute

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestVerdict(t *testing.T) {
	checkConditions(t, map[string]conditionsCase{
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
		"NoReportUnseen": {"it may not be there, which nobody here can tell", converged(reports(), func(s *observed) {
			s.gatewayState = gatewayState{note: "Gateway infra/public has not been looked at: its namespace is not one of --namespaces"}
		}), waits("WaitingForGateway"),
			`no gateway has reported on HTTPRoute "web" as a route of Gateway infra/public: its controller may be down, or not know of Gateways; ` +
				"Gateway infra/public has not been looked at: its namespace is not one of --namespaces"},
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
	})
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
