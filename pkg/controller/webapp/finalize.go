package webapp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	platformv1alpha1ac "github.com/steadwatch/steadwatch/pkg/generated/applyconfiguration/platform/v1alpha1"
)

const (
	// defaultDrainTimeout is the CRD's default, for an object whose spec is older
	// or cannot be read.
	defaultDrainTimeout = 30 * time.Second
	// patchTries bounds how often one pass looks again because somebody else was
	// quicker.
	patchTries = 5
)

// ensureFinalizer returns app with our finalizer, which is in etcd before the
// first child is: a child made first would outlive a delete undrained. A nil
// object means that app is gone.
//
// Server-side apply adds to the set of finalizers on the server, so that nobody
// else's is lost. Its uid keeps it from creating an object that is gone.
func (c *Controller) ensureFinalizer(ctx context.Context, app *v1alpha1.WebApp) (*v1alpha1.WebApp, error) {
	if slices.Contains(app.Finalizers, v1alpha1.Finalizer) {
		return app, nil
	}
	client := c.cfg.Platform.PlatformV1alpha1().WebApps(app.Namespace)
	config := platformv1alpha1ac.WebApp(app.Name, app.Namespace).WithUID(app.UID).WithFinalizers(v1alpha1.Finalizer)
	applied, err := client.Apply(ctx, config, metav1.ApplyOptions{FieldManager: fieldManager})
	if err == nil {
		c.cfg.Writes.WroteObject(ctx, app, webAppsResource, applied)
		return applied, nil
	}
	err = fmt.Errorf("add finalizer: %w", err)
	if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		return app, err
	}
	// No finalizer can be added to an object that is being deleted, and no uid of
	// an object that has been replaced: look which it is.
	live, getErr := client.Get(ctx, app.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(getErr):
		return nil, nil
	case getErr != nil:
		return app, fmt.Errorf("%w (and on a second look: %w)", err, getErr)
	case live.UID != app.UID:
		return nil, nil // the new one's event wakes its own pass
	case live.DeletionTimestamp != nil:
		return live, nil
	}
	return app, err
}

// Finalize does what is left to do for a WebApp of which only the metadata can be
// read, as Reconcile does it for one that can be read as a whole: it drains, for
// the default time, and removes our finalizer. An object that is not being
// deleted, or no longer has our finalizer, is left alone.
func (c *Controller) Finalize(ctx context.Context, object *metav1.PartialObjectMetadata) (controller.Result, error) {
	return c.finalize(ctx, &object.ObjectMeta, defaultDrainTimeout)
}

// finalize returns an After for as long as the drain goes on. Called again it does
// nothing that has been done.
func (c *Controller) finalize(ctx context.Context, app *metav1.ObjectMeta, timeout time.Duration) (controller.Result, error) {
	if app.DeletionTimestamp == nil || !slices.Contains(app.Finalizers, v1alpha1.Finalizer) {
		return controller.Result{}, nil
	}
	// With --cascade=orphan the children are to live on as they are.
	if !slices.Contains(app.Finalizers, metav1.FinalizerOrphanDependents) {
		if left := c.drainTimeLeft(app, timeout); left > 0 {
			done, err := c.drain(ctx, app)
			if err != nil {
				return controller.Result{}, err
			}
			if !done {
				return controller.Result{After: left, Reason: "draining"}, nil
			}
		} else if timeout > 0 {
			klog.FromContext(ctx).V(2).Info("Drain timeout is over, the pods that are left end with their Deployment", "timeout", timeout)
		}
	}
	return controller.Result{}, c.removeFinalizer(ctx, app)
}

// drainTimeLeft counts from deletionTimestamp, and from when this process first
// saw it by a clock that nobody sets: whichever ends first.
func (c *Controller) drainTimeLeft(app *metav1.ObjectMeta, timeout time.Duration) time.Duration {
	now := c.cfg.Clock.Now()
	left := app.DeletionTimestamp.Add(timeout).Sub(now)
	return min(left, timeout-now.Sub(c.deletions.firstSeen(nameOf(app), app.UID, now)))
}

