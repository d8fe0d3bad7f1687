package applicationroute

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
)

// observed is what a pass has found out, all that a status is computed from.
type observed struct {
	// gateway is what the route attaches to. noGateway: neither spec.gateway nor
	// --default-gateway names one.
	gateway   cache.ObjectName
	noGateway bool
	// gatewayState is what is known of that Gateway itself.
	gatewayState gatewayState

	// hostnames are those that the route holds, in the order of the spec; lost are
	// the others.
	hostnames []string
	lost      []claim

	// missing are the Services, ports and the Secret that are not there or not as
	// they have to be, in the order of the spec.
	missing []dependency
	// secretUnchecked says why the Secret has not been looked at, and how to have it
	// looked at. Empty if it has been, or if there is none to look at.
	secretUnchecked string

	// unavailable is a kind that has to be listed, or a child that has to be decoded,
	// before anything can be written. Nothing is rendered while it lasts.
	unavailable *conditions.Problem

	// httpRoute and listenerSet are ours, as last read or written; nil if there is
	// none.
	httpRoute   *gatewayv1.HTTPRoute
	listenerSet *gatewayv1.ListenerSet

	// wait is set if something has to go before the pass can do its work.
	wait *child.WaitError
	// err is what the pass failed with.
	err error
}

// dependency is what is wrong with one thing that the spec refers to.
type dependency struct{ reason, message string }

// claim is a hostname that another ApplicationRoute holds.
type claim struct {
	hostname string
	by       cache.ObjectName
	// why, in words, where it is not that it claims it and comes first.
	why string
	// leaving: it does not come first and is about to let go.
	leaving bool
}

// gatewayState is what is known of a Gateway that is not ours.
type gatewayState struct {
	// known: the other fields are about a Gateway that has been read. Not known, and
	// not missing: Gateways cannot be read here, or not this one; note says why. What
	// is not known stands in nobody's way.
	known bool
	// missing: there is no such Gateway.
	missing bool
	// conditions are the Gateway's own.
	conditions []metav1.Condition
	note       string
}

// failed notes an error of the pass, or that there is something to wait for; nil is
// neither.
func (o *observed) failed(err error) {
	var wait child.WaitError
	switch {
	case err == nil:
	case !errors.As(err, &wait):
		o.err = errors.Join(o.err, err)
	case o.wait == nil:
		o.wait = &wait
	}
}
