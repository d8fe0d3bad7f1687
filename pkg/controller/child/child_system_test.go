package child_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// interloper does something between a GET and the DELETE that follows it.
type interloper struct {
	corev1client.ConfigMapInterface
	between []func()
	deletes int
}

func (i *interloper) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	i.deletes++
	if len(i.between) > 0 {
		i.between[0]()
		i.between = i.between[1:]
	}
	return i.ConfigMapInterface.Delete(ctx, name, o)
}

// R73, R94: what is deleted is what was looked at, by the API server's own
// preconditions.
func TestWithdrawOnAnAPIServer(t *testing.T) {
	cp := plane.ForTest(t)
	namespace := cp.Namespace(t)
	client := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ConfigMaps(namespace)
	metadataClient := metadata.NewForConfigOrDie(cp.Config())
	create := func(by *metav1.OwnerReference) *corev1.ConfigMap {
		t.Helper()
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{*by}}}
		made, err := client.Create(t.Context(), c, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	remove := func() {
		t.Helper()
		if err := client.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	writes := 0
	write := func() {
		t.Helper()
		writes++
		patch := corev1ac.ConfigMap("web", namespace).WithData(map[string]string{"written": fmt.Sprint(writes)})
		if _, err := client.Apply(t.Context(), patch, metav1.ApplyOptions{FieldManager: "somebody"}); err != nil {
			t.Fatal(err)
		}
	}
	foreign := controlledBy("apps/v1", "Deployment", "x", "uid-x")
	for name, tc := range map[string]struct {
		reason         string
		between        []func()
		deletes, noted int
		survives       bool
	}{
		"AtOnce":   {"nobody interferes", nil, 1, 1, false},
		"Written":  {"somebody writes twice in between", []func(){write, write}, 3, 1, false},
		"Gone":     {"somebody deletes it in between", []func(){remove}, 1, 0, false},
		"Replaced": {"another one of its name takes its place", []func(){func() { remove(); create(foreign) }}, 1, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			cached := create(ours)
			t.Cleanup(func() {
				_ = client.Delete(context.WithoutCancel(t.Context()), "web", metav1.DeleteOptions{})
			})
			by := &interloper{ConfigMapInterface: client, between: tc.between}
			noted := 0
			applier := &child.Applier{Owner: ownerKind, Deleted: func(_ context.Context, _ metav1.Object, _ schema.GroupVersionResource, o metav1.Object) {
				noted++
				if o.GetUID() != cached.UID {
					t.Errorf("%s is reported as deleted, not %s", o.GetUID(), cached.UID)
				}
			}, Metadata: func(ctx context.Context, resource schema.GroupVersionResource, key cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
				return metadataClient.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			}}
			kind := configMaps{
				Name: "ConfigMap", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
				Cached: func(string, string) (*corev1.ConfigMap, error) { return cached, nil },
				Client: func(string) child.Client[*corev1.ConfigMap, *corev1ac.ConfigMapApplyConfiguration] { return by },
			}
			if err := child.Withdraw(t.Context(), applier, kind, &metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "uid-1"}); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			_, err := client.Get(t.Context(), "web", metav1.GetOptions{})
			if survives := err == nil; survives != tc.survives || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: afterwards there is one: %t (%v), want %t", tc.reason, survives, err, tc.survives)
			}
			if by.deletes != tc.deletes || noted != tc.noted {
				t.Errorf("%s: %d deletes, %d noted, want %d and %d", tc.reason, by.deletes, noted, tc.deletes, tc.noted)
			}
		})
	}
}
