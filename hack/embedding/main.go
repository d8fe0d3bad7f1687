// Command embedding is a controller for ApplicationRoutes in about a hundred lines,
// written against the packages alone, as a platform would that has flags, leader
// election and metrics of its own. docs/embedding.md walks through it.
package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gateway "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		err = run(ctx, config, "127.0.0.1:8081")
	}
	if err != nil {
		klog.Fatal(err)
	}
}

// copies are the local copies that a pass reads.
type copies struct {
	routes     *informer.Informer[*v1alpha1.ApplicationRoute]
	services   *informer.Informer[*corev1.Service]
	httpRoutes *informer.Informer[*gatewayv1.HTTPRoute]
}

// byService finds the routes that send traffic to a Service.
const byService = "service"

func newCopies(config *rest.Config) (c copies, err error) {
	hearing, err := informer.NewHearing(informer.HearingConfig{Config: config})
	// Connections of its own for each, so that one gone silent can be left alone.
	routesVia, servicesVia, httpRoutesVia := informer.NewConnection(config), informer.NewConnection(config), informer.NewConnection(config)
	networking, err1 := versioned.NewForConfig(routesVia.Config())
	core, err2 := kubernetes.NewForConfig(servicesVia.Config())
	gateways, err3 := gateway.NewForConfig(httpRoutesVia.Config())
	if err := errors.Join(err, err1, err2, err3); err != nil {
		return c, err
	}
	c.routes, err1 = informer.New(informer.Config[*v1alpha1.ApplicationRoute]{
		Resource:      v1alpha1.SchemeGroupVersion.WithResource("applicationroutes"),
		ListerWatcher: informer.Tolerant(networking.NetworkingV1alpha1().RESTClient()),
		Hearing:       hearing, Connection: routesVia,
		Indexers: cache.TypedIndexers[*v1alpha1.ApplicationRoute]{byService: func(route *v1alpha1.ApplicationRoute) (keys []string, _ error) {
			for _, b := range route.Spec.Backends {
				keys = append(keys, cache.NewObjectName(route.Namespace, b.Service).String())
			}
			return keys, nil
		}},
	})
	c.services, err2 = informer.New(informer.Config[*corev1.Service]{
		Resource:      corev1.SchemeGroupVersion.WithResource("services"),
		ListerWatcher: informer.ListWatch(core, core.CoreV1().Services),
		Hearing:       hearing, Connection: servicesVia,
	})
	c.httpRoutes, err3 = informer.New(informer.Config[*gatewayv1.HTTPRoute]{
		Resource:      schema.GroupVersion(gatewayv1.GroupVersion).WithResource("httproutes"),
		ListerWatcher: informer.Tolerant(gateways.GatewayV1().RESTClient()),
		Hearing:       hearing, Connection: httpRoutesVia,
	})
	return c, errors.Join(err1, err2, err3)
}

// run works until ctx ends, and serves /healthz at address. Whoever calls it leads.
func run(ctx context.Context, config *rest.Config, address string) error {
	local, err := newCopies(config)
	if err != nil {
		return err
	}
	r, err := newReconciler(config, local)
	if err != nil {
		return err
	}
	c, err := controller.New(controller.Config{
		Name:       "embedding",
		Reconciler: r,
		Keys:       func() []cache.ObjectName { return controller.CachedKeys(local.routes.Indexer()) },
		Gate:       r.gate,
	})
	if err != nil {
		return err
	}
	synced, err := r.register(c)
	if err != nil {
		return err
	}

	health, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer health.Close()
	go http.Serve(health, canary.Handler("/healthz", canary.Check{Name: "workers", Check: c.Check}))

	informing, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last pass has ended
	var informers sync.WaitGroup
	defer informers.Wait()
	defer stop()
	for _, run := range []func(context.Context) error{local.routes.Run, local.services.Run, local.httpRoutes.Run} {
		informers.Go(func() { _ = run(informing) })
	}
	if !cache.WaitFor(ctx, "caches", synced...) {
		return nil
	}
	return c.Run(ctx)
}
