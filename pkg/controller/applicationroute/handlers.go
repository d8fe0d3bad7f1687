package applicationroute

import (
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// Indexers are what the informer of ApplicationRoutes needs.
func Indexers(defaultGateway cache.ObjectName) cache.TypedIndexers[*v1alpha1.ApplicationRoute] {
	return cache.TypedIndexers[*v1alpha1.ApplicationRoute]{}
}
