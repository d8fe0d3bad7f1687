package undecodable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

const (
	// lookAgainAfter is the least time between two looks at an object that others
	// change while what there is to say about it stays the same, and how often a key
	// is asked whether there is anything new. Where nothing has changed that costs no
	// request.
	lookAgainAfter = time.Minute
	// behindDelay is when a key is looked at again whose record is not of the
	// newest spec: the event that is missing wakes it too.
	behindDelay = time.Second
)

// Config is what New needs.
type Config struct {
	// Resource and Kind of the objects. Required.
	Resource schema.GroupVersionResource
	Kind     string
	// Client is a client of the resource's group and version. Its user agent,
	// limits and the fence of the lead are the caller's. Required.
	Client rest.Interface
	// FieldManager owns what is written. Required.
	FieldManager string

	// Quarantined returns the record of an object that cannot be decoded, false if
	// there is none. Required.
	Quarantined func(cache.ObjectName) (informer.Quarantined, bool)

	// Finalizer is ours, and Finalize does what is left to do for an object that is
	// being deleted and has it: it removes it, or returns an After. Both or none.
	Finalizer string
	Finalize  func(context.Context, *metav1.PartialObjectMetadata) (controller.Result, error)

	// Recorder takes Events; it must not block. Nil: none are recorded.
	Recorder record.EventRecorder
	// Clock times conditions and turns. Nil: the real one.
	Clock clock.PassiveClock
}

// Reporter is the controller.Reconciler of frozen keys: controller.Config.Frozen.
type Reporter struct {
	cfg   Config
	turns turns

	mu   sync.Mutex
	told map[cache.ObjectName]told
}

// told is what has been said about an object.
type told struct {
	uid        types.UID
	generation int64
	message    string
	// resourceVersion and at are of the last look at the live object. It has this
	// message in its condition, or no place for one.
	resourceVersion string
	at              time.Time
	// refused is what the API server answered last, in short.
	refused string
}

// New checks cfg and returns a Reporter. It starts nothing.
func New(cfg Config) (*Reporter, error) {
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Resource", cfg.Resource.Empty()}, {"Kind", cfg.Kind == ""}, {"Client", cfg.Client == nil},
		{"FieldManager", cfg.FieldManager == ""}, {"Quarantined", cfg.Quarantined == nil},
	} {
		if f.missing {
			return nil, fmt.Errorf("reporter of undecodable objects: Config.%s is not set: it is required", f.name)
		}
	}
	if (cfg.Finalizer == "") != (cfg.Finalize == nil) {
		return nil, errors.New("reporter of undecodable objects: of Config.Finalizer and Config.Finalize only one is set: set both or none")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Reporter{cfg: cfg, told: map[cache.ObjectName]told{}}, nil
}

// Reconcile lets go of the object if it is being deleted, and tells people about it
// if they have not been told.
func (r *Reporter) Reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	record, ok := r.cfg.Quarantined(key)
	if !ok { // between the gate and here; that woke the key
		r.Forget(key)
		return controller.Result{}, nil
	}
	if record.DeletionTimestamp == nil || r.cfg.Finalizer == "" || !slices.Contains(record.Finalizers, r.cfg.Finalizer) {
		return r.report(ctx, record)
	}
	result, err := r.cfg.Finalize(ctx, r.metadata(record))
	if err != nil {
		r.refused(ctx, record, "NotFinalized", "finish its deletion", err)
		return controller.Result{}, err
	}
	if result.After <= 0 {
		return result, nil
	}
	// It is still to be seen for a while. What comes of this must not hold up the end.
	reported, err := r.report(ctx, record)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Undecodable object is not reported while it is being deleted", "err", err)
	}
	if err == nil && reported.After > 0 {
		result.After = min(result.After, reported.After)
	}
	return result, nil
}

// Forget drops what is remembered of an object that can be decoded again or is gone.
func (r *Reporter) Forget(key cache.ObjectName) {
	r.turns.leave(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, key)
}

