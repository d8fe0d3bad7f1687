package applicationroute

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Reasons of conditions that are ours. Where a gateway refuses a child its own reason
// is passed on instead; errors have those of conditions.ProblemOf.
const (
	// Of Ready and Progressing.
	reasonProgrammed        = "Programmed"
	reasonWaitingForGateway = "WaitingForGateway"
	// Of Degraded too.
	reasonAsExpected           = "AsExpected"
	reasonNoGateway            = "NoGateway"
	reasonNoHostnames          = "NoHostnames"
	reasonHostnameConflict     = "HostnameConflict"
	reasonGatewayMissing       = "GatewayMissing"
	reasonGatewayNotAccepted   = "GatewayNotAccepted"
	reasonGatewayNotProgrammed = "GatewayNotProgrammed"
	// Of DependenciesReady, and then of Ready.
	reasonDependenciesFound = "DependenciesFound"
	reasonServiceMissing    = "ServiceMissing"
	reasonPortMissing       = "PortMissing"
	reasonSecretMissing     = "SecretMissing"
	reasonSecretWrongType   = "SecretWrongType"
	reasonSecretNotChecked  = "SecretNotChecked"
)

// passing are reasons for False that time alone may mend. Gateways give them while
// they have not got to something, or while their copies lag behind ours.
var passing = map[string]bool{
	string(gatewayv1.RouteReasonPending):         true, // of all kinds
	string(gatewayv1.RouteReasonBackendNotFound): true,
	"NotReconciled": true, // of Gateways; the Gateway API has deprecated it for Pending
	string(gatewayv1.GatewayReasonAddressNotAssigned): true,
	"ParentNotProgrammed":                             true,
}

// lastingProgrammed are the reasons for Programmed=False that time alone does not
// mend. Others, and those not known here, are taken for work that goes on.
var lastingProgrammed = map[string]bool{
	string(gatewayv1.GatewayReasonInvalid):                true, // of all kinds
	string(gatewayv1.GatewayReasonNoResources):            true,
	string(gatewayv1.GatewayReasonAddressNotUsable):       true,
	string(gatewayv1.ListenerSetReasonListenersNotValid):  true,
	string(gatewayv1.ListenerEntryReasonPortUnavailable):  true,
	string(gatewayv1.ListenerSetReasonParentNotAccepted):  true,
	string(gatewayv1.ListenerEntryReasonTooManyListeners): true,
}

// remedies say what to do about reasons that do not say it themselves.
var remedies = map[string]string{
	string(gatewayv1.RouteReasonNotAllowedByListeners):         "allow routes of this namespace in the listeners' allowedRoutes",
	string(gatewayv1.RouteReasonNoMatchingListenerHostname):    "give the Gateway a listener for the hostname",
	string(gatewayv1.ListenerSetReasonNotAllowed):              "allow ListenerSets of this namespace in the Gateway's spec.allowedListeners",
	string(gatewayv1.ListenerEntryReasonInvalidCertificateRef): "look whether the Secret's tls.crt and tls.key are a certificate and its key",
	string(gatewayv1.RouteReasonBackendNotFound):               "if the Services are there, the gateway may be about to see them, or may not be permitted to",
	string(gatewayv1.ListenerEntryReasonHostnameConflict):      "another listener of the Gateway has the hostname",
	string(gatewayv1.ListenerEntryReasonProtocolConflict):      "another listener of the Gateway uses port 443 for another protocol",
	string(gatewayv1.ListenerEntryReasonTooManyListeners):      "name fewer hostnames, or another Gateway",
	string(gatewayv1.RouteReasonRefNotPermitted):               "only references within the namespace are rendered: ask whoever runs the gateway",
	string(gatewayv1.ListenerSetReasonParentNotAccepted):       "look at the Gateway's status",
	string(gatewayv1.ListenerEntryReasonUnsupportedProtocol):   "of a listener it is HTTPS, of a Service's port its appProtocol",
	string(gatewayv1.ListenerEntryReasonPortUnavailable):       "the Gateway has to offer port 443",
	string(gatewayv1.RouteReasonUnsupportedValue):              "the gateway does not support a field of the HTTPRoute; a timeout is the first to try without",
	string(gatewayv1.RouteReasonNoMatchingParent):              "name a Gateway that serves HTTP",
	string(gatewayv1.ListenerEntryReasonInvalidRouteKinds):     "the Gateway has to support HTTPRoutes",
	string(gatewayv1.GatewayReasonInvalidParameters):           "look at the parameters of the Gateway and of its GatewayClass",
	string(gatewayv1.GatewayReasonUnsupportedAddress):          "look at the Gateway's spec.addresses",
	string(gatewayv1.ListenerEntryReasonListenerConflict):      "another listener of the Gateway has the port and the hostname",
	string(gatewayv1.RouteReasonInvalidKind):                   "the gateway has to support Services as backends",
	string(gatewayv1.ListenerSetReasonListenersNotValid):       "look at its status.listeners",
	string(gatewayv1.GatewayReasonAddressNotUsable):            "look at the Gateway's spec.addresses",
	string(gatewayv1.GatewayReasonNoResources):                 "ask whoever runs the gateway",
}

// conditionReason is the API server's pattern for the reason of a condition.
var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// reasonFrom is c's reason as it is, or fallback where our own status could not hold
// it.
func reasonFrom(c *metav1.Condition, fallback string) string {
	if len(c.Reason) > 1024 || !conditionReason.MatchString(c.Reason) {
		return fallback
	}
	return c.Reason
}

// maxWords bounds what one condition of a gateway adds to ours.
const maxWords = 1024

// said is a condition's reason and message, and what may help against it.
func said(c *metav1.Condition) string {
	words := strings.TrimSpace(c.Message)
	if len(words) > maxWords {
		// Half a character would be stored as another one, and so be written anew
		// by every pass.
		words = strings.ToValidUTF8(words[:maxWords], "") + "…"
	}
	if words == "" {
		words = "without a message"
	}
	if remedy := remedies[c.Reason]; remedy != "" && c.Status != metav1.ConditionUnknown {
		words += " (" + remedy + ")"
	}
	return fmt.Sprintf(": %s: %s", cmp.Or(c.Reason, "no reason given"), words)
}
