package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Client makes, from a config, what lists and watches one resource: a
// Config.ListerWatcher. See TolerantClient for custom resources and ListWatchClient for
// built-in ones.
type Client func(*rest.Config) (func(namespace string) cache.ListerWatcherWithContext, error)

// NewForConfig is New for a resource that is read as config says, over TCP connections
// of its own: it makes the Connection and the client, and sets c.Connection and
// c.ListerWatcher.
//
//	webApps, err := informer.NewForConfig(config, informer.TolerantClient(platformv1alpha1.NewForConfig),
//		informer.Config[*v1alpha1.WebApp]{Resource: v1alpha1.SchemeGroupVersion.WithResource("webapps"), Hearing: hearing})
func NewForConfig[T cache.Object](config *rest.Config, client Client, c Config[T]) (*Informer[T], error) {
	c.Connection = NewConnection(config)
	if c.Connection.err != nil {
		return nil, fmt.Errorf("informer of %s: its Connection %w", c.Resource.GroupResource(), c.Connection.err)
	}
	var err error
	if c.ListerWatcher, err = client(c.Connection.Config()); err != nil {
		return nil, fmt.Errorf("informer of %s: build its client: %w", c.Resource.GroupResource(), err)
	}
	return New(c)
}

// TolerantClient is Tolerant on the typed client of an API group, given what makes one.
func TolerantClient[C interface{ RESTClient() rest.Interface }](newForConfig func(*rest.Config) (C, error)) Client {
	return func(config *rest.Config) (func(string) cache.ListerWatcherWithContext, error) {
		group, err := newForConfig(config)
		if err != nil {
			return nil, err
		}
		return Tolerant(group.RESTClient()), nil
	}
}

// ListWatchClient is ListWatch on the typed client of an API group, given what makes one
// and the resource's getter, as in
//
//	informer.ListWatchClient(corev1.NewForConfig, (*corev1.CoreV1Client).Services)
func ListWatchClient[G any, C TypedClient[L], L runtime.Object](newForConfig func(*rest.Config) (G, error), typed func(group G, namespace string) C) Client {
	return func(config *rest.Config) (func(string) cache.ListerWatcherWithContext, error) {
		group, err := newForConfig(config)
		if err != nil {
			return nil, err
		}
		return ListWatch(group, func(namespace string) C { return typed(group, namespace) }), nil
	}
}
