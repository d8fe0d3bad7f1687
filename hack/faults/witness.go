package main

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

func childImage(d *appsv1.Deployment) int {
	for _, c := range d.Spec.Template.Spec.Containers {
		return imageNumber(c.Image)
	}
	return 0
}

// withoutContext adds the methods of an older interface, which client-go does not call.
type withoutContext struct {
	cache.ListerWatcherWithContext
}

func (w withoutContext) List(o metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), o)
}

func (w withoutContext) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), o)
}

// newPlain is client-go's informer with nothing of ours.
func newPlain[T cache.Object](lw cache.ListerWatcherWithContext, example T) cache.TypedSharedIndexInformer[T] {
	return cache.NewTypedSharedIndexInformer[T](cache.NewSharedIndexInformerWithOptions(withoutContext{lw}, any(example).(runtime.Object), cache.SharedIndexInformerOptions{}))
}

// witness notes what the product has acted on, past every proxy, until ctx ends.
func (i *installation) witness(ctx context.Context, b *book) {
	deployments := newPlain[*appsv1.Deployment](
		informer.ListWatch(i.plane.kube, i.plane.kube.AppsV1().Deployments)(i.work), &appsv1.Deployment{})
	child := func(d *appsv1.Deployment) { b.see(product, d.Name, childImage(d)) }
	_, _ = deployments.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]{
		AddFunc: child, UpdateFunc: func(_, d *appsv1.Deployment) { child(d) },
	})
	apps := newPlain[*v1alpha1.WebApp](
		informer.ListWatch(i.plane.platform, i.plane.platform.PlatformV1alpha1().WebApps)(i.work), &v1alpha1.WebApp{})
	_, _ = apps.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*v1alpha1.WebApp]{
		DeleteFunc: func(d cache.DeletedObject[*v1alpha1.WebApp]) { b.gone(product, d.GetObjectName().Name) },
	})
	go deployments.RunWithContext(ctx)
	apps.RunWithContext(ctx)
}

// askWitness is witness by GET alone, which is answered by etcd: a watch or a list of
// an API server whose etcd has been set back shows a past that is not any more.
func (i *installation) askWitness(ctx context.Context, b *book) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for k := range steadyApps {
			bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
			if d, err := i.plane.kube.AppsV1().Deployments(i.work).Get(bounded, steady(k), metav1.GetOptions{}); err == nil {
				b.see(product, d.Name, childImage(d))
			}
			cancel()
		}
	}
}

// plainInformer is what the product would be without us: client-go's informer,
// behind the same proxy. synced tells how far it is.
func (i *installation) plainInformer(ctx context.Context, b *book, cfg *rest.Config) (synced func() bool, err error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = plainAgent
	client, err := versioned.NewForConfig(i.proxy.ClientConfig(cfg))
	if err != nil {
		return nil, err
	}
	apps := newPlain[*v1alpha1.WebApp](
		informer.ListWatch(client, client.PlatformV1alpha1().WebApps)(i.work), &v1alpha1.WebApp{})
	told := func(a *v1alpha1.WebApp) { b.see(plain, a.Name, imageNumber(a.Spec.Image)) }
	_, err = apps.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*v1alpha1.WebApp]{
		AddFunc: told, UpdateFunc: func(_, a *v1alpha1.WebApp) { told(a) },
		DeleteFunc: func(d cache.DeletedObject[*v1alpha1.WebApp]) { b.gone(plain, d.GetObjectName().Name) },
	})
	if err != nil {
		return nil, err
	}
	go apps.RunWithContext(ctx)
	return apps.HasSynced, nil
}

const plainAgent = "plain-informer"
