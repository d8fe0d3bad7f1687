package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

// The example does what docs/embedding.md says of it, on a real API server.
func TestSystemExampleWorks(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	if err := cp.ApplyFile(t.Context(), "../../manifests/crd/networking.tejo.dev_applicationroutes.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Install(t.Context(), cp, gateway.HTTPRoutes); err != nil {
		t.Fatal(err)
	}
	networking := versioned.NewForConfigOrDie(cp.Config()).NetworkingV1alpha1().ApplicationRoutes("default")
	httpRoutes := gatewayclient.NewForConfigOrDie(cp.Config()).GatewayV1().HTTPRoutes("default")
	services := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().Services("default")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	mux := http.NewServeMux()
	go func() { ended <- run(ctx, cp.Config(), mux) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run returned %v", err)
		}
	}()

	create := func(name string) {
		t.Helper()
		route := &v1alpha1.ApplicationRoute{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.ApplicationRouteSpec{
				Hostnames: []string{name + ".example.com"},
				Backends:  []v1alpha1.Backend{{Service: "checkout", Port: 8080}},
				Gateway:   &v1alpha1.GatewayReference{Name: "public"},
			},
		}
		if _, err := networking.Create(t.Context(), route, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("checkout")
	dependencies := func(want metav1.ConditionStatus) {
		t.Helper()
		controlplane.Eventually(t, time.Minute, "DependenciesReady="+string(want), func() (bool, string) {
			route, err := networking.Get(t.Context(), "checkout", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			c := meta.FindStatusCondition(route.Status.Conditions, v1alpha1.ConditionDependenciesReady)
			return c != nil && c.Status == want, fmt.Sprintf("%+v", c)
		})
	}
	// childOf waits for the HTTPRoute of that route to be like this.
	childOf := func(name, what string, ok func(*gatewayv1.HTTPRoute) bool) (found *gatewayv1.HTTPRoute) {
		t.Helper()
		controlplane.Eventually(t, time.Minute, what, func() (bool, string) {
			var err error
			if found, err = httpRoutes.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				return false, err.Error()
			}
			return ok(found), fmt.Sprintf("%+v", found)
		})
		return found
	}
	child := func(what string, ok func(*gatewayv1.HTTPRoute) bool) *gatewayv1.HTTPRoute {
		t.Helper()
		return childOf("checkout", what, ok)
	}
	exists := func(*gatewayv1.HTTPRoute) bool { return true }

	made := child("the HTTPRoute to be made", exists)
	if owner := metav1.GetControllerOf(made); owner == nil || owner.Kind != "ApplicationRoute" || owner.Name != "checkout" {
		t.Errorf("the HTTPRoute's owner is %+v", owner)
	}
	dependencies(metav1.ConditionFalse)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "checkout"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}}}
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dependencies(metav1.ConditionTrue)
	if err := services.Delete(t.Context(), "checkout", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	dependencies(metav1.ConditionFalse)

	// What others do to the HTTPRoute is set right.
	if err := httpRoutes.Delete(t.Context(), "checkout", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := child("the HTTPRoute to be made again", func(r *gatewayv1.HTTPRoute) bool { return r.UID != made.UID })
	again.Spec.Hostnames = append(again.Spec.Hostnames, "other.example.com")
	if _, err := httpRoutes.Update(t.Context(), again, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	child("its hostnames to be set back", func(r *gatewayv1.HTTPRoute) bool {
		return len(r.Spec.Hostnames) == 1 && r.Spec.Hostnames[0] == "checkout.example.com"
	})

	// Its spec is followed.
	if _, err := networking.Patch(t.Context(), "checkout", types.MergePatchType, []byte(`{"spec":{"hostnames":["pay.example.com"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	child("the hostname to be changed", func(r *gatewayv1.HTTPRoute) bool {
		return len(r.Spec.Hostnames) == 1 && r.Spec.Hostnames[0] == "pay.example.com"
	})

	// One that cannot be decoded is left alone until it is mended, whatever happens to
	// its HTTPRoute.
	create("bad")
	childOf("bad", "the HTTPRoute of another route", exists)
	makeUndecodable(t, cp, "bad")
	create("later")
	childOf("later", "the HTTPRoute of a route made later", exists) // so the bad one has been seen
	before := child("the HTTPRoute", exists)
	for _, name := range []string{"bad", "checkout"} {
		if err := httpRoutes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	child("the HTTPRoute to be made again", func(r *gatewayv1.HTTPRoute) bool { return r.UID != before.UID })
	if _, err := httpRoutes.Get(t.Context(), "bad", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("HTTPRoute of a route that cannot be decoded: %v, want none", err)
	}
	if _, err := networking.Patch(t.Context(), "bad", types.MergePatchType, []byte(`{"spec":{"timeout":"1s"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	childOf("bad", "the HTTPRoute of the route that was mended", exists)

	server := httptest.NewServer(mux)
	defer server.Close()
	answer, err := http.Get(server.URL + "/healthz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "workers") {
		t.Errorf("/healthz: %s %s, %v", answer.Status, body, err)
	}

	// Once all is as it should be nothing is written.
	dependencies(metav1.ConditionFalse)
	var writes []controlplane.AuditEvent
	controlplane.Eventually(t, time.Minute, "no write for 3 s", func() (bool, string) {
		since := time.Now()
		select {
		case <-time.After(3 * time.Second):
		case <-t.Context().Done():
		}
		var err error
		writes, err = cp.Audit(t.Context(), func(e controlplane.AuditEvent) bool {
			return (e.Resource == "httproutes" || e.Resource == "applicationroutes") && e.Verb != "get" && e.Verb != "list" && e.Verb != "watch" && e.RequestReceived.After(since)
		})
		return err == nil && len(writes) == 0, fmt.Sprint(writes, err)
	})
}

// makeUndecodable gives an ApplicationRoute a timeout that is a number, under a schema
// that says nothing about timeouts, as an older one might.
func makeUndecodable(t *testing.T, cp *controlplane.ControlPlane, name string) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(cp.Config())
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	loose := `[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/timeout"},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-preserve-unknown-fields","value":true}]`
	if _, err := crds.Patch(t.Context(), "applicationroutes.networking.tejo.dev", types.JSONPatchType, []byte(loose), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	routes := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("applicationroutes")).Namespace("default")
	controlplane.Eventually(t, time.Minute, "the API server to use the loose schema", func() (bool, string) {
		_, err := routes.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"timeout":1}}`), metav1.PatchOptions{})
		return err == nil, fmt.Sprint(err)
	})
}
