package child

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// Applier is one controller, as far as its children are concerned. All is required, but
// Deleted and Metadata only for Withdraw.
type Applier struct {
	// FieldManager owns what is applied.
	FieldManager string
	// Annotation, on a child, is the hash of the last applied configuration. Without
	// managedFields, which the caches drop, nothing else in the live object shows
	// that a field has gone from it.
	Annotation string
	// Owner is the kind whose objects have the children.
	Owner schema.GroupKind
	// Wrote is told of every apply, with the object as it is then, and Deleted of
	// every delete that the API server has accepted, with the metadata of the object
	// as it was before.
	Wrote   func(ctx context.Context, owner metav1.Object, resource schema.GroupVersionResource, written metav1.Object)
	Deleted func(ctx context.Context, owner metav1.Object, resource schema.GroupVersionResource, deleted metav1.Object)
	// Metadata reads the metadata of an object from the API server.
	Metadata func(ctx context.Context, resource schema.GroupVersionResource, key cache.ObjectName) (*metav1.PartialObjectMetadata, error)
}

// Ensure applies config unless current, owner's child as [Find] returned it or the
// zero T, is already what it says, and returns the child as it is then; with an error
// it returns current. before runs only if something has to be applied to a child that
// exists; nil: nothing does. config is taken over, and names owner as the controller.
func Ensure[T Object, A Configuration[A]](ctx context.Context, a *Applier, k Kind[T, A], owner metav1.Object,
	current T, config A, before func(context.Context, T) error) (T, error) {
	var none T
	hash, err := hashOf(config)
	if err != nil {
		return current, fmt.Errorf("encode %s %q: %w", k.Name, owner.GetName(), err)
	}
	config = config.WithAnnotations(map[string]string{a.Annotation: hash})
	options := metav1.ApplyOptions{FieldManager: a.FieldManager}
	if current != none {
		same, err := k.matches(config, current)
		if err != nil {
			return current, fmt.Errorf("compare %s %q: %w", k.Name, owner.GetName(), err)
		}
		if same {
			return current, nil
		}
		if before != nil {
			if err := before(ctx, current); err != nil {
				return current, err
			}
		}
		// With a uid the apply never creates, and with force it takes back our
		// fields of a child that is ours, and of no other.
		config = config.WithUID(current.GetUID())
		options.Force = true
	}
	applied, err := k.Client(owner.GetNamespace()).Apply(ctx, config, options)
	if err != nil {
		return current, fmt.Errorf("apply %s %q: %w", k.Name, owner.GetName(), StaleIfReplaced(err))
	}
	a.Wrote(ctx, owner, k.Resource, applied)
	return applied, nil
}

// StaleIfReplaced marks, with controller.ErrStale, the API server's answer to an apply
// whose uid is not the live object's: metadata.uid "is immutable", among whatever else
// is missing in an object that is not the one meant.
func StaleIfReplaced(err error) error {
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

// hashLength cuts hashes that tell versions apart to 128 bits.
const hashLength = 32

func hashOf(config any) (string, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:hashLength], nil
}
