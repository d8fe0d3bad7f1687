package webapp

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	platformlisters "github.com/steadwatch/steadwatch/pkg/generated/listers/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var (
	webAppsResource     = v1alpha1.SchemeGroupVersion.WithResource("webapps")
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")
	servicesResource    = corev1.SchemeGroupVersion.WithResource("services")
)

// Config is what New needs.
type Config struct {
	// Kube, Platform and Metadata write to the API server. Required. Their user
	// agent, limits and the fence of the lead are the caller's.
	Kube     kubernetes.Interface
	Platform versioned.Interface
	Metadata metadata.Interface

	// The local copies. Required. That of WebApps needs Indexers, that of
	// ConfigMaps ought to have TransformConfigMap.
	WebApps     *informer.Informer[*v1alpha1.WebApp]
	Deployments *informer.Informer[*appsv1.Deployment]
	Services    *informer.Informer[*corev1.Service]
	ConfigMaps  *informer.Informer[*corev1.ConfigMap]

	// Writes is told of every write, and compares with the copies of WebApps,
	// Deployments and Services. The gate before Reconcile keeps a key back while
	// its Pending says so. Required.
	Writes *informer.Writes

	// Recorder takes Events; it must not block. Nil: none are recorded.
	Recorder record.EventRecorder
	// Converged is called with how long a change of spec took to become Ready. Nil: it
	// is not.
	Converged func(time.Duration)
	// Clock times drains, conditions and convergence. Nil: the real one.
	Clock clock.PassiveClock
}

// Controller reconciles WebApps. It is a controller.Reconciler.
type Controller struct {
	cfg         Config
	webApps     platformlisters.WebAppLister
	configMaps  corelisters.ConfigMapLister
	children    *child.Applier
	deployments deployments
	services    services
	deletions   deletions
	convergence conditions.Convergence
}

// New checks cfg and returns a Controller. It starts nothing.
func New(cfg Config) (*Controller, error) {
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Kube", cfg.Kube == nil}, {"Platform", cfg.Platform == nil}, {"Metadata", cfg.Metadata == nil},
		{"WebApps", cfg.WebApps == nil}, {"Deployments", cfg.Deployments == nil},
		{"Services", cfg.Services == nil}, {"ConfigMaps", cfg.ConfigMaps == nil}, {"Writes", cfg.Writes == nil},
	} {
		if f.missing {
			return nil, fmt.Errorf("webapp controller: Config.%s is nil: it is required", f.name)
		}
	}
	if _, ok := cfg.WebApps.Indexer().GetIndexers()[indexConfigRef]; !ok {
		return nil, fmt.Errorf("webapp controller: the informer of WebApps has no index %q: make it with webapp.Indexers()", indexConfigRef)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	c := &Controller{
		cfg:         cfg,
		webApps:     platformlisters.NewWebAppLister(cfg.WebApps.Indexer()),
		configMaps:  corelisters.NewConfigMapLister(cfg.ConfigMaps.Indexer()),
		deployments: newDeployments(cfg.Kube, cfg.Deployments),
		services:    newServices(cfg.Kube, cfg.Services),
	}
	c.children = &child.Applier{FieldManager: fieldManager, Annotation: annotationApplied, Owner: groupKind, Wrote: cfg.Writes.WroteObject}
	return c, nil
}

// Reconcile brings the children and the status of one WebApp in line with its spec.
func (c *Controller) Reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	app, live, err := c.read(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	if app == nil {
		c.forget(key)
		return controller.Result{}, nil
	}
	if app.DeletionTimestamp == nil {
		if app, err = c.ensureFinalizer(ctx, app); err != nil {
			return c.report(ctx, app, observed{err: err})
		}
		if app == nil {
			return controller.Result{}, nil // its delete is an event
		}
	}
	if app.DeletionTimestamp != nil {
		return c.reconcileDeleted(ctx, app)
	}
	return c.report(ctx, app, c.reconcileChildren(ctx, app, live))
}

// read returns the WebApp, nil if there is none. While a write of ours is overdue
// in the cache nothing of this key is read from there: live is true.
func (c *Controller) read(ctx context.Context, key cache.ObjectName) (app *v1alpha1.WebApp, live bool, err error) {
	overdue := c.cfg.Writes.Overdue(key)
	if len(overdue) > 0 {
		live = true
		klog.FromContext(ctx).Info("The cache lacks a write of ours for too long, reading from the API server",
			"resource", overdue[0].Resource.GroupResource().String(), "child", overdue[0].Child.String(),
			"resourceVersion", overdue[0].ResourceVersion, "since", overdue[0].Since)
		app, err = c.cfg.Platform.PlatformV1alpha1().WebApps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	} else {
		app, err = c.webApps.WebApps(key.Namespace).Get(key.Name)
	}
	if apierrors.IsNotFound(err) {
		return nil, live, nil
	}
	if err != nil {
		return nil, live, fmt.Errorf("read WebApp: %w", err)
	}
	return app, live, nil
}

