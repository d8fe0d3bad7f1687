package applicationroute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// gatewayOf returns the Gateway that route attaches to, false if it names none and
// there is no default.
func gatewayOf(route *v1alpha1.ApplicationRoute, standard cache.ObjectName) (cache.ObjectName, bool) {
	if g := route.Spec.Gateway; g != nil && g.Name != "" {
		return cache.NewObjectName(cmp.Or(g.Namespace, route.Namespace), g.Name), true
	}
	return standard, standard.Name != ""
}

// readGateway returns what is known of a Gateway. Nothing fails for want of it: what
// the gateway does with our children is in their status too.
func (c *Controller) readGateway(key cache.ObjectName) (gatewayState, error) {
	if c.cfg.Gateways.Store(key.Namespace) == nil {
		return gatewayState{note: fmt.Sprintf("Gateway %s has not been looked at: its namespace is not one of --namespaces", key)}, nil
	}
	if problem := c.gatewaysKind.problem(key.Namespace); problem != nil {
		return gatewayState{note: fmt.Sprintf("Gateway %s has not been looked at: %s", key, problem.Message)}, nil
	}
	if reason, bad := c.cfg.Gateways.Undecodable(key); bad {
		return gatewayState{note: fmt.Sprintf("Gateway %s cannot be decoded: %s", key, reason)}, nil
	}
	gateway, err := c.gatewayLister.Gateways(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return gatewayState{missing: true}, nil
	}
	if err != nil {
		return gatewayState{}, fmt.Errorf("read Gateway %s: %w", key, err)
	}
	state := gatewayState{known: true, conditions: gateway.Status.Conditions}
	if gateway.DeletionTimestamp != nil {
		state.note = fmt.Sprintf("Gateway %s is being deleted", key)
	}
	return state, nil
}

// missingServices returns what is wrong with the backends of route. A Service is named
// once, however many of its ports are wanted.
func (c *Controller) missingServices(route *v1alpha1.ApplicationRoute) ([]dependency, error) {
	var missing []dependency
	for n, backend := range route.Spec.Backends {
		service, err := c.services.Services(route.Namespace).Get(backend.Service)
		switch {
		case apierrors.IsNotFound(err):
			if !slices.ContainsFunc(route.Spec.Backends[:n], func(b v1alpha1.Backend) bool { return b.Service == backend.Service }) {
				missing = append(missing, dependency{reasonServiceMissing,
					fmt.Sprintf("Service %q does not exist in namespace %q", backend.Service, route.Namespace)})
			}
		case err != nil:
			return nil, fmt.Errorf("read Service %q: %w", backend.Service, err)
		case !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == backend.Port }):
			missing = append(missing, dependency{reasonPortMissing,
				fmt.Sprintf("Service %q has no port %d: it has %s", backend.Service, backend.Port, ports(service))})
		}
	}
	return missing, nil
}

// ports names the ports of a Service.
func ports(service *corev1.Service) string {
	if len(service.Spec.Ports) == 0 {
		return "none"
	}
	numbers := make([]string, 0, len(service.Spec.Ports))
	for _, p := range service.Spec.Ports {
		numbers = append(numbers, strconv.Itoa(int(p.Port)))
	}
	return strings.Join(numbers, ", ")
}

// missingSecret returns what is wrong with the Secret of route, nil if nothing is, or
// why it has not been looked at. Of a Secret nothing is read but its name, version and
// type.
func (c *Controller) missingSecret(ctx context.Context, route *v1alpha1.ApplicationRoute) (missing *dependency, unchecked string, err error) {
	name := route.Spec.TLSSecret
	if name == "" {
		return nil, "", nil
	}
	if c.cfg.Secrets == nil {
		return nil, fmt.Sprintf("Secret %q has not been looked at: this controller may not read Secrets; to have it check them add the component tls-secrets to its manifests (--tls-secrets)", name), nil
	}
	if problem := c.secretsKind.problem(route.Namespace); problem != nil {
		return nil, fmt.Sprintf("Secret %q has not been looked at: %s", name, problem.Message), nil
	}
	gone := &dependency{reasonSecretMissing, fmt.Sprintf("Secret %q does not exist in namespace %q", name, route.Namespace)}
	object, exists, err := c.cfg.Secrets.Indexer().GetByKey(cache.NewObjectName(route.Namespace, name).String())
	if err != nil {
		return nil, "", fmt.Errorf("read Secret %q: %w", name, err)
	}
	secret, ok := object.(*metav1.PartialObjectMetadata)
	if !exists || !ok {
		return gone, "", nil
	}
	secretType, err := c.secretTypes.of(ctx, secret)
	switch {
	case apierrors.IsNotFound(err):
		return gone, "", nil
	case apierrors.IsForbidden(err):
		return nil, fmt.Sprintf("Secret %q has not been looked at: %s", name, err), nil
	case err != nil:
		// Both: an error must not read as "every dependency found".
		return nil, fmt.Sprintf("Secret %q has not been looked at: %s", name, err), fmt.Errorf("read the type of Secret %q: %w", name, err)
	case secretType != string(corev1.SecretTypeTLS):
		return &dependency{reasonSecretWrongType,
			fmt.Sprintf("Secret %q is of type %q: it has to be of type %q", name, secretType, corev1.SecretTypeTLS)}, "", nil
	}
	return nil, "", nil
}
