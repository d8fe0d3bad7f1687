package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	go func() { ended <- run(ctx, cp.Config(), "127.0.0.1:0") }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run returned %v", err)
		}
	}()

	route := &v1alpha1.ApplicationRoute{
		ObjectMeta: metav1.ObjectMeta{Name: "checkout"},
		Spec: v1alpha1.ApplicationRouteSpec{
			Hostnames: []string{"checkout.example.com"},
			Backends:  []v1alpha1.Backend{{Service: "checkout", Port: 8080}},
			Gateway:   &v1alpha1.GatewayReference{Name: "public"},
		},
	}
	if _, err := networking.Create(t.Context(), route, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
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
	// child waits for the HTTPRoute to be like this.
	child := func(what string, ok func(*gatewayv1.HTTPRoute) bool) (found *gatewayv1.HTTPRoute) {
		t.Helper()
		controlplane.Eventually(t, time.Minute, what, func() (bool, string) {
			var err error
			if found, err = httpRoutes.Get(t.Context(), "checkout", metav1.GetOptions{}); err != nil {
				return false, err.Error()
			}
			return ok(found), fmt.Sprintf("%+v", found)
		})
		return found
	}

	made := child("the HTTPRoute to be made", func(*gatewayv1.HTTPRoute) bool { return true })
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
