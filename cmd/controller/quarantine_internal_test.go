package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

// fakeQuarantine holds records in order.
type fakeQuarantine struct {
	resource string
	records  []informer.Quarantined
}

func (f fakeQuarantine) Snapshot() informer.Snapshot {
	return informer.Snapshot{Resource: f.resource, Quarantined: len(f.records)}
}

func (f fakeQuarantine) QuarantineList(limit int, after cache.ObjectName) (page []informer.Quarantined, more bool) {
	for _, r := range f.records {
		if r.Key.String() <= after.String() && after != (cache.ObjectName{}) {
			continue
		}
		if len(page) == limit {
			return page, true
		}
		page = append(page, r)
	}
	return page, false
}

func badObject(n int, fields ...informer.BadField) informer.Quarantined {
	return informer.Quarantined{
		Key: cache.NewObjectName("shop", fmt.Sprintf("web-%d", n)), UID: "u", ResourceVersion: "7", FirstSeen: time.Unix(1000, 0), LastSeen: time.Unix(2000, 0),
		Fields: fields, Fix: []string{fmt.Sprintf("kubectl patch webapps web-%d -n shop", n)},
	}
}

func TestQuarantineText(t *testing.T) {
	one := informer.BadField{Path: "spec.drainTimeout", Value: `"1"`, GoType: "*v1.Duration", Reason: "a unit is missing"}
	forged := informer.BadField{Path: "spec.image", Value: "\"a\n\tb\"", Reason: "x"}
	for name, tc := range map[string]struct{ reason, query, accept, want string }{
		"all": {"a line for each field, commands to copy", "?format=text", "", `webapps.platform.tejo.dev: 3 cannot be decoded

OBJECT      FIELD              VALUE   REASON             SINCE
shop/web-1  spec.drainTimeout  "1"     a unit is missing  1970-01-01T00:16:40Z
shop/web-2  spec.drainTimeout  "1"     a unit is missing  1970-01-01T00:16:40Z
            spec.image         "a  b"  x                  1970-01-01T00:16:40Z
shop/web-3  spec.drainTimeout  "1"     a unit is missing  1970-01-01T00:16:40Z

To mend them, with each <placeholder> replaced:

kubectl patch webapps web-1 -n shop
kubectl patch webapps web-2 -n shop
kubectl patch webapps web-3 -n shop
`},
		"page": {"with the way to the next", "?limit=1&after=shop/web-1", "text/plain", `webapps.platform.tejo.dev: 3 cannot be decoded

OBJECT      FIELD              VALUE   REASON             SINCE
shop/web-2  spec.drainTimeout  "1"     a unit is missing  1970-01-01T00:16:40Z
            spec.image         "a  b"  x                  1970-01-01T00:16:40Z

To mend them, with each <placeholder> replaced:

kubectl patch webapps web-2 -n shop

More with ?format=text&resource=webapps.platform.tejo.dev&after=shop/web-2
`},
		"none": {"good news in words", "?format=text&resource=services", "", "Every object can be decoded.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := quarantineHandler([]quarantineSource{
				fakeQuarantine{"webapps.platform.tejo.dev", []informer.Quarantined{badObject(1, one), badObject(2, one, forged), badObject(3, one)}},
				fakeQuarantine{"services", nil},
			})
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/quarantine"+tc.query, nil)
			req.Header.Set("Accept", tc.accept)
			w := httptest.NewRecorder()
			h(w, req)
			if diff := cmp.Diff(tc.want, w.Body.String()); diff != "" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
				t.Errorf("%s: %s (-want +got):\n%s", tc.reason, w.Header(), diff)
			}
		})
	}
}

func TestQuarantineJSON(t *testing.T) {
	h := quarantineHandler([]quarantineSource{fakeQuarantine{"webapps.platform.tejo.dev", []informer.Quarantined{
		badObject(1, informer.BadField{Path: "spec.drainTimeout", Value: `"1"`, GoType: "*v1.Duration", Reason: "a unit is missing"}), badObject(2)}}})
	w := httptest.NewRecorder()
	h(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/quarantine?limit=1", nil))
	var got []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	item := got[0]["items"].([]any)[0].(map[string]any)
	fields := item["fields"].([]any)[0].(map[string]any)
	if _, shown := item["key"]; shown || got[0]["objects"] != 2.0 || got[0]["more"] != true || item["object"] != "shop/web-1" ||
		fields["path"] != "spec.drainTimeout" || item["fix"].([]any)[0] != "kubectl patch webapps web-1 -n shop" {
		t.Errorf("got %s", w.Body)
	}
}

func TestQuarantineRefusesNonsense(t *testing.T) {
	for _, query := range []string{"limit=0", "limit=x", "after=a/b/c", "format=yaml"} {
		w := httptest.NewRecorder()
		quarantineHandler(nil)(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/quarantine?"+query, nil))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: answered with %d: %s", query, w.Code, w.Body)
		}
	}
}
