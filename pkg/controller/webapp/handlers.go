package webapp

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// indexConfigRef finds the WebApps that refer to a ConfigMap, by "namespace/name".
const indexConfigRef = "steadwatch.webapp.configRef"

// Indexers are what the informer of WebApps needs.
func Indexers() cache.TypedIndexers[*v1alpha1.WebApp] {
	return cache.TypedIndexers[*v1alpha1.WebApp]{
		indexConfigRef: func(app *v1alpha1.WebApp) ([]string, error) {
			if app.Spec.ConfigRef == "" {
				return nil, nil
			}
			return []string{cache.NewObjectName(app.Namespace, app.Spec.ConfigRef).String()}, nil
		},
	}
}

// Keys returns the keys of all WebApps that are cached.
func (c *Controller) Keys() []cache.ObjectName {
	return controller.CachedKeys(c.cfg.WebApps.Indexer())
}

type enqueue = func(controller.Lane, ...cache.ObjectName)

// Register adds handlers that enqueue to q to the four informers. The caches may be
// relied on once everything returned is done.
func (c *Controller) Register(q controller.Queue) ([]cache.DoneChecker, error) {
	webApps, err := addHandlers(q, c.cfg.WebApps, "WebApps", c.webAppHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	deployments, err := addHandlers(q, c.cfg.Deployments, "WebApps by Deployment", child.Handlers[*appsv1.Deployment](c.owners(), q.Enqueue))
	if err != nil {
		return nil, err
	}
	services, err := addHandlers(q, c.cfg.Services, "WebApps by Service", child.Handlers[*corev1.Service](c.owners(), q.Enqueue))
	if err != nil {
		return nil, err
	}
	configMaps, err := addHandlers(q, c.cfg.ConfigMaps, "WebApps by ConfigMap", c.configMapHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	return []cache.DoneChecker{webApps, deployments, services, configMaps}, nil
}

func addHandlers[T cache.Object](q controller.Queue, to *informer.Informer[T], origin string, h cache.TypedResourceEventHandlerDetailedFuncs[T]) (cache.DoneChecker, error) {
	registration, err := to.AddHandler(controller.Protected(q, origin, h))
	if err != nil {
		return nil, fmt.Errorf("webapp controller: %w", err)
	}
	return registration.HasSyncedChecker(), nil
}

func (c *Controller) webAppHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp] {
	return cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp]{
		AddFunc: func(app *v1alpha1.WebApp, initial bool) {
			lane := controller.Urgent
			if initial {
				lane = controller.Background
			} else {
				c.convergence.Changed(app, c.cfg.Clock.Now())
			}
			enqueue(lane, nameOf(app))
		},
		UpdateFunc: func(old, app *v1alpha1.WebApp) {
			switch {
			case old.UID != app.UID || old.Generation != app.Generation:
				c.convergence.Changed(app, c.cfg.Clock.Now())
			case conditions.ReadyAt(app, app.Status.ObservedGeneration, app.Status.Conditions):
				c.convergence.Forget(nameOf(app)) // another process led, and got it there
			}
			enqueue(controller.SpecLane(old, app), nameOf(app))
		},
		DeleteFunc: func(app cache.DeletedObject[*v1alpha1.WebApp]) {
			c.convergence.Forget(app.GetObjectName())
			enqueue(controller.Normal, app.GetObjectName())
		},
	}
}

// owners says whom an event of a Deployment or a Service concerns.
func (c *Controller) owners() child.Owners {
	return child.Owners{Kind: groupKind, Exists: func(key cache.ObjectName) bool {
		_, exists, err := c.cfg.WebApps.Indexer().GetByKey(key.String())
		return err == nil && exists
	}}
}

func (c *Controller) configMapHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap] {
	return cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{
		AddFunc: func(cm *corev1.ConfigMap, initial bool) {
			enqueue(controller.AddedLane(initial), c.users(nameOf(cm))...)
		},
		UpdateFunc: func(old, cm *corev1.ConfigMap) {
			// ConfigMaps that serve as locks or heartbeats change all the time, in
			// their metadata.
			if configHash(old) != configHash(cm) {
				enqueue(controller.Normal, c.users(nameOf(cm))...)
			}
		},
		DeleteFunc: func(cm cache.DeletedObject[*corev1.ConfigMap]) {
			enqueue(controller.Normal, c.users(cm.GetObjectName())...)
		},
	}
}

// users returns the WebApps that refer to a ConfigMap.
func (c *Controller) users(configMap cache.ObjectName) []cache.ObjectName {
	found, err := c.cfg.WebApps.Indexer().IndexKeys(indexConfigRef, configMap.String())
	if err != nil {
		return nil // only an index that is missing, which New has checked
	}
	return controller.ParseKeys(found)
}