// forget drops what is remembered of a WebApp that is gone.
func (c *Controller) forget(key cache.ObjectName) {
	c.deletions.forget(key)
	c.cfg.Writes.Forget(key)
}

// reconcileChildren does the Service even if the Deployment cannot be done, and
// reports both. In a namespace that is being deleted one refusal is enough.
func (c *Controller) reconcileChildren(ctx context.Context, app *v1alpha1.WebApp, live bool) observed {
	var seen observed
	seen.err = c.reconcileDeployment(ctx, app, live, &seen)
	if !conditions.NamespaceTerminating(seen.err) {
		seen.err = errors.Join(seen.err, c.reconcileService(ctx, app, live, &seen))
	}
	return seen
}

func (c *Controller) reconcileDeployment(ctx context.Context, app *v1alpha1.WebApp, live bool, seen *observed) error {
	template, err := c.config(app)
	if err != nil {
		return err
	}
	seen.configMissing = app.Spec.ConfigRef != "" && template == config{}
	current, err := child.Find(ctx, c.children, c.deployments, app, live)
	if err != nil {
		return seen.waitFor(err)
	}
	seen.deployment = current
	if seen.configMissing {
		if current == nil {
			return nil // its pods could not start
		}
		// No pod is rolled because something is missing.
		template = parseConfig(current.Spec.Template.Annotations[annotationConfig])
	}
	var handOver func(context.Context, *appsv1.Deployment) error
	if app.Spec.Replicas == nil {
		handOver = c.handOverReplicas(app)
	}
	seen.deployment, err = child.Ensure(ctx, c.children, c.deployments, app, current, desiredDeployment(app, template), handOver)
	return err
}

func (c *Controller) reconcileService(ctx context.Context, app *v1alpha1.WebApp, live bool, seen *observed) error {
	current, err := child.Find(ctx, c.children, c.services, app, live)
	if err != nil {
		return seen.waitFor(err)
	}
	_, err = child.Ensure(ctx, c.children, c.services, app, current, desiredService(app), nil)
	return err
}

// waitFor notes err if it is something to wait for, and else returns it.
func (o *observed) waitFor(err error) error {
	var wait child.WaitError
	if !errors.As(err, &wait) {
		return err
	}
	if o.wait == nil {
		o.wait = &wait
	}
	return nil
}

// config returns the state of the ConfigMap that app refers to, none if it refers
// to none or to one that does not exist.
func (c *Controller) config(app *v1alpha1.WebApp) (config, error) {
	if app.Spec.ConfigRef == "" {
		return config{}, nil
	}
	cm, err := c.configMaps.ConfigMaps(app.Namespace).Get(app.Spec.ConfigRef)
	if apierrors.IsNotFound(err) {
		return config{}, nil
	}
	if err != nil {
		return config{}, fmt.Errorf("read ConfigMap %q: %w", app.Spec.ConfigRef, err)
	}
	return config{cm.Name, configHash(cm)}, nil
}

// reconcileDeleted drains and lets go. No child is applied any more.
func (c *Controller) reconcileDeleted(ctx context.Context, app *v1alpha1.WebApp) (controller.Result, error) {
	timeout := defaultDrainTimeout
	if app.Spec.DrainTimeout != nil {
		timeout = max(0, app.Spec.DrainTimeout.Duration)
	}
	result, err := c.finalize(ctx, &app.ObjectMeta, timeout)
	if err == nil && result.After == 0 {
		return result, nil
	}
	return c.reportDraining(ctx, app, result, err)
}

func (c *Controller) reportDraining(ctx context.Context, app *v1alpha1.WebApp, result controller.Result, err error) (controller.Result, error) {
	seen := observed{draining: true, err: err}
	deployment, readErr := c.deployments.Read(ctx, nameOf(app), false)
	if readErr == nil && deployment != nil && metav1.IsControlledBy(deployment, app) {
		seen.deployment = deployment
	}
	if template, readErr := c.config(app); readErr == nil {
		seen.configMissing = app.Spec.ConfigRef != "" && template == config{}
	}
	if _, err := c.report(ctx, app, seen); err != nil {
		return controller.Result{}, err
	}
	return result, nil
}

func nameOf(object metav1.Object) cache.ObjectName { return cache.MetaObjectToName(object) }
