package webapp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
)

const (
	// fieldManager owns what this controller writes.
	fieldManager = "steadwatch-webapp"
	// replicasManager keeps spec.replicas alive once we no longer own it.
	replicasManager = "steadwatch-replicas"
	// annotationApplied is the hash of the last applied configuration. Without
	// managedFields, which the caches drop, nothing else in the live object shows
	// that a field has gone from it.
	annotationApplied = "platform.tejo.dev/applied-hash"
)

type object interface {
	comparable
	runtime.Object
	metav1.Object
}

type applyConfiguration[A any] interface {
	WithUID(types.UID) A
	WithAnnotations(map[string]string) A
}

// children is one kind of child: where it is read and how it is written.
type children[T object, A applyConfiguration[A]] struct {
	kind     string
	resource schema.GroupVersionResource
	cached   func(namespace, name string) (T, error)
	client   func(namespace string) childClient[T, A]
}

type childClient[T, A any] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Apply(context.Context, A, metav1.ApplyOptions) (T, error)
}

// read returns the child of that name, nil if there is none.
func (k children[T, A]) read(ctx context.Context, key cache.ObjectName, live bool) (T, error) {
	get := func() (T, error) { return k.cached(key.Namespace, key.Name) }
	if live {
		get = func() (T, error) { return k.client(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}) }
	}
	child, err := get()
	if err != nil {
		var none T
		if apierrors.IsNotFound(err) {
			return none, nil
		}
		return none, fmt.Errorf("read %s %q: %w", k.kind, key.Name, err)
	}
	return child, nil
}

// find returns app's child. When the cache has none the API server is asked, which
// happens once in a child's life: a cache that lags must not lead to a second
// create, nor to a merge into somebody else's object.
func (k children[T, A]) find(ctx context.Context, app *v1alpha1.WebApp, live bool) (T, error) {
	var none T
	child, err := k.read(ctx, nameOf(app), live)
	if err == nil && child == none && !live {
		child, err = k.read(ctx, nameOf(app), true)
	}
	if err != nil || child == none {
		return none, err
	}
	if err := k.claim(app, child); err != nil {
		return none, err
	}
	return child, nil
}

// claim returns nil if child may be written on behalf of app.
func (k children[T, A]) claim(app *v1alpha1.WebApp, child T) error {
	owner := metav1.GetControllerOf(child)
	switch {
	case owner == nil:
		return notOwnedError{k.kind, child.GetName(), "nobody"}
	case owner.UID == app.UID:
		if child.GetDeletionTimestamp() != nil {
			return waitError{"ChildTerminating", fmt.Sprintf("%s %q is being deleted and is made anew when it is gone", k.kind, child.GetName())}
		}
		return nil
	case isWebApp(owner) && owner.Name == app.Name:
		return waitError{"WaitingForGarbageCollection", fmt.Sprintf("%s %q belongs to an earlier WebApp of this name (uid %s) and has to go first", k.kind, child.GetName(), owner.UID)}
	}
	return notOwnedError{k.kind, child.GetName(), fmt.Sprintf("%s %q", owner.Kind, owner.Name)}
}

// ensure applies config unless live, app's child or nil, is already what it says.
// before runs only if something has to be applied to a child that exists.
func ensure[T object, A applyConfiguration[A]](ctx context.Context, c *Controller, k children[T, A], app *v1alpha1.WebApp,
	live T, config A, before func(context.Context, T) error) (T, error) {
	var none T
	hash, err := hashOf(config)
	if err != nil {
		return none, fmt.Errorf("encode %s %q: %w", k.kind, app.Name, err)
	}
	config = config.WithAnnotations(map[string]string{annotationApplied: hash})
	options := metav1.ApplyOptions{FieldManager: fieldManager}
	if live != none {
		same, err := matches(config, live)
		if err != nil {
			return live, fmt.Errorf("compare %s %q: %w", k.kind, app.Name, err)
		}
		if same {
			return live, nil
		}
		if before != nil {
			if err := before(ctx, live); err != nil {
				return live, err
			}
		}
		// With a uid the apply never creates, and with force it takes back our
		// fields of a child that is ours, and of no other.
		config = config.WithUID(live.GetUID())
		options.Force = true
	}
	applied, err := k.client(app.Namespace).Apply(ctx, config, options)
	if err != nil {
		return live, fmt.Errorf("apply %s %q: %w", k.kind, app.Name, staleIfReplaced(err))
	}
	c.wrote(ctx, app, k.resource, applied)
	return applied, nil
}

// handOverReplicas makes another manager own the number of replicas if we alone
// do. Server-side apply removes a field that its last owner leaves out, and then
// the default, 1, would take its place.
func (c *Controller) handOverReplicas(app *v1alpha1.WebApp) func(context.Context, *appsv1.Deployment) error {
	return func(ctx context.Context, cached *appsv1.Deployment) error {
		client := c.cfg.Kube.AppsV1().Deployments(app.Namespace)
		// managedFields are not in the cache.
		live, err := client.Get(ctx, app.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the owner of replicas of Deployment %q: %w", app.Name, err)
		}
		if live.UID != cached.UID || live.Spec.Replicas == nil {
			return fmt.Errorf("read the owner of replicas of Deployment %q: it has been replaced: %w", app.Name, controller.ErrStale)
		}
		only, err := onlyOwnerOfReplicas(live.ManagedFields)
		if err != nil || !only {
			return err
		}
		config := appsv1ac.Deployment(app.Name, app.Namespace).WithUID(live.UID).
			WithSpec(appsv1ac.DeploymentSpec().WithReplicas(*live.Spec.Replicas))
		applied, err := client.Apply(ctx, config, metav1.ApplyOptions{FieldManager: replicasManager})
		if apierrors.IsConflict(err) {
			// Somebody has just set another number, and so owns the field.
			return fmt.Errorf("hand over replicas of Deployment %q: %w: %w", app.Name, controller.ErrStale, err)
		}
		if err != nil {
			return fmt.Errorf("hand over replicas of Deployment %q: %w", app.Name, staleIfReplaced(err))
		}
		c.wrote(ctx, app, deploymentsResource, applied)
		return nil
	}
}

