package webapp

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
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

// Keys returns the keys of all WebApps.
func (c *Controller) Keys() []cache.ObjectName {
	return c.cfg.WebApps.Keys()
}

type enqueue = func(controller.Lane, ...cache.ObjectName)

// Register adds handlers that enqueue to q to the four informers. The caches may be
// relied on once everything returned is done.
func (c *Controller) Register(q controller.Queue) ([]cache.DoneChecker, error) {
	webApps, err := controller.AddHandlers(q, c.cfg.WebApps, "WebApps", c.webAppHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	deployments, err := controller.AddHandlers(q, c.cfg.Deployments, "WebApps by Deployment", child.Handlers[*appsv1.Deployment](c.owners(), q.Enqueue))
	if err != nil {
		return nil, err
	}
	services, err := controller.AddHandlers(q, c.cfg.Services, "WebApps by Service", child.Handlers[*corev1.Service](c.owners(), q.Enqueue))
	if err != nil {
		return nil, err
	}
	configMaps, err := controller.AddHandlers(q, c.cfg.ConfigMaps, "WebApps by ConfigMap", c.configMapHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	return []cache.DoneChecker{webApps, deployments, services, configMaps}, nil
}

func (c *Controller) webAppHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp] {
	h := controller.ObjectHandlers[*v1alpha1.WebApp](enqueue)
	return cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp]{
		AddFunc: func(app *v1alpha1.WebApp, initial bool) {
			if !initial {
				c.convergence.Changed(app, c.cfg.Clock.Now())
			}
			h.AddFunc(app, initial)
		},
		UpdateFunc: func(old, app *v1alpha1.WebApp) {
			switch {
			case old.UID != app.UID || old.Generation != app.Generation:
				c.convergence.Changed(app, c.cfg.Clock.Now())
			case conditions.ReadyAt(app, app.Status.ObservedGeneration, app.Status.Conditions):
				c.convergence.Forget(nameOf(app)) // another process led, and got it there
			}
			h.UpdateFunc(old, app)
		},
		DeleteFunc: func(app cache.DeletedObject[*v1alpha1.WebApp]) {
			c.convergence.Forget(app.GetObjectName())
			h.DeleteFunc(app)
		},
	}
}

// owners says whom an event of a Deployment or a Service concerns.
func (c *Controller) owners() child.Owners {
	return child.Owners{Kind: groupKind, Exists: c.cfg.WebApps.Has}
}

// configMapHandlers look at the content: ConfigMaps that serve as locks or heartbeats
// change all the time, in their metadata.
func (c *Controller) configMapHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap] {
	return controller.ReferenceHandlers(enqueue, c.cfg.WebApps.Referring(indexConfigRef), func(old, cm *corev1.ConfigMap) bool { return configHash(old) != configHash(cm) })
}
