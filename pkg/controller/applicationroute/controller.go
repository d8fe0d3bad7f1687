package applicationroute

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayversioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// Config is what New needs.
type Config struct {
	// Kube, Networking, Gateway and Metadata reach the API server. Required. Their
	// user agent, limits and the fence of the lead are the caller's. Kube only reads:
	// namespaces, and the types of Secrets.
	Kube       kubernetes.Interface
	Networking versioned.Interface
	Gateway    gatewayversioned.Interface
	Metadata   metadata.Interface

	// The local copies. Required, all but Secrets. That of ApplicationRoutes needs
	// Indexers. Those of the Gateway API may be of kinds that are not served, or not
	// to us.
	ApplicationRoutes *informer.Informer[*v1alpha1.ApplicationRoute]
	Services          *informer.Informer[*corev1.Service]
	HTTPRoutes        *informer.Informer[*gatewayv1.HTTPRoute]
	ListenerSets      *informer.Informer[*gatewayv1.ListenerSet]
	Gateways          *informer.Informer[*gatewayv1.Gateway]
	// Secrets is nil where no Secret may be read.
	Secrets *informer.Informer[*metav1.PartialObjectMetadata]

	// Writes is told of every write, and compares with the copies of
	// ApplicationRoutes, HTTPRoutes and ListenerSets. The gate before Reconcile keeps
	// a key back while its Pending says so. Required.
	Writes *informer.Writes

	// DefaultGateway is for routes that name none. Zero: there is none.
	DefaultGateway cache.ObjectName

	// Recorder takes Events; it must not block. Nil: none are recorded.
	Recorder record.EventRecorder
	// Converged is called with how long a change of spec took to become Ready. Nil: it
	// is not.
	Converged func(time.Duration)
	// Clock times conditions and convergence. Nil: the real one.
	Clock clock.PassiveClock
}
