package webapp

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
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
	cached := c.cfg.WebApps.Indexer().ListKeys()
	keys := make([]cache.ObjectName, 0, len(cached))
	for _, k := range cached {
		if key, err := cache.ParseObjectName(k); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Queue is what handlers enqueue to: a controller.Controller.
type Queue interface {
	Enqueue(lane controller.Lane, keys ...cache.ObjectName)
	// Protect calls f, contains a panic in it and makes up for it by a pass over key.
	Protect(origin string, key cache.ObjectName, f func()) bool
}

type enqueue = func(controller.Lane, ...cache.ObjectName)

// Register adds handlers that enqueue to q to the four informers. The caches may be
// relied on once everything returned is done.
func (c *Controller) Register(q Queue) ([]cache.DoneChecker, error) {
	webApps, err := addHandlers(q, c.cfg.WebApps, "WebApps", c.webAppHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	deployments, err := addHandlers(q, c.cfg.Deployments, "WebApps by Deployment", childHandlers[*appsv1.Deployment](c, q.Enqueue))
	if err != nil {
		return nil, err
	}
	services, err := addHandlers(q, c.cfg.Services, "WebApps by Service", childHandlers[*corev1.Service](c, q.Enqueue))
	if err != nil {
		return nil, err
	}
	configMaps, err := addHandlers(q, c.cfg.ConfigMaps, "WebApps by ConfigMap", c.configMapHandlers(q.Enqueue))
	if err != nil {
		return nil, err
	}
	return []cache.DoneChecker{webApps, deployments, services, configMaps}, nil
}

func addHandlers[T cache.Object](q Queue, to *informer.Informer[T], origin string, h cache.TypedResourceEventHandlerDetailedFuncs[T]) (cache.DoneChecker, error) {
	registration, err := to.AddHandler(protected(q, origin, h))
	if err != nil {
		return nil, fmt.Errorf("webapp controller: %w", err)
	}
	return registration.HasSyncedChecker(), nil
}

// protected handlers lose no event to a panic: the WebApp of the object's name, which
// for a child is its owner, is looked at all the same.
func protected[T cache.Object](q Queue, origin string, h cache.TypedResourceEventHandlerDetailedFuncs[T]) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	name := func(o T) cache.ObjectName { return cache.NewObjectName(o.GetNamespace(), o.GetName()) }
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc:    func(o T, initial bool) { q.Protect(origin, name(o), func() { h.AddFunc(o, initial) }) },
		UpdateFunc: func(old, o T) { q.Protect(origin, name(o), func() { h.UpdateFunc(old, o) }) },
		DeleteFunc: func(o cache.DeletedObject[T]) { q.Protect(origin, o.GetObjectName(), func() { h.DeleteFunc(o) }) },
	}
}

func (c *Controller) webAppHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp] {
	return cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.WebApp]{
		AddFunc: func(app *v1alpha1.WebApp, initial bool) {
			lane := controller.Urgent
			if initial {
				lane = controller.Background
			} else {
				c.convergence.changed(app, c.cfg.Clock.Now())
			}
			enqueue(lane, nameOf(app))
		},
		UpdateFunc: func(old, app *v1alpha1.WebApp) {
			lane := changeLane(old, app)
			if old.UID != app.UID || old.Generation != app.Generation || (old.DeletionTimestamp == nil) != (app.DeletionTimestamp == nil) {
				lane = controller.Urgent
			}
			switch {
			case old.UID != app.UID || old.Generation != app.Generation:
				c.convergence.changed(app, c.cfg.Clock.Now())
			case isReady(app):
				c.convergence.forget(nameOf(app)) // another process led, and got it there
			}
			enqueue(lane, nameOf(app))
		},
		DeleteFunc: func(app cache.DeletedObject[*v1alpha1.WebApp]) {
			c.convergence.forget(app.GetObjectName())
			enqueue(controller.Normal, app.GetObjectName())
		},
	}
}

// changeLane is Background for what a relist reports without a change.
func changeLane(old, object metav1.Object) controller.Lane {
	if old.GetResourceVersion() == object.GetResourceVersion() {
		return controller.Background
	}
	return controller.Normal
}

func initialLane(initial bool) controller.Lane {
	if initial {
		return controller.Background
	}
	return controller.Normal
}

func childHandlers[T child.Object](c *Controller, enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	var none T
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc: func(o T, initial bool) { enqueue(initialLane(initial), c.concerned(o)...) },
		UpdateFunc: func(old, o T) {
			// The old owner has lost a child, the new one has got one.
			enqueue(changeLane(old, o), c.concerned(old, o)...)
		},
		DeleteFunc: func(o cache.DeletedObject[T]) {
			if o.OptionalObj == none {
				enqueue(controller.Normal, c.existing(o.GetObjectName())...)
				return
			}
			enqueue(controller.Normal, c.concerned(o.OptionalObj)...)
		},
	}
}

// concerned returns the WebApps that own a child, and the one whose child's place
// it takes. There are two at most for each.
func (c *Controller) concerned(children ...metav1.Object) []cache.ObjectName {
	var keys []cache.ObjectName
	for _, o := range children {
		owner := metav1.GetControllerOf(o)
		if owner != nil && child.IsOf(owner, groupKind) {
			keys = append(keys, cache.NewObjectName(o.GetNamespace(), owner.Name))
		}
		if owner == nil || !child.IsOf(owner, groupKind) || owner.Name != o.GetName() {
			keys = append(keys, c.existing(nameOf(o))...)
		}
	}
	return keys
}

// existing returns key if there is a WebApp of that name.
func (c *Controller) existing(key cache.ObjectName) []cache.ObjectName {
	if _, exists, err := c.cfg.WebApps.Indexer().GetByKey(key.String()); err != nil || !exists {
		return nil
	}
	return []cache.ObjectName{key}
}

func (c *Controller) configMapHandlers(enqueue enqueue) cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap] {
	return cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{
		AddFunc: func(cm *corev1.ConfigMap, initial bool) { enqueue(initialLane(initial), c.users(nameOf(cm))...) },
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
	keys := make([]cache.ObjectName, 0, len(found))
	for _, k := range found {
		if key, err := cache.ParseObjectName(k); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}
