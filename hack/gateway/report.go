package gateway

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// report brings the status of one object up to date. It writes only what has changed,
// against the version that it has seen.
func (s *StandIn) report(ctx context.Context, i item) error {
	b := s.behaves()
	if b.Silent {
		return nil
	}
	options := metav1.UpdateOptions{FieldManager: string(s.name)}
	switch i.kind {
	case kindGateway:
		g := get(s.gateways, i.key)
		if g == nil {
			return nil
		}
		before := g.Status.DeepCopy()
		s.gatewayStatus(b, g)
		if equality.Semantic.DeepEqual(before, &g.Status) {
			return nil
		}
		_, err := s.clients.GatewayV1().Gateways(g.Namespace).UpdateStatus(ctx, g, options)
		return err
	case kindListenerSet:
		l := get(s.listenerSets, i.key)
		if l == nil {
			return nil
		}
		before := l.Status.DeepCopy()
		s.listenerSetStatus(b, l)
		if equality.Semantic.DeepEqual(before, &l.Status) {
			return nil
		}
		_, err := s.clients.GatewayV1().ListenerSets(l.Namespace).UpdateStatus(ctx, l, options)
		return err
	default:
		r := get(s.routes, i.key)
		if r == nil {
			return nil
		}
		before := r.Status.DeepCopy()
		s.routeStatus(b, r)
		if equality.Semantic.DeepEqual(before, &r.Status) {
			return nil
		}
		_, err := s.clients.GatewayV1().HTTPRoutes(r.Namespace).UpdateStatus(ctx, r, options)
		return err
	}
}

// says is a condition: True with the type as its reason, as the Gateway API does it,
// or False if there is a reason.
func says(condition, reason, message string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, ObservedGeneration: generation}
	if reason != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message
	}
	return c
}

// conditions are those in want, with the transition times of old.
func (b Behavior) conditions(old []metav1.Condition, generation int64, want ...metav1.Condition) []metav1.Condition {
	for _, more := range b.Conditions {
		more.ObservedGeneration = generation
		want = append(want, more)
	}
	var out []metav1.Condition
	for _, w := range want {
		if before := meta.FindStatusCondition(old, w.Type); before != nil {
			out = append(out, *before)
		}
		meta.SetStatusCondition(&out, w)
	}
	return out
}

func ask(f func(string, metav1.Object) (string, string), kind string, o metav1.Object) (reason, message string) {
	if f == nil {
		return "", ""
	}
	return f(kind, o)
}

func (s *StandIn) gatewayStatus(b Behavior, g *gatewayv1.Gateway) {
	status, generation := &g.Status, g.Generation
	refused, why := ask(b.Refuse, kindGateway, g)
	unprogrammed, how := ask(b.Unprogrammed, kindGateway, g)
	if refused != "" && unprogrammed == "" {
		unprogrammed, how = string(gatewayv1.GatewayReasonInvalid), why
	}
	status.Conditions = b.conditions(status.Conditions, generation,
		says(string(gatewayv1.GatewayConditionAccepted), refused, why, generation),
		says(string(gatewayv1.GatewayConditionProgrammed), unprogrammed, how, generation))
	status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: ptr.To(gatewayv1.IPAddressType), Value: "192.0.2.1"}}
	before := status.Listeners
	status.Listeners = nil
	for _, spec := range g.Spec.Listeners {
		l := gatewayv1.ListenerStatus{Name: spec.Name, SupportedKinds: supported(), AttachedRoutes: s.attached(b, kindGateway, g, listenersOf(g), spec.Name)}
		var old []metav1.Condition
		for _, o := range before {
			if o.Name == spec.Name {
				old = o.Conditions
			}
		}
		l.Conditions = b.conditions(old, generation,
			says(string(gatewayv1.ListenerConditionAccepted), refused, why, generation),
			says(string(gatewayv1.ListenerConditionProgrammed), unprogrammed, how, generation),
			says(string(gatewayv1.ListenerConditionResolvedRefs), "", "", generation))
		status.Listeners = append(status.Listeners, l)
	}
	var sets int32
	found, _ := s.listenerSets.Indexer().ByIndex(byParent, parentKey(kindGateway, cache.MetaObjectToName(g)))
	for _, l := range found {
		if reason, _ := admitted(g, l.(*gatewayv1.ListenerSet)); reason == "" {
			sets++
		}
	}
	status.AttachedListenerSets = &sets
}

