package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/install"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// refuseDeployments has an admission policy refuse every Deployment in the test's
// namespace, and returns what mends that.
func (w *world) refuseDeployments() (mend func()) {
	w.Helper()
	policies := w.kube.AdmissionregistrationV1()
	name := "no-deployments-in-" + w.namespace
	if _, err := policies.ValidatingAdmissionPolicies().Create(w.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "images must be signed"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(w.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	remove := func() error {
		err := policies.ValidatingAdmissionPolicyBindings().Delete(w.Context(), name, metav1.DeleteOptions{})
		if err == nil {
			err = policies.ValidatingAdmissionPolicies().Delete(w.Context(), name, metav1.DeleteOptions{})
		}
		return err
	}
	try := func() error {
		labels := map[string]string{"app": "probe"}
		_, err := w.kube.AppsV1().Deployments(w.namespace).Create(w.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
			}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	w.eventually(patience, "the policy to hold", func() (bool, string) {
		err := try()
		return apierrors.IsInvalid(err), fmt.Sprint(err)
	})
	return func() {
		w.Helper()
		if err := remove(); err != nil {
			w.Fatal(err)
		}
		w.eventually(patience, "the policy to be gone", func() (bool, string) {
			err := try()
			return err == nil, fmt.Sprint(err)
		})
	}
}

// An admission policy refuses what a WebApp needs, and is then mended. Nothing else
// changes, and nobody touches the object: it converges all the same, within 5
// minutes. The short form looks at when that would be and asks for it now.
func TestPolicyIsMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mend := w.refuseDeployments()
	p := w.start(nil, alone, "--debug-bind-address=127.0.0.1:0")
	debug := install.Serving(p.Log()).Debug
	if debug == "" {
		t.Fatalf("no debug server in the log:\n%s", p.Log())
	}
	since := time.Now()
	w.create(newApp("web"))
	refused := w.condition("web", v1alpha1.ConditionReady, "False Invalid")
	if !regexp.MustCompile("images must be signed").MatchString(refused.Message) {
		t.Errorf("the condition does not say why: %s", refused.Message)
	}
	generation, version := w.app("web").Generation, w.app("web").ResourceVersion

	var queues []struct {
		Keys []struct {
			Key, Class, State string
			NotBefore         time.Time
		}
	}
	w.eventually(patience, "the queue to show the key", func() (bool, string) {
		resp, err := client.Get("http://" + debug + "/debug/queue?controller=webapp")
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&queues); err != nil {
			return false, err.Error()
		}
		return len(queues) == 1 && len(queues[0].Keys) == 1 && queues[0].Keys[0].State == "Waiting", fmt.Sprintf("%+v", queues)
	})
	if k := queues[0].Keys[0]; k.Class != "Invalid" || time.Until(k.NotBefore) > 5*time.Minute {
		t.Errorf("%+v: want class Invalid, due within 5 minutes", k)
	}
	w.pass(10 * time.Second)
	if got := w.writes(since)["patch deployments web"]; got > 2 {
		t.Errorf("%d tries in 10 s: the API server is not to be asked that often", got)
	}

	mend()
	if long {
		mended := time.Now()
		w.eventually(5*time.Minute, "the WebApp to converge by itself", func() (bool, string) {
			app := w.app("web")
			return app.ResourceVersion != version, fmt.Sprintf("%+v", app.Status.Conditions)
		})
		t.Logf("converged %s after the policy was mended", time.Since(mended).Round(time.Second))
	} else {
		resp, err := client.PostForm("http://"+debug+"/debug/queue/retry", url.Values{"key": {w.namespace + "/web"}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("retry was answered with %s", resp.Status)
		}
	}
	w.ready("web")
	if got := w.app("web").Generation; got != generation {
		t.Errorf("somebody touched the object: generation %d, was %d", got, generation)
	}
}
