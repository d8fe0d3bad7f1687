package informer_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// A conversion webhook that refuses one stored object: that is told as a conversion,
// not as corrupt bytes, with the object if the API server names it, and where it comes
// if it does not; and the hint is none that cannot work or does harm.
func TestSystemR17ConversionOfOneObject(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		suspect string
	}{
		"named":  {nil, "default/b"},
		"walked": {[]string{"--feature-gates=AllowUnsafeMalformedObjectDeletion=false"}, "the object after default/a in the order of namespace and name"},
	} {
		t.Run(name, func(t *testing.T) {
			systemConversion(t, controlplane.Config{ExtraAPIServerArgs: test.args}, test.suspect)
		})
	}
}

func systemConversion(t *testing.T, config controlplane.Config, suspect string) {
	var broken atomic.Bool
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { convert(w, r, broken.Load()) }))
	t.Cleanup(webhook.Close)
	cp := controlplane.ForTest(t, config)
	crd := map[string]any{}
	if err := yaml.Unmarshal(looseCRD(t), &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd["spec"].(map[string]any)
	served := spec["versions"].([]any)[0].(map[string]any)
	stored := map[string]any{"name": "v2", "served": true, "storage": true, "schema": served["schema"]}
	served["storage"] = false
	spec["versions"] = []any{served, stored}
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{"url": webhook.URL, "caBundle": pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})},
	}}
	document, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(t.Context(), document); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := cp.Apply(t.Context(), []byte("apiVersion: platform.tejo.dev/v2\nkind: WebApp\nmetadata: {name: "+name+"}\nspec: {image: v1}\n")); err != nil {
			t.Fatal(err)
		}
	}
	broken.Store(true)
	// Its watch cache has them converted already.
	if err := restart(t, cp); err != nil {
		t.Fatal(err)
	}
	clients, err := versioned.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	a, err := informer.New(informer.Config[*platformv1alpha1.WebApp]{
		Resource: webApps, ListerWatcher: informer.Tolerant(clients.PlatformV1alpha1().RESTClient()),
	})
	if err != nil {
		t.Fatal(err)
	}
	log := start(t, a)
	eventually(t, 90*time.Second, "where it fails is found", func() (bool, any) {
		s := a.Snapshot()
		return s.State == informer.StateUnlistable && s.Reason == informer.Conversion &&
			s.Suspect == suspect && strings.Contains(s.Message, "b is too old"), s
	})
	if text := log.String(); !strings.Contains(text, "suspect=\""+suspect) || strings.Contains(text, "kubectl patch") || strings.Contains(text, "ignoreStoreReadError") {
		t.Errorf("log:\n%s", text)
	}
	broken.Store(false)
	eventually(t, 90*time.Second, "healed", func() (bool, any) {
		s := a.Snapshot()
		return s.State == informer.StateHearing && s.Suspect == "" && s.Objects == 3, s
	})
}

// convert answers a ConversionReview: every object is the same in all versions, and b
// is refused while broken.
func convert(w http.ResponseWriter, r *http.Request, broken bool) {
	var review struct {
		Request struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result := map[string]any{"status": "Success"}
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
		if broken && o["metadata"].(map[string]any)["name"] == "b" {
			result = map[string]any{"status": "Failure", "message": "b is too old"}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"response": map[string]any{"uid": review.Request.UID, "result": result, "convertedObjects": review.Request.Objects},
	})
}