func (s *StandIn) listenerSetStatus(b Behavior, l *gatewayv1.ListenerSet) {
	status, generation := &l.Status, l.Generation
	g := get(s.gateways, gatewayOf(l))
	if g == nil {
		*status = gatewayv1.ListenerSetStatus{} // nobody's
		return
	}
	refused, why := s.listenerSetRefused(b, g, l)
	unprogrammed, how := ask(b.Unprogrammed, kindListenerSet, l)
	if refused != "" && unprogrammed == "" {
		unprogrammed, how = string(gatewayv1.ListenerSetReasonInvalid), why
	}
	status.Conditions = b.conditions(status.Conditions, generation,
		says(string(gatewayv1.ListenerSetConditionAccepted), refused, why, generation),
		says(string(gatewayv1.ListenerSetConditionProgrammed), unprogrammed, how, generation))
	if refused == string(gatewayv1.ListenerSetReasonListenersNotValid) {
		refused, why = "", "" // each listener says for itself what is wrong
	}
	before := status.Listeners
	status.Listeners = nil
	for _, spec := range l.Spec.Listeners {
		entry := gatewayv1.ListenerEntryStatus{Name: spec.Name, SupportedKinds: supported(),
			AttachedRoutes: s.attached(b, kindListenerSet, l, listenersOfSet(l), spec.Name)}
		var old []metav1.Condition
		for _, o := range before {
			if o.Name == spec.Name {
				old = o.Conditions
			}
		}
		unresolved, which := s.unresolved(l, spec)
		badly, because := unprogrammed, how
		if unresolved != "" {
			badly, because = string(gatewayv1.ListenerEntryReasonInvalid), which
		}
		entry.Conditions = b.conditions(old, generation,
			says(string(gatewayv1.ListenerEntryConditionAccepted), refused, why, generation),
			says(string(gatewayv1.ListenerEntryConditionProgrammed), badly, because, generation),
			says(string(gatewayv1.ListenerEntryConditionResolvedRefs), unresolved, which, generation))
		status.Listeners = append(status.Listeners, entry)
	}
}

// listenerSetRefused says why a ListenerSet is not accepted, or nothing.
func (s *StandIn) listenerSetRefused(b Behavior, g *gatewayv1.Gateway, l *gatewayv1.ListenerSet) (reason, message string) {
	if reason, message = ask(b.Refuse, kindListenerSet, l); reason != "" {
		return reason, message
	}
	if reason, message = ask(b.Refuse, kindGateway, g); reason != "" {
		return string(gatewayv1.ListenerSetReasonParentNotAccepted), message
	}
	if reason, message = admitted(g, l); reason != "" {
		return reason, message
	}
	for _, spec := range l.Spec.Listeners {
		if reason, message = s.unresolved(l, spec); reason == "" {
			return "", "" // one that works is enough
		}
	}
	return string(gatewayv1.ListenerSetReasonListenersNotValid), message
}

// admitted says why a Gateway does not allow a ListenerSet, or nothing.
func admitted(g *gatewayv1.Gateway, l *gatewayv1.ListenerSet) (reason, message string) {
	from := gatewayv1.NamespacesFromNone
	if a := g.Spec.AllowedListeners; a != nil && a.Namespaces != nil {
		from = ptr.Deref(a.Namespaces.From, from)
	}
	if from == gatewayv1.NamespacesFromNone || from == gatewayv1.NamespacesFromSame && g.Namespace != l.Namespace {
		return string(gatewayv1.ListenerSetReasonNotAllowed), fmt.Sprintf("Gateway %s allows ListenerSets from: %s", key(g), from)
	}
	return "", ""
}

// unresolved says which Secret of a listener cannot be used, or nothing.
func (s *StandIn) unresolved(l *gatewayv1.ListenerSet, spec gatewayv1.ListenerEntry) (reason, message string) {
	if spec.TLS == nil {
		return "", ""
	}
	for _, ref := range spec.TLS.CertificateRefs {
		namespace := string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(l.Namespace)))
		if namespace != l.Namespace {
			return string(gatewayv1.ListenerEntryReasonRefNotPermitted), fmt.Sprintf("Secret %s/%s is in another namespace", namespace, ref.Name)
		}
		secret := get(s.secrets, cache.NewObjectName(namespace, string(ref.Name)))
		if secret == nil || secret.Type != corev1.SecretTypeTLS {
			return string(gatewayv1.ListenerEntryReasonInvalidCertificateRef), fmt.Sprintf("Secret %q is missing or not of type %s", ref.Name, corev1.SecretTypeTLS)
		}
	}
	return "", ""
}

