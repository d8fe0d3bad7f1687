package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// A WebApp turns bad under the installed rules: it is told of in every place where
// people look, others go on, and it can be deleted; nothing that is asked of the API
// server for that is forbidden.
func TestSystemUndecodable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	r := w.start("a", replicaOptions{})
	r.awaitLead()
	w.create(w.namespace, "bad")
	w.converges(patience, w.namespace, "bad")

	resource := v1alpha1.SchemeGroupVersion.WithResource("webapps")
	webApps := dynamic.NewForConfigOrDie(w.plane.Config()).Resource(resource).Namespace(w.namespace)
	key := path.Join("/registry", resource.Group, resource.Resource, w.namespace, "bad")
	raw, err := w.plane.EtcdGet(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	stored := string(raw)
	worse := strings.Replace(stored, `"drainTimeout":"0s"`, `"drainTimeout":"1"`, 1)
	if worse == stored {
		t.Fatalf("no drainTimeout in %s", stored)
	}
	if _, err := w.plane.EtcdPut(t.Context(), key, []byte(worse)); err != nil {
		t.Fatal(err)
	}
	w.eventually(patience, "the condition", func() (bool, string) {
		o, err := webApps.Get(t.Context(), "bad", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Decodable" {
				return c["status"] == "False" && strings.Contains(fmt.Sprint(c["message"]), `spec.drainTimeout is "1"`), fmt.Sprint(c)
			}
		}
		return false, fmt.Sprint(conditions)
	})
	w.create(w.namespace, "good")
	w.converges(patience, w.namespace, "good")

	const series = `{resource="webapps.platform.tejo.dev"}`
	for name, want := range map[string]float64{"steadwatch_quarantined_objects": 1, "steadwatch_quarantined_total": 1, "steadwatch_unreadable_total": 0} {
		if got, ok := r.metric(name + series); !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	_, text := get(r.debug, "/debug/quarantine?format=text")
	_, asJSON := get(r.debug, "/debug/quarantine?resource=webapps.platform.tejo.dev")
	for _, words := range []string{w.namespace + "/bad", "spec.drainTimeout", "kubectl patch webapps.v1alpha1.platform.tejo.dev bad -n " + w.namespace} {
		if !strings.Contains(text, words) || !strings.Contains(asJSON, words) {
			t.Errorf("%q is missing in\n%s\n%s", words, text, asJSON)
		}
	}
	t.Logf("the page for people:\n%s", text)
	var pages []struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(asJSON), &pages); err != nil || len(pages) != 1 || len(pages[0].Items) != 1 {
		t.Errorf("%v: %s", err, asJSON)
	}
	w.eventually(patience, "the Event", func() (bool, string) {
		events, err := w.kube.CoreV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Undecodable"})
		if err != nil {
			return false, err.Error()
		}
		if len(events.Items) != 1 {
			return false, fmt.Sprintf("%d Events", len(events.Items))
		}
		e := events.Items[0]
		return e.Type == corev1.EventTypeWarning && e.Count == 1 && e.InvolvedObject.Kind == "WebApp" && e.InvolvedObject.Name == "bad", fmt.Sprintf("%+v", e)
	})
	r.healthy("/readyz")

	// No Deployment controller runs here: the default drain time has to pass.
	if err := webApps.Delete(t.Context(), "bad", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(patience, "the bad WebApp to go", func() (bool, string) {
		o, err := webApps.Get(t.Context(), "bad", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err, o)
	})
	w.eventually(patience, "the quarantine to be empty", func() (bool, string) {
		got, _ := r.metric("steadwatch_quarantined_objects" + series)
		return got == 0, fmt.Sprint(got)
	})
	r.alive()
	for _, e := range w.audit(controlplane.StageResponseComplete, w.users, func(e controlplane.AuditEvent) bool { return e.Code == http.StatusForbidden }) {
		t.Errorf("forbidden: %s %s", e.Verb, e.RequestURI)
	}
}
