// Package apis_test holds the tests of what the API server makes of the CRDs.
package apis_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	networking "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	platform "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// What the API server admits must decode, and what it refuses must be refused in
// words that name the field and the way out: the same field, the same sentence.
func TestSchema(t *testing.T) {
	cp := plane.ForTest(t)
	if err := cp.ApplyFile(t.Context(), "../../manifests/crd"); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	rest := client.CoreV1().RESTClient()

	webapp := func(spec string) (string, string) { return "webapps", `{"image":"x",` + spec + `}` }
	route := func(spec string) (string, string) {
		return "applicationroutes", `{"hostnames":["a.example.com"],"backends":[{"service":"s","port":80}],` + spec + `}`
	}
	const drain = "drainTimeout must be a duration with a unit, at most 24h"
	const timeout = "timeout must be a duration with a unit, from 1ms to 24h"

	cases := map[string]struct {
		reason  string
		kind    func(string) (string, string)
		spec    string
		name    string
		refused string // part of the refusal; empty: admitted, and must decode
	}{
		"the guide's WebApp":     {reason: "optional fields may be left out", kind: webapp, spec: `"replicas":3,"configRef":"payments-config"`},
		"drain 1h30m":            {reason: "Go's own form", kind: webapp, spec: `"drainTimeout":"1h30m"`},
		"drain 1.5h":             {reason: "Go decodes fractions", kind: webapp, spec: `"drainTimeout":"1.5h"`},
		"drain 0s":               {reason: "no drain", kind: webapp, spec: `"drainTimeout":"0s"`},
		"drain 24h":              {reason: "the bound is included", kind: webapp, spec: `"drainTimeout":"24h"`},
		"drain without unit":     {reason: "breaks time.ParseDuration", kind: webapp, spec: `"drainTimeout":"1"`, refused: drain},
		"drain in days":          {reason: "breaks time.ParseDuration", kind: webapp, spec: `"drainTimeout":"360d"`, refused: drain},
		"drain in words":         {reason: "breaks time.ParseDuration", kind: webapp, spec: `"drainTimeout":"5 minutes"`, refused: drain},
		"drain empty":            {reason: "breaks time.ParseDuration", kind: webapp, spec: `"drainTimeout":""`, refused: drain},
		"drain negative":         {reason: "no meaning", kind: webapp, spec: `"drainTimeout":"-5s"`, refused: drain},
		"drain overflows":        {reason: "R04: over 292 years overflow int64 nanoseconds", kind: webapp, spec: `"drainTimeout":"9999999h"`, refused: drain},
		"drain overflows CEL":    {reason: "the words, not a type conversion error", kind: webapp, spec: `"drainTimeout":"999999999999999999999h"`, refused: drain},
		"drain above the bound":  {reason: "a day at most", kind: webapp, spec: `"drainTimeout":"25h"`, refused: drain},
		"drain as a number":      {reason: "nanoseconds are not taken", kind: webapp, spec: `"drainTimeout":3`, refused: "spec.drainTimeout in body must be of type string"},
		"replicas overflow":      {reason: "int32", kind: webapp, spec: `"replicas":2147483648`, refused: "spec.replicas"},
		"replicas largest":       {reason: "int32", kind: webapp, spec: `"replicas":2147483647`},
		"replicas fraction":      {reason: "a float breaks the int32", kind: webapp, spec: `"replicas":1.5`, refused: "spec.replicas"},
		"replicas exponent":      {reason: "encoding it as 1e3 would break the int32", kind: webapp, spec: `"replicas":1e3`, refused: "spec.replicas"},
		"replicas quoted":        {reason: "a string breaks the int32", kind: webapp, spec: `"replicas":"3"`, refused: "spec.replicas"},
		"replicas negative":      {reason: "no meaning", kind: webapp, spec: `"replicas":-1`, refused: "spec.replicas"},
		"port too large":         {reason: "no such port", kind: webapp, spec: `"port":70000`, refused: "spec.port"},
		"configRef no name":      {reason: "could never be found", kind: webapp, spec: `"configRef":"A_b"`, refused: "configRef must be the name of a ConfigMap"},
		"image with space":       {reason: "no image has one", kind: webapp, spec: `"image":"a b"`, refused: "image must not contain white space"},
		"name starts with digit": {reason: "no Service can have it", kind: webapp, spec: `"port":1`, name: "1a", refused: "becomes the name of a Service"},
		"name with a dot":        {reason: "no Service can have it", kind: webapp, spec: `"port":1`, name: "a.b", refused: "becomes the name of a Service"},

		"the guide's route":   {reason: "weights, TLS, timeout", kind: route, spec: `"backends":[{"service":"checkout","port":8080,"weight":90},{"service":"checkout-canary","port":8080,"weight":10}],"tlsSecret":"checkout-tls","timeout":"2s"`},
		"timeout zero":        {reason: "would mean no timeout to some and none at all to others", kind: route, spec: `"timeout":"0s"`, refused: timeout},
		"timeout in days":     {reason: "breaks time.ParseDuration", kind: route, spec: `"timeout":"2d"`, refused: timeout},
		"timeout fraction":    {reason: "the Gateway API has none", kind: route, spec: `"timeout":"1.5s"`, refused: timeout},
		"weights all zero":    {reason: "no backend would get anything", kind: route, spec: `"backends":[{"service":"s","port":80,"weight":0}]`, refused: "at least one backend needs a weight above 0"},
		"no backend":          {reason: "nowhere to send", kind: route, spec: `"backends":[]`, refused: "spec.backends"},
		"backend twice":       {reason: "its weight would be ambiguous", kind: route, spec: `"backends":[{"service":"s","port":80},{"service":"s","port":80}]`, refused: "Duplicate value"},
		"hostname an address": {reason: "the Gateway API refuses it", kind: route, spec: `"hostnames":["1.2.3.4"]`, refused: "must not be an IP address"},
		"hostname upper case": {reason: "the Gateway API refuses it", kind: route, spec: `"hostnames":["A.b"]`, refused: "lower-case DNS name"},
		"hostname wildcard":   {reason: "the Gateway API has it", kind: route, spec: `"hostnames":["*.example.com"]`},
	}
	index := 0
	for title, c := range cases {
		index++
		name := c.name
		if name == "" {
			name = fmt.Sprintf("case-%d", index)
		}
		t.Run(title, func(t *testing.T) {
			resource, spec := c.kind(c.spec)
			group, kind := "platform.tejo.dev", "WebApp"
			if resource == "applicationroutes" {
				group, kind = "networking.tejo.dev", "ApplicationRoute"
			}
			body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, group+"/v1alpha1", kind, name, dedupe(t, spec))
			path := fmt.Sprintf("/apis/%s/v1alpha1/namespaces/default/%s", group, resource)
			got, err := rest.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).DoRaw(t.Context())
			if c.refused != "" {
				status := string(got)
				if err == nil || !strings.Contains(status, c.refused) {
					t.Fatalf("%s: want a refusal with %q, got %v: %s", c.reason, c.refused, err, status)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: want it admitted, got %v: %s", c.reason, err, got)
			}
			var object metav1.Object = &platform.WebApp{}
			if kind == "ApplicationRoute" {
				object = &networking.ApplicationRoute{}
			}
			if err := json.Unmarshal(got, object); err != nil {
				t.Fatalf("%s: admitted, and does not decode: %v", c.reason, err)
			}
		})
	}
}

// dedupe lets a case override a field of the frame around it: of two members of
// the same name the last one is kept. Numbers stay as they are written.
func dedupe(t *testing.T, object string) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