func (s *StandIn) routeStatus(b Behavior, r *gatewayv1.HTTPRoute) {
	old := map[string][]metav1.Condition{}
	var parents []gatewayv1.RouteParentStatus
	for _, p := range r.Status.Parents {
		if p.ControllerName != s.name {
			parents = append(parents, p)
			continue
		}
		old[refKey(p.ParentRef)] = p.Conditions
	}
	generation := r.Generation
	for _, ref := range r.Spec.ParentRefs {
		known, refused, why := s.attach(b, r, ref)
		if !known {
			continue
		}
		unresolved, which := s.backends(r)
		parents = append(parents, gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: s.name,
			Conditions: b.conditions(old[refKey(ref)], generation,
				says(string(gatewayv1.RouteConditionAccepted), refused, why, generation),
				says(string(gatewayv1.RouteConditionResolvedRefs), unresolved, which, generation))})
	}
	if parents == nil {
		parents = []gatewayv1.RouteParentStatus{} // required
	}
	r.Status.Parents = parents
}

// attach finds what a parentRef names. A parent that nobody knows is nobody's to
// report.
func (s *StandIn) attach(b Behavior, r *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) (known bool, reason, message string) {
	kind, name := parentOf(r, ref)
	var listeners []listener
	if kind == kindListenerSet {
		l := get(s.listenerSets, name)
		if l == nil {
			return false, "", ""
		}
		g := get(s.gateways, gatewayOf(l))
		if g == nil {
			return false, "", ""
		}
		if refused, why := s.listenerSetRefused(b, g, l); refused != "" {
			return true, string(gatewayv1.RouteReasonNoMatchingParent), fmt.Sprintf("ListenerSet %s is not accepted: %s", name, why)
		}
		listeners = listenersOfSet(l)
	} else {
		g := get(s.gateways, name)
		if g == nil {
			return false, "", ""
		}
		listeners = listenersOf(g)
	}
	if reason, message = ask(b.Refuse, kindHTTPRoute, r); reason != "" {
		return true, reason, message
	}
	reason, message = fits(r, ref, listeners)
	return true, reason, message
}

// backends says which Service cannot be used, or nothing.
func (s *StandIn) backends(r *gatewayv1.HTTPRoute) (reason, message string) {
	for _, rule := range r.Spec.Rules {
		for _, ref := range rule.BackendRefs {
			namespace := string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.Namespace)))
			service := get(s.services, cache.NewObjectName(namespace, string(ref.Name)))
			switch {
			case namespace != r.Namespace:
				return string(gatewayv1.RouteReasonRefNotPermitted), fmt.Sprintf("Service %s/%s is in another namespace", namespace, ref.Name)
			case ptr.Deref(ref.Kind, "Service") != "Service":
				return string(gatewayv1.RouteReasonInvalidKind), fmt.Sprintf("%s is no Service", *ref.Kind)
			case service == nil:
				return string(gatewayv1.RouteReasonBackendNotFound), fmt.Sprintf("Service %q not found", ref.Name)
			case !hasPort(service, ptr.Deref(ref.Port, 0)):
				return string(gatewayv1.RouteReasonBackendNotFound), fmt.Sprintf("Service %q has no port %d", ref.Name, ptr.Deref(ref.Port, 0))
			}
		}
	}
	return "", ""
}

func hasPort(s *corev1.Service, port int32) bool {
	for _, p := range s.Spec.Ports {
		if p.Port == port {
			return true
		}
	}
	return false
}

// attached counts the routes on one listener.
func (s *StandIn) attached(b Behavior, kind string, parent metav1.Object, listeners []listener, name gatewayv1.SectionName) (n int32) {
	found, _ := s.routes.Indexer().ByIndex(byParent, parentKey(kind, cache.MetaObjectToName(parent)))
	for _, o := range found {
		r := o.(*gatewayv1.HTTPRoute)
		if reason, _ := ask(b.Refuse, kindHTTPRoute, r); reason != "" {
			continue
		}
		for _, ref := range r.Spec.ParentRefs {
			if k, named := parentOf(r, ref); k != kind || named != cache.MetaObjectToName(parent) {
				continue
			}
			if ref.SectionName == nil {
				ref.SectionName = &name
			}
			if *ref.SectionName != name {
				continue
			}
			if reason, _ := fits(r, ref, listeners); reason == "" {
				n++
				break
			}
		}
	}
	return n
}

func supported() []gatewayv1.RouteGroupKind {
	return []gatewayv1.RouteGroupKind{{Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: kindHTTPRoute}}
}

func refKey(ref gatewayv1.ParentReference) string {
	return strings.Join([]string{string(ptr.Deref(ref.Kind, kindGateway)), string(ptr.Deref(ref.Namespace, "")), string(ref.Name),
		string(ptr.Deref(ref.SectionName, "")), fmt.Sprint(ptr.Deref(ref.Port, 0))}, "/")
}
