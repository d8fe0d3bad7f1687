package applicationroute

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

type secretTypes struct{ client rest.Interface }

func newSecretTypes(client rest.Interface) *secretTypes { return &secretTypes{client} }

func (s *secretTypes) of(context.Context, *metav1.PartialObjectMetadata) (string, error) {
	return "", nil
}

// TransformSecret is a stub.
func TransformSecret(s *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata { return s }