// report brings the live object's condition in line with the record.
func (r *Reporter) report(ctx context.Context, record informer.Quarantined) (controller.Result, error) {
	next := told{uid: record.UID, generation: record.Generation, message: message(record)}
	before := r.of(record.Key)
	now := r.cfg.Clock.Now()
	if before.says(next) && !before.at.IsZero() {
		if before.resourceVersion == record.ResourceVersion { // our own write, as a rule
			return controller.Result{After: lookAgainAfter, Reason: "reported"}, nil
		}
		if wait := before.at.Add(lookAgainAfter).Sub(now); wait > 0 {
			return controller.Result{After: wait, Reason: "reported"}, nil
		}
	}
	if wait := r.turns.take(record.Key, now); wait > 0 {
		return controller.Result{After: wait, Reason: "waits for its turn to be reported on the object"}, nil
	}
	outcome, resourceVersion, err := r.writeFalse(ctx, record, next.message)
	if noPlace := (noPlaceError{}); errors.As(err, &noPlace) {
		r.refused(ctx, record, "NotReported", "write condition "+Condition, err)
		outcome, resourceVersion, err = same, record.ResourceVersion, nil
		next.refused = r.of(record.Key).refused
	}
	if err != nil {
		r.refused(ctx, record, "NotReported", "write condition "+Condition, err)
		return controller.Result{}, err
	}
	switch outcome {
	case gone:
		return controller.Result{After: behindDelay, Reason: "its deletion is on its way"}, nil
	case behind:
		return controller.Result{After: behindDelay, Reason: "a newer version is on its way"}, nil
	case turned:
		r.event(record, ReasonUndecodable, next.message)
		fallthrough
	case amended:
		klog.FromContext(ctx).V(2).Info("Wrote", "resource", r.cfg.Resource.GroupResource().String(), "condition", Condition, "resourceVersion", resourceVersion)
	}
	next.resourceVersion, next.at = resourceVersion, now
	r.remember(record.Key, next)
	return controller.Result{After: lookAgainAfter, Reason: "reported"}, nil
}

// says is whether a message of the same object and spec has been told.
func (t told) says(next told) bool {
	return t.uid == next.uid && t.generation == next.generation && t.message == next.message
}

func (r *Reporter) of(key cache.ObjectName) told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[key]
}

func (r *Reporter) remember(key cache.ObjectName, t told) {
	r.mu.Lock()
	r.told[key] = t
	r.mu.Unlock()
	if _, ok := r.cfg.Quarantined(key); !ok { // Forget has been here, or comes
		r.Forget(key)
	}
}

func (r *Reporter) metadata(record informer.Quarantined) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: r.cfg.Resource.GroupVersion().String(), Kind: r.cfg.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: record.Key.Namespace, Name: record.Key.Name, UID: record.UID,
			ResourceVersion: record.ResourceVersion, Generation: record.Generation,
			DeletionTimestamp: record.DeletionTimestamp.DeepCopy(),
			Finalizers:        slices.Clone(record.Finalizers), OwnerReferences: slices.Clone(record.OwnerReferences),
		},
	}
}

func (r *Reporter) event(record informer.Quarantined, reason, message string) {
	if r.cfg.Recorder == nil {
		return
	}
	r.cfg.Recorder.Event(&corev1.ObjectReference{
		APIVersion: r.cfg.Resource.GroupVersion().String(), Kind: r.cfg.Kind,
		Namespace: record.Key.Namespace, Name: record.Key.Name, UID: record.UID, ResourceVersion: record.ResourceVersion,
	}, corev1.EventTypeWarning, reason, message)
}

// refused says once that the API server does not let us do what has to be done, and
// what people can do about it. An API server that is away or busy has not refused.
func (r *Reporter) refused(ctx context.Context, record informer.Quarantined, reason, what string, err error) {
	short, wayOut := refusal(record, err)
	if short == "" {
		return
	}
	short = reason + " " + short
	r.mu.Lock()
	t := r.told[record.Key]
	known := t.uid == record.UID && t.refused == short
	if t.uid != record.UID {
		t = told{uid: record.UID}
	}
	t.refused = short
	r.told[record.Key] = t
	r.mu.Unlock()
	if known {
		return
	}
	klog.FromContext(ctx).Error(err, "Undecodable object cannot be written to", "what", what, "remedy", wayOut)
	r.event(record, reason, fmt.Sprintf("Cannot %s of this undecodable object: %s. %s", what, cut(err.Error(), maxWords), wayOut))
}

// refusal sorts an error by what people have to do; "" where it is no refusal.
func refusal(record informer.Quarantined, err error) (short, wayOut string) {
	var noPlace noPlaceError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &noPlace):
		return "NoPlace", describe(record) + remedy(record)
	case !errors.As(err, &status):
		return "", ""
	case controller.Classify(err) == controller.ClassInvalid:
		return "Invalid", "The stored object fails the CRD's schema, so that the API server refuses every change that leaves it so. Mend it" + remedy(record) +
			"; where that is refused too, loosen the schema first"
	case apierrors.IsForbidden(err):
		return "Forbidden", fmt.Sprintf("Grant patch on %[1]s and %[1]s/status, or see which admission policy refuses it", record.Resource.GroupResource().String())
	case status.Status().Code == http.StatusInternalServerError:
		return "InternalError", "If a conversion webhook is at fault, bring it back first: until then nothing can be read or written, by kubectl neither"
	}
	return "", ""
}
