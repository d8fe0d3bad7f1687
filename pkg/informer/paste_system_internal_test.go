package informer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

const gadgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.test.steadwatch.dev}
spec:
  group: test.steadwatch.dev
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {x-kubernetes-preserve-unknown-fields: true}
          status: {x-kubernetes-preserve-unknown-fields: true}
`

// Everything that does not fit a type, stored by a real API server, set aside by an
// informer, and mended by the commands of the record as a person pastes them: with
// each placeholder replaced by the example that it gives.
func TestSystemFixesArePasted(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	if err := cp.Apply(t.Context(), []byte(gadgetCRD)); err != nil {
		t.Fatal(err)
	}
	sh := cp.Shell(t)
	client := gadgetClientFor(t, cp.Config())
	i, err := New(Config[*gadget]{Resource: gadgetResource, ListerWatcher: Tolerant(client)})
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig())
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	var running sync.WaitGroup
	running.Go(func() { _ = i.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})

	type stored struct {
		title string
		key   cache.ObjectName
		bad   bool // as the typed client finds it
	}
	var all []stored
	refused := 0
	for title, c := range allFieldCases() {
		var parts map[string]json.RawMessage
		if json.Unmarshal([]byte(c.raw()), &parts) != nil || parts["spec"] == nil && parts["status"] == nil {
			continue // the API server checks metadata itself
		}
		s := stored{title: title, key: cache.NewObjectName("default", fmt.Sprintf("g%d", len(all)))}
		object := fmt.Sprintf(`{"apiVersion":"test.steadwatch.dev/v1","kind":"Gadget","metadata":{"name":%q,"namespace":"default","uid":%q,"creationTimestamp":"2026-01-01T00:00:00Z","generation":1}`, s.key.Name, "uid-"+s.key.Name)
		for _, part := range []string{"spec", "status"} {
			if parts[part] != nil {
				object += fmt.Sprintf(`,%q:%s`, part, parts[part])
			}
		}
		object += "}"
		// What the API server cannot read fails the LIST of the kind: not what this is
		// about.
		if err := client.Post().Namespace("default").Resource("gadgets").Param("dryRun", "All").Body([]byte(object)).Do(t.Context()).Error(); err != nil {
			refused++
			t.Logf("%s: %.100s", title, err)
			continue
		}
		if _, err := cp.EtcdPut(t.Context(), controlplane.EtcdKey(gadgetResource.GroupResource(), "default", s.key.Name), []byte(object)); err != nil {
			t.Fatal(err)
		}
		raw, err := client.Get().Namespace("default").Resource("gadgets").Name(s.key.Name).Do(t.Context()).Raw()
		if err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		_, err = typed(raw)
		s.bad = err != nil
		all = append(all, s)
	}
	state := func(s stored) string {
		_, cached, _ := i.Indexer().GetByKey(s.key.String())
		_, bad := i.Quarantined(s.key)
		return fmt.Sprintf("cached %v, bad %v", cached, bad)
	}
	wait := func(s stored, want string) {
		t.Helper()
		controlplane.Eventually(t, 30*time.Second, fmt.Sprintf("%s (%s)", s.title, s.key), func() (bool, string) {
			return state(s) == want, fmt.Sprintf("%s; %+v", state(s), i.Snapshot())
		})
	}
	for _, s := range all {
		wait(s, fmt.Sprintf("cached %v, bad %v", !s.bad, s.bad))
	}

	var pasting sync.WaitGroup
	slots := make(chan struct{}, 4)
	var mu sync.Mutex
	pasted, unknown := 0, 0
	records := map[cache.ObjectName]Quarantined{}
	for _, s := range all {
		if !s.bad {
			continue
		}
		record, _ := i.Quarantined(s.key)
		records[s.key] = record
		if len(record.Fix) == 0 {
			t.Errorf("%s: no command for %+v", s.title, record.Fields)
			continue
		}
		if strings.Contains(strings.Join(record.Fix, ""), "<JSON of") {
			unknown++ // only who wrote the type knows
			continue
		}
		pasting.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out, err := sh(fillIn(strings.Join(record.Fix, " && ")))
			mu.Lock()
			defer mu.Unlock()
			pasted += len(record.Fix)
			if err != nil {
				t.Errorf("%s: %s\n%v: %s", s.title, strings.Join(record.Fix, " && "), err, out)
			}
		})
	}
	pasting.Wait()
	for _, s := range all {
		before := records[s.key]
		controlplane.Eventually(t, 30*time.Second, s.title+" to be mended", func() (bool, string) {
			r, bad := i.Quarantined(s.key)
			// More bad fields than a record names: the next ones are named then.
			next := bad && len(before.Fields) == maxBadFields && r.Fields[0].Path != before.Fields[0].Path
			return next || state(s) == "cached true, bad false" || strings.Contains(strings.Join(before.Fix, ""), "<JSON of"), fmt.Sprint(r.Fields)
		})
	}
	t.Logf("%d objects, %d commands pasted, %d with values that only their author knows, %d that the API server cannot read", len(all), pasted, unknown, refused)
	if pasted < 60 {
		t.Errorf("only %d commands pasted", pasted)
	}
	if s := i.Snapshot(); s.Lists > 0 || s.Watches > 1 {
		t.Errorf("listed again: %+v", s)
	}
}

func gadgetClientFor(t testing.TB, cfg *rest.Config) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(gadgetVersion.WithKind("Gadget"), &gadget{})
	scheme.AddKnownTypeWithName(gadgetVersion.WithKind("GadgetList"), &gadgetList{})
	metav1.AddToGroupVersion(scheme, gadgetVersion)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.QPS = "/apis", -1
	cfg.ContentConfig = rest.ContentConfig{GroupVersion: &gadgetVersion, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()}
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// allFieldCases are those of the tests of the path finder, by title, hostile ones
// included.
func allFieldCases() func(yield func(string, fieldCase) bool) {
	return func(yield func(string, fieldCase) bool) {
		for _, cases := range []map[string]fieldCase{fieldCases, hostileCases} {
			titles := make([]string, 0, len(cases))
			for title := range cases {
				titles = append(titles, title)
			}
			slices.Sort(titles)
			for _, title := range titles {
				if !yield(title, cases[title]) {
					return
				}
			}
		}
	}
}
