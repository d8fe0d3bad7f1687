// Command embedding is a controller for ApplicationRoutes, written against the packages
// alone, as a platform would that has flags, leader election and metrics of its own.
// docs/embedding.md walks through it.
package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/canary"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		go http.ListenAndServe("127.0.0.1:8081", nil)
		err = run(ctx, config, http.DefaultServeMux)
	}
	if err != nil {
		klog.Fatal(err)
	}
}

// run works until ctx ends, and adds /healthz to mux. Whoever calls it leads.
func run(ctx context.Context, config *rest.Config, mux *http.ServeMux) error {
	r, err := newReconciler(config)
	if err != nil {
		return err
	}
	c, err := controller.New(controller.Config{
		Name:       "embedding",
		Reconciler: r,
		Keys:       r.routes.Keys,
		Gate:       controller.HoldBack(r.routes.Undecodable, r.writes.Pending),
	})
	if err != nil {
		return err
	}
	mux.Handle("/healthz", canary.Handler("/healthz", canary.Check{Name: "workers", Check: c.Check}))

	routes, err1 := controller.AddHandlers(c, r.routes, "routes",
		controller.ObjectHandlers[*v1alpha1.ApplicationRoute](c.Enqueue))
	services, err2 := controller.AddHandlers(c, r.services, "routes by Service",
		controller.ReferenceHandlers[*corev1.Service](c.Enqueue, r.routes.Referring(byService), nil))
	httpRoutes, err3 := controller.AddHandlers(c, r.httpRoutes, "routes by HTTPRoute",
		child.Handlers[*gatewayv1.HTTPRoute](child.Owners{Kind: kind.GroupKind(), Exists: r.routes.Has}, c.Enqueue))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}

	stop := informer.Start(context.WithoutCancel(ctx), r.routes, r.services, r.httpRoutes)
	defer stop() // after the last pass
	if !cache.WaitFor(ctx, "caches", routes, services, httpRoutes) {
		return nil
	}
	return c.Run(ctx)
}