// drain scales app's Deployment to zero and reports whether its pods are gone.
// What belongs to somebody else, by UID and by the API server's word, is not
// touched and not waited for.
func (c *Controller) drain(ctx context.Context, app *metav1.ObjectMeta) (done bool, err error) {
	cached, err := c.deployments.Read(ctx, nameOf(app), false)
	if err != nil {
		return false, err
	}
	if cached != nil && metav1.IsControlledBy(cached, app) && scaledToZero(cached) && !drained(cached) {
		return false, nil // asked for already; the next change of its status is an event
	}
	live, err := c.deployments.Read(ctx, nameOf(app), true)
	if err != nil {
		return false, err
	}
	if live == nil || !metav1.IsControlledBy(live, app) {
		return true, nil
	}
	if live.DeletionTimestamp == nil && !scaledToZero(live) {
		patch, err := json.Marshal([]jsonPatchOperation{
			{"test", "/metadata/uid", live.UID},
			{"add", "/spec/replicas", 0}, // replaces what is there
		})
		if err != nil {
			return false, err
		}
		live, err = c.cfg.Kube.AppsV1().Deployments(app.Namespace).
			Patch(ctx, app.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("scale Deployment %q to zero: %w", app.Name, err)
		}
		c.cfg.Writes.WroteObject(ctx, app, deploymentsResource, live)
	}
	return drained(live), nil
}

func scaledToZero(d *appsv1.Deployment) bool {
	return d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}

// drained says whether the Deployment, scaled to zero, has no pod left. Pods that
// are on their way out are in terminatingReplicas (KEP-3973), where the API server
// has it; elsewhere they are not waited for.
func drained(d *appsv1.Deployment) bool {
	s := d.Status
	return scaledToZero(d) && s.ObservedGeneration >= d.Generation && s.Replicas == 0 &&
		(s.TerminatingReplicas == nil || *s.TerminatingReplicas == 0)
}

type jsonPatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// removeFinalizer removes ours and no other. The patch tests the object's uid and
// that the finalizer is where it was, but no resourceVersion: an object that is
// written all the time could never be reached. A test that fails comes back as 422.
func (c *Controller) removeFinalizer(ctx context.Context, app *metav1.ObjectMeta) error {
	client := c.cfg.Metadata.Resource(webAppsResource).Namespace(app.Namespace)
	finalizers := app.Finalizers
	for try := 1; ; try++ {
		at := slices.Index(finalizers, v1alpha1.Finalizer)
		if at < 0 {
			return nil
		}
		path := fmt.Sprintf("/metadata/finalizers/%d", at)
		patch, err := json.Marshal([]jsonPatchOperation{
			{"test", "/metadata/uid", app.UID},
			{"test", path, v1alpha1.Finalizer},
			{Op: "remove", Path: path},
		})
		if err != nil {
			return err
		}
		written, err := client.Patch(ctx, app.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		switch {
		case err == nil:
			c.cfg.Writes.WroteObject(ctx, app, webAppsResource, written)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case controller.Classify(err) != controller.ClassConflict || try == patchTries:
			return fmt.Errorf("remove finalizer %s (to do it by hand: kubectl edit webapp %s): %w", v1alpha1.Finalizer, app.Name, err)
		}
		live, err := client.Get(ctx, app.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("read finalizers: %w", err)
		case live.UID != app.UID:
			return nil
		}
		finalizers = live.Finalizers
	}
}

// deletions remembers when this process first saw that an object is being deleted.
type deletions struct {
	mu   sync.Mutex
	seen map[cache.ObjectName]deletion
}

type deletion struct {
	uid   types.UID
	since time.Time
}

// firstSeen returns when it was first asked for this uid.
func (d *deletions) firstSeen(key cache.ObjectName, uid types.UID, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[cache.ObjectName]deletion{}
	}
	if known, ok := d.seen[key]; ok && known.uid == uid {
		return known.since
	}
	d.seen[key] = deletion{uid, now}
	return now
}

func (d *deletions) forget(key cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.seen, key)
}
