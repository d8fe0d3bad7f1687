package conditions_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
)

func TestApplyStatus(t *testing.T) {
	resource := corev1.Resource("configmaps")
	conflict, notFound := apierrors.NewConflict(resource, "web", errors.New("changed")), apierrors.NewNotFound(resource, "web")
	cases := map[string]struct {
		reason string
		// applies and lives answer one call after the other; the last one for ever.
		applies []error
		liveUID string
		liveErr error
		want    string
		sent    []string
	}{
		"AtOnce":      {"the usual way", []error{nil}, "", nil, "written, <nil>", []string{"7"}},
		"Overtaken":   {"somebody else was quicker", []error{conflict, conflict, nil}, "uid-1", nil, "written, <nil>", []string{"7", "8", "9"}},
		"Replaced":    {"another of its name is not ours to report on", []error{conflict, nil}, "uid-2", nil, ", <nil>", []string{"7"}},
		"Gone":        {"nobody to report to", []error{notFound}, "", nil, ", <nil>", []string{"7"}},
		"GoneBetween": {"nor here", []error{conflict}, "", notFound, ", <nil>", []string{"7"}},
		"Refused":     {"no second try", []error{errors.New("no")}, "", nil, ", no", []string{"7"}},
		"LookFails":   {"neither", []error{conflict}, "", errors.New("no look"), ", no look", []string{"7"}},
		"Endless":     {"one pass gives up, the next one goes on", []error{conflict}, "uid-1", nil, ", " + conflict.Error(), []string{"7", "8", "9", "10", "11"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid-1", ResourceVersion: "7"}}
			var sent []string
			version := 7
			written, err := conditions.ApplyStatus(object, func(resourceVersion string) (string, error) {
				sent = append(sent, resourceVersion)
				if err := tc.applies[min(len(sent), len(tc.applies))-1]; err != nil {
					return "", err
				}
				return "written", nil
			}, func() (*metav1.PartialObjectMetadata, error) {
				version++
				live := &metav1.PartialObjectMetadata{}
				live.UID, live.ResourceVersion = "uid-1", fmt.Sprint(version)
				if tc.liveUID != "" {
					live.UID = types.UID(tc.liveUID)
				}
				return live, tc.liveErr
			})
			if got := fmt.Sprintf("%s, %v", written, err); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			if diff := cmp.Diff(tc.sent, sent); diff != "" {
				t.Errorf("%s: resourceVersions applied against (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTell(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		err         error
		ofNamespace bool
		want        int
	}{
		"Forbidden":   {"the permission is optional", apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", nil), true, 1},
		"Gone":        {"nothing can be created in it", apierrors.NewNotFound(corev1.Resource("namespaces"), "shop"), true, 0},
		"NoSuspicion": {"good news is not asked about", errors.New("asked"), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			kube, recorder := fake.NewClientset(), record.NewFakeRecorder(10)
			kube.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				if !tc.ofNamespace {
					t.Error("the namespace was looked at")
				}
				return true, nil, tc.err
			})
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			conditions.Tell(t.Context(), kube.CoreV1().Namespaces(), recorder, object,
				[]conditions.Transition{{EventType: corev1.EventTypeWarning, Reason: "Invalid", Message: "x", OfNamespace: tc.ofNamespace}})
			if got := len(recorder.Events); got != tc.want {
				t.Errorf("%s: %d Events, want %d", tc.reason, got, tc.want)
			}
		})
	}
	conditions.Tell(t.Context(), nil, nil, nil, []conditions.Transition{{Reason: "X"}}) // nobody to tell
}
