package applicationroute

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1ac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

const (
	kind            = "ApplicationRoute"
	kindGateway     = "Gateway"
	kindListenerSet = "ListenerSet"
	kindHTTPRoute   = "HTTPRoute"

	// httpsPort is that of every listener.
	httpsPort = 443
	// defaultWeight is the CRD's default, for objects from before it had one.
	defaultWeight = 1
)

// ownLabels do not name the route: a name may be longer than a label.
func ownLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "steadwatch"}
}

func ownerReference(route *v1alpha1.ApplicationRoute) *metav1ac.OwnerReferenceApplyConfiguration {
	return child.OwnerReference(route, v1alpha1.SchemeGroupVersion.WithKind(kind))
}

// desiredHTTPRoute is every field of the HTTPRoute that route decides, for the
// hostnames that it holds. There must be one at least: an HTTPRoute without hostnames
// matches all of them.
//
// parentRefs and rules are lists that the API server takes as one value, defaults
// included, so that everything it would fill in inside of them is written out.
func desiredHTTPRoute(route *v1alpha1.ApplicationRoute, gateway cache.ObjectName, hostnames []string) *gatewayv1ac.HTTPRouteApplyConfiguration {
	parent := parentOf(route, gateway)
	rule := gatewayv1ac.HTTPRouteRule().
		WithMatches(gatewayv1ac.HTTPRouteMatch().
			WithPath(gatewayv1ac.HTTPPathMatch().WithType(gatewayv1.PathMatchPathPrefix).WithValue("/")))
	for _, b := range route.Spec.Backends {
		rule.WithBackendRefs(gatewayv1ac.HTTPBackendRef().
			WithGroup("").
			WithKind("Service").
			WithName(gatewayv1.ObjectName(b.Service)).
			WithPort(b.Port).
			WithWeight(ptr.Deref(b.Weight, defaultWeight)))
	}
	if route.Spec.Timeout != nil {
		rule.WithTimeouts(gatewayv1ac.HTTPRouteTimeouts().WithRequest(duration(route.Spec.Timeout.Duration)))
	}
	spec := gatewayv1ac.HTTPRouteSpec().
		WithParentRefs(gatewayv1ac.ParentReference().
			WithGroup(gatewayv1.GroupName).
			WithKind(gatewayv1.Kind(parent.kind)).
			WithNamespace(gatewayv1.Namespace(parent.Namespace)).
			WithName(gatewayv1.ObjectName(parent.Name))).
		WithRules(rule)
	for _, h := range hostnames {
		spec.WithHostnames(gatewayv1.Hostname(h))
	}
	return gatewayv1ac.HTTPRoute(route.Name, route.Namespace).
		WithLabels(ownLabels()).
		WithOwnerReferences(ownerReference(route)).
		WithSpec(spec)
}

// parent is what an HTTPRoute hangs on.
type parent struct {
	kind string
	cache.ObjectName
}

func (p parent) String() string { return fmt.Sprintf("%s %s", p.kind, p.ObjectName) }

// parentOf is the route's ListenerSet if it serves HTTPS, and that alone, so that
// nothing is served by the Gateway's other listeners; otherwise the Gateway.
func parentOf(route *v1alpha1.ApplicationRoute, gateway cache.ObjectName) parent {
	if route.Spec.TLSSecret != "" {
		return parent{kindListenerSet, cache.MetaObjectToName(route)}
	}
	return parent{kindGateway, gateway}
}

// desiredListenerSet is every field of the ListenerSet that route decides: one HTTPS
// listener for each hostname that it holds, all with the one Secret.
func desiredListenerSet(route *v1alpha1.ApplicationRoute, gateway cache.ObjectName, hostnames []string) *gatewayv1ac.ListenerSetApplyConfiguration {
	spec := gatewayv1ac.ListenerSetSpec().
		WithParentRef(gatewayv1ac.ParentGatewayReference().
			WithGroup(gatewayv1.GroupName).
			WithKind(kindGateway).
			WithNamespace(gatewayv1.Namespace(gateway.Namespace)).
			WithName(gatewayv1.ObjectName(gateway.Name)))
	for _, h := range hostnames {
		spec.WithListeners(gatewayv1ac.ListenerEntry().
			WithName(listenerName(h)).
			WithHostname(gatewayv1.Hostname(h)).
			WithPort(httpsPort).
			WithProtocol(gatewayv1.HTTPSProtocolType).
			WithTLS(gatewayv1ac.ListenerTLSConfig().
				WithMode(gatewayv1.TLSModeTerminate).
				WithCertificateRefs(gatewayv1ac.SecretObjectReference().
					WithGroup("").
					WithKind("Secret").
					WithName(gatewayv1.ObjectName(route.Spec.TLSSecret)))).
			WithAllowedRoutes(gatewayv1ac.AllowedRoutes().
				WithNamespaces(gatewayv1ac.RouteNamespaces().WithFrom(gatewayv1.NamespacesFromSame))))
	}
	return gatewayv1ac.ListenerSet(route.Name, route.Namespace).
		WithLabels(ownLabels()).
		WithOwnerReferences(ownerReference(route)).
		WithSpec(spec)
}

// listKeys knows the one list of the two children that the API server merges by key
// instead of taking it as one value: the listeners of a ListenerSet.
func listKeys(field string, _ map[string]any) []string {
	if field == "listeners" {
		return []string{"name"}
	}
	return nil
}

// maxListenerName is the API's limit for a SectionName.
const maxListenerName = 253

// listenerName depends on the hostname alone, so that a listener keeps its name
// whatever else is in the list, and no two hostnames have the same:
// exact.shop.example.com, wildcard.example.com for *.example.com. Where that is too
// long, a hash of the hostname is in the first label and the hostname's end follows,
// exact-5f70bf18a0860070.shop.example.com, which no other first label equals.
func listenerName(hostname string) gatewayv1.SectionName {
	first, rest := "exact", hostname
	if base, ok := strings.CutPrefix(hostname, "*."); ok {
		first, rest = "wildcard", base
	}
	if name := first + "." + rest; len(name) <= maxListenerName {
		return gatewayv1.SectionName(name)
	}
	sum := sha256.Sum256([]byte(hostname))
	first += "-" + hex.EncodeToString(sum[:8]) + "."
	// A name must not begin a label with "-" or ".".
	rest = strings.TrimLeft(rest[len(rest)-(maxListenerName-len(first)):], "-.")
	return gatewayv1.SectionName(first + rest)
}

// maxUnit is the highest number before a unit: five digits.
const maxUnit = 99999

// duration renders d as the Gateway API wants it (GEP-2257): h, m, s and ms, each
// once at most, no fractions, five digits at most. Every duration that the schema of
// ApplicationRoutes admits is rendered exactly. One that cannot be is given as Go
// writes it, for the API server to refuse it by name: to round it would be a guess.
func duration(d time.Duration) gatewayv1.Duration {
	if d == 0 {
		return "0s"
	}
	if d < 0 || d%time.Millisecond != 0 || d/time.Hour > maxUnit {
		return gatewayv1.Duration(d.String())
	}
	var text []byte
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.size; n > 0 {
			text = append(strconv.AppendInt(text, int64(n), 10), unit.name...)
			d -= n * unit.size
		}
	}
	return gatewayv1.Duration(text)
}