// onlyOwnerOfReplicas says whether our applies own spec.replicas and nobody else
// does.
func onlyOwnerOfReplicas(managers []metav1.ManagedFieldsEntry) (bool, error) {
	ours := false
	for _, m := range managers {
		if m.FieldsV1 == nil {
			continue
		}
		var fields fieldpath.Set
		if err := fields.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
			return false, fmt.Errorf("parse managedFields of %s: %w", m.Manager, err)
		}
		if !fields.Has(fieldpath.MakePathOrDie("spec", "replicas")) {
			continue
		}
		if m.Manager != fieldManager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" {
			return false, nil
		}
		ours = true
	}
	return ours, nil
}

// staleIfReplaced marks the API server's answer to an apply whose uid is not the
// live object's: metadata.uid "is immutable", among whatever else is missing in an
// object that is not the one meant.
func staleIfReplaced(err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return fmt.Errorf("the object has been replaced by another of its name: %w: %w", controller.ErrStale, err)
		}
	}
	return err
}

// wrote remembers a write until the cache shows it.
func (c *Controller) wrote(ctx context.Context, app metav1.Object, resource schema.GroupVersionResource, written metav1.Object) {
	klog.FromContext(ctx).V(2).Info("Wrote", "resource", resource.GroupResource().String(), "child", klog.KObj(written),
		"resourceVersion", written.GetResourceVersion())
	c.cfg.Writes.Wrote(nameOf(app), resource, nameOf(written), written.GetUID(), written.GetResourceVersion())
}

func hashOf(config any) (string, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:hashLength], nil
}

// matches says whether every leaf of the apply configuration is in the live object
// with an equal value. Fields that the configuration does not mention, defaults of
// the API server and other people's, do not count.
func matches(config any, live runtime.Object) (bool, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return false, err
	}
	var want map[string]any
	if err := json.Unmarshal(data, &want); err != nil {
		return false, err
	}
	// The same through the typed object writes quantities, durations and numbers
	// as the API server does; want says which of its fields count.
	typed := reflect.New(reflect.TypeOf(live).Elem()).Interface()
	if err := json.Unmarshal(data, typed); err != nil {
		return false, err
	}
	canonical, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return false, err
	}
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, err
	}
	// Cached objects have none.
	delete(want, "apiVersion")
	delete(want, "kind")
	return covers("", want, canonical, have), nil
}

// listMapKeys are the keys of the lists that the API server merges by key; any
// other list is one value (listType=atomic).
var listMapKeys = map[string][]string{
	"ownerReferences": {"uid"},
	"containers":      {"name"},
	"env":             {"name"},
	"volumes":         {"name"},
	"volumeMounts":    {"mountPath"},
}

// listKeys also knows that the ports of a Service are keyed by port, those of a
// container by containerPort.
func listKeys(field string, element any) []string {
	if field != "ports" {
		return listMapKeys[field]
	}
	if e, _ := element.(map[string]any); e["containerPort"] != nil {
		return []string{"containerPort", "protocol"}
	}
	return []string{"port", "protocol"}
}

// atomicMaps are the objects that the API server takes as one value
// (mapType=atomic): what others add to them is drift.
var atomicMaps = map[string]bool{"selector": true, "configMapRef": true}

// covers compares at the places that want has; canonical has the values for them.
func covers(field string, want, canonical, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		if atomicMaps[field] {
			return reflect.DeepEqual(canonical, have)
		}
		canonicalMap, ok := canonical.(map[string]any)
		if !ok {
			return true // empty: the typed object leaves it out too
		}
		haveMap, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			if !covers(name, value, canonicalMap[name], haveMap[name]) {
				return false
			}
		}
		return true
	case []any:
		canonicalList, _ := canonical.([]any)
		if len(want) == 0 || len(canonicalList) != len(want) || listKeys(field, canonicalList[0]) == nil {
			return reflect.DeepEqual(canonical, have)
		}
		haveList, _ := have.([]any)
		for n := range want {
			element := lookup(haveList, canonicalList[n], listKeys(field, canonicalList[n]))
			if element == nil || !covers("", want[n], canonicalList[n], element) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(canonical, have)
}

// lookup returns the element of list with the same keys as like, nil if there is
// none.
func lookup(list []any, like any, keys []string) any {
	l, _ := like.(map[string]any)
	for _, element := range list {
		e, _ := element.(map[string]any)
		same := e != nil
		for _, key := range keys {
			same = same && reflect.DeepEqual(e[key], l[key])
		}
		if same {
			return element
		}
	}
	return nil
}

// notOwnedError says that the place of a child is taken.
type notOwnedError struct{ kind, name, owner string }

func (e notOwnedError) Error() string {
	return fmt.Sprintf("%s %q is controlled by %s and not by this WebApp: delete or rename it, or choose another name for the WebApp", e.kind, e.name, e.owner)
}

// waitError says that something has to go first, whose end is an event.
type waitError struct{ reason, message string }

func (e waitError) Error() string { return e.message }
