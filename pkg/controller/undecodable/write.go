package undecodable

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// patchTries bounds how often one pass looks again because somebody else was
// quicker.
const patchTries = 5

// outcome is how the writing of a condition ended without an error.
type outcome int

const (
	gone    outcome = iota // the object, or the one of this uid
	behind                 // the record is of another spec than the live object
	same                   // nothing to write
	turned                 // written, and it was not False before
	amended                // written
)

// writeFalse puts Decodable=False into the live status, unless it is there, and
// returns the resourceVersion that the object has then.
//
// A JSON patch of the status subresource is the only way: an update would have to
// send the object, and server-side apply refuses one whose stored value has another
// JSON type than the schema says.
func (r *Reporter) writeFalse(ctx context.Context, record informer.Quarantined, message string) (outcome, string, error) {
	for try := 1; ; try++ {
		live, err := r.read(ctx, record.Key)
		switch {
		case apierrors.IsNotFound(err):
			return gone, "", nil
		case err != nil:
			return 0, "", fmt.Errorf("read status: %w", err)
		case live.Metadata.UID != record.UID:
			return gone, "", nil
		case live.Metadata.Generation != record.Generation:
			return behind, "", nil
		}
		patch, isTurn, err := falsePatch(live, message, r.cfg.Clock.Now())
		if err != nil {
			return 0, "", err
		}
		if patch == nil {
			return same, live.Metadata.ResourceVersion, nil
		}
		written, err := r.patch(ctx, record.Key, patch)
		switch {
		case err == nil && isTurn:
			return turned, written, nil
		case err == nil:
			return amended, written, nil
		case apierrors.IsNotFound(err):
			return gone, "", nil
		case controller.Classify(err) != controller.ClassConflict || try == patchTries:
			return 0, "", fmt.Errorf("write condition %s: %w", Condition, err)
		}
	}
}

func (r *Reporter) read(ctx context.Context, key cache.ObjectName) (live liveObject, err error) {
	data, err := raw(r.cfg.Client.Get().
		NamespaceIfScoped(key.Namespace, key.Namespace != "").
		Resource(r.cfg.Resource.Resource).Name(key.Name).
		SetHeader("Accept", "application/json").
		Do(ctx))
	if err != nil {
		return live, err
	}
	return live, json.Unmarshal(data, &live)
}

// patch returns the resourceVersion that the object has afterwards.
func (r *Reporter) patch(ctx context.Context, key cache.ObjectName, patch []operation) (string, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return "", err
	}
	data, err := raw(r.cfg.Client.Patch(types.JSONPatchType).
		NamespaceIfScoped(key.Namespace, key.Namespace != "").
		Resource(r.cfg.Resource.Resource).Name(key.Name).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: r.cfg.FieldManager}, metav1.ParameterCodec).
		SetHeader("Accept", "application/json").
		Body(body).
		Do(ctx))
	if err != nil {
		return "", err
	}
	var written liveObject
	if err := json.Unmarshal(data, &written); err != nil {
		return "", err
	}
	return written.Metadata.ResourceVersion, nil
}

// raw is Result.Raw with the error that the API server has sent: Raw makes one up
// from the HTTP status alone.
func raw(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}
