package applicationroute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// secretTypeTimeout bounds the look at the type of one Secret: a pass has other
	// things to do too.
	secretTypeTimeout = 10 * time.Second
	// maxSecretTypes bounds what is remembered of Secrets, about 4 MiB.
	maxSecretTypes = 20000
)

// TransformSecret, as informer.Config.Transform, keeps the identity of a Secret and
// nothing else. Its annotations may hold all of its data: kubectl.kubernetes.io/
// last-applied-configuration is what "kubectl apply" was given. An object that has been
// through it before (a relist passes cached ones again) is not touched.
func TransformSecret(s *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	if s.TypeMeta == (metav1.TypeMeta{}) && s.GenerateName == "" && s.Generation == 0 && s.DeletionGracePeriodSeconds == nil &&
		s.Labels == nil && s.Annotations == nil && s.OwnerReferences == nil && s.Finalizers == nil && s.ManagedFields == nil {
		return s
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace:         s.Namespace,
		Name:              s.Name,
		UID:               s.UID,
		ResourceVersion:   s.ResourceVersion,
		CreationTimestamp: s.CreationTimestamp,
		DeletionTimestamp: s.DeletionTimestamp,
	}}
}

// secretTypes tells the types of Secrets without ever being sent what is in them: it
// asks the API server for what "kubectl get secret" prints, a row of cells of which one
// is the type, without the object that it is made of.
//
// The type of a Secret never changes (the API server refuses that), so that it is asked
// for once in a Secret's life. Safe for concurrent use.
type secretTypes struct {
	client rest.Interface

	mu    sync.Mutex
	known map[cache.ObjectName]secretType
}

// secretType is what is remembered of one Secret.
type secretType struct {
	uid  types.UID
	name string
}

// newSecretTypes needs a client of the core API, and starts nothing.
func newSecretTypes(client rest.Interface) *secretTypes {
	return &secretTypes{client: client, known: map[cache.ObjectName]secretType{}}
}

// of returns the type of secret, or of the one that has taken its place since it was
// cached; that of the latter is not remembered. Errors are the API server's, among them
// NotFound for one that has gone and Forbidden; errNoType for an answer that is no table
// with a type in it; and context.DeadlineExceeded, of no API status, if there is none
// within 10 s.
func (s *secretTypes) of(ctx context.Context, secret *metav1.PartialObjectMetadata) (string, error) {
	key := cache.MetaObjectToName(secret)
	if known, ok := s.recall(key); ok && known.uid == secret.UID {
		return known.name, nil
	}
	name, resourceVersion, err := s.ask(ctx, key)
	if err != nil {
		return "", err
	}
	// A row does not say the UID. The revision stands in for it: no two objects of the
	// same name have had the same one.
	if resourceVersion == secret.ResourceVersion && resourceVersion != "" {
		s.remember(key, secretType{secret.UID, name})
	}
	return name, nil
}

// forget drops what is remembered of a Secret that is gone.
func (s *secretTypes) forget(key cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

func (s *secretTypes) recall(key cache.ObjectName) (secretType, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.known[key]
	return known, ok
}

func (s *secretTypes) remember(key cache.ObjectName, t secretType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[key]; !ok && len(s.known) >= maxSecretTypes {
		for one := range s.known {
			delete(s.known, one) // it is asked for again when it is needed
			break
		}
	}
	s.known[key] = t
}

// errNoType is returned when the API server's answer does not say the type of a Secret.
var errNoType = errors.New("the API server's answer has no type of a Secret in it")

// ask returns the type and the revision of the Secret of that name.
func (s *secretTypes) ask(ctx context.Context, key cache.ObjectName) (name, resourceVersion string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, secretTypeTimeout, fmt.Errorf("no answer within %s: %w", secretTypeTimeout, context.DeadlineExceeded))
	defer cancel()
	result := s.client.Get().
		Namespace(key.Namespace).Resource("secrets").Name(key.Name).
		// No other form is accepted: a server that knows no tables answers 406.
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Param("includeObject", string(metav1.IncludeNone)).
		Do(ctx)
	if err := result.Error(); err != nil {
		if ctx.Err() != nil {
			return "", "", context.Cause(ctx)
		}
		return "", "", err
	}
	body, err := result.Raw()
	if err != nil {
		return "", "", err
	}
	return typeIn(body)
}

// typeIn reads the one cell of a table that is under the heading Type.
func typeIn(body []byte) (name, resourceVersion string, err error) {
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		return "", "", fmt.Errorf("%w: %w", errNoType, err)
	}
	column := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == "Type" })
	if table.Kind != "Table" || column < 0 || len(table.Rows) != 1 || len(table.Rows[0].Cells) <= column {
		return "", "", errNoType
	}
	name, ok := table.Rows[0].Cells[column].(string)
	if !ok {
		return "", "", errNoType
	}
	return name, table.ResourceVersion, nil
}
