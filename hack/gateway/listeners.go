package gateway

import (
	"fmt"
	"strings"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// listener is one of a Gateway or of a ListenerSet.
type listener struct {
	name      gatewayv1.SectionName
	namespace string
	hostname  string // "": all
	port      gatewayv1.PortNumber
	from      gatewayv1.FromNamespaces
}

func listenersOf(g *gatewayv1.Gateway) (all []listener) {
	for _, l := range g.Spec.Listeners {
		all = append(all, listener{l.Name, g.Namespace, string(ptr.Deref(l.Hostname, "")), l.Port, routesFrom(l.AllowedRoutes)})
	}
	return all
}

func listenersOfSet(set *gatewayv1.ListenerSet) (all []listener) {
	for _, l := range set.Spec.Listeners {
		all = append(all, listener{l.Name, set.Namespace, string(ptr.Deref(l.Hostname, "")), l.Port, routesFrom(l.AllowedRoutes)})
	}
	return all
}

func routesFrom(a *gatewayv1.AllowedRoutes) gatewayv1.FromNamespaces {
	if a == nil || a.Namespaces == nil {
		return gatewayv1.NamespacesFromSame
	}
	return ptr.Deref(a.Namespaces.From, gatewayv1.NamespacesFromSame)
}

// fits says why none of the listeners that ref names takes r, or nothing.
func fits(r *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference, listeners []listener) (reason, message string) {
	named, allowed := 0, 0
	for _, l := range listeners {
		if ref.SectionName != nil && *ref.SectionName != l.name || ref.Port != nil && *ref.Port != l.port {
			continue
		}
		named++
		if l.from == gatewayv1.NamespacesFromNone || l.from == gatewayv1.NamespacesFromSame && l.namespace != r.Namespace {
			continue
		}
		allowed++
		if meets(r.Spec.Hostnames, l.hostname) {
			return "", ""
		}
	}
	switch {
	case named == 0:
		return string(gatewayv1.RouteReasonNoMatchingParent), "no listener has this name and port"
	case allowed == 0:
		return string(gatewayv1.RouteReasonNotAllowedByListeners), fmt.Sprintf("no listener allows routes from namespace %s", r.Namespace)
	default:
		return string(gatewayv1.RouteReasonNoMatchingListenerHostname), fmt.Sprintf("no listener has one of the hostnames %v", r.Spec.Hostnames)
	}
}

// meets says whether a listener's hostname and one of a route's have a name in common.
func meets(hostnames []gatewayv1.Hostname, of string) bool {
	if of == "" || len(hostnames) == 0 {
		return true
	}
	for _, h := range hostnames {
		if covers(string(h), of) || covers(of, string(h)) {
			return true
		}
	}
	return false
}

// covers says whether a pattern, a name or one with "*." in front, covers a hostname.
func covers(pattern, hostname string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(hostname, suffix)
	}
	return pattern == hostname
}

func gatewayOf(l *gatewayv1.ListenerSet) cache.ObjectName {
	p := l.Spec.ParentRef
	return cache.NewObjectName(string(ptr.Deref(p.Namespace, gatewayv1.Namespace(l.Namespace))), string(p.Name))
}

func parentOf(r *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) (kind string, name cache.ObjectName) {
	return string(ptr.Deref(ref.Kind, kindGateway)), cache.NewObjectName(string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.Namespace))), string(ref.Name))
}

func parentKey(kind string, name cache.ObjectName) string { return kind + "/" + name.String() }

func splitParent(p string) (kind string, name cache.ObjectName) {
	kind, rest, _ := strings.Cut(p, "/")
	name, _ = cache.ParseObjectName(rest)
	return kind, name
}

func routeParents(r *gatewayv1.HTTPRoute) []string {
	parents := map[string]bool{}
	for _, ref := range r.Spec.ParentRefs {
		parents[parentKey(parentOf(r, ref))] = true
	}
	return unique(parents)
}

func routeServices(r *gatewayv1.HTTPRoute) []string {
	services := map[string]bool{}
	for _, rule := range r.Spec.Rules {
		for _, ref := range rule.BackendRefs {
			services[string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.Namespace)))+"/"+string(ref.Name)] = true
		}
	}
	return unique(services)
}

func certificates(l *gatewayv1.ListenerSet) []string {
	secrets := map[string]bool{}
	for _, spec := range l.Spec.Listeners {
		if spec.TLS == nil {
			continue
		}
		for _, ref := range spec.TLS.CertificateRefs {
			secrets[string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(l.Namespace)))+"/"+string(ref.Name)] = true
		}
	}
	return unique(secrets)
}
