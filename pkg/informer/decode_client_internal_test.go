package informer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

var gadgetVersion = schema.GroupVersion{Group: "test.steadwatch.dev", Version: "v1"}

// gadgetClient is a REST client as generated clientsets make them.
func gadgetClient(t testing.TB, handler http.HandlerFunc) *rest.RESTClient {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(gadgetVersion.WithKind("Gadget"), &gadget{})
	scheme.AddKnownTypeWithName(gadgetVersion.WithKind("GadgetList"), &gadgetList{})
	metav1.AddToGroupVersion(scheme, gadgetVersion)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	client, err := rest.RESTClientFor(&rest.Config{
		Host: server.URL, APIPath: "/apis", QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &gadgetVersion, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// withKind are the objects that a watch of client-go accepts: it refuses those
// that do not say what they are.
func withKind() []string {
	var out []string
	for _, raw := range richGadgets {
		if strings.Contains(raw, `"apiVersion":"`+gadgetVersion.String()) {
			out = append(out, raw)
		}
	}
	return append(out, out...)
}

func TestEqualsRESTClient(t *testing.T) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, listOf(richGadgets...))
			return
		}
		for _, raw := range withKind() {
			fmt.Fprint(w, frameOf("MODIFIED", raw))
			w.(http.Flusher).Flush()
		}
	}
	client := gadgetClient(t, serve)

	t.Run("list", func(t *testing.T) {
		var want gadgetList
		if err := client.Get().Resource("gadgets").Do(t.Context()).Into(&want); err != nil {
			t.Fatal(err)
		}
		body, err := client.Get().Resource("gadgets").Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []gadget
		meta, err := gadgets(t, true).list(t.Context(), body, func(i item) error {
			got = append(got, *i.object.(*gadget))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Items { // kept on the items of custom resources only
			want.Items[i].TypeMeta = metav1.TypeMeta{}
		}
		if !reflect.DeepEqual(want, gadgetList{ListMeta: meta, Items: got}) {
			t.Errorf("want %+v\ngot %+v", want, got)
		}
	})
	t.Run("watch", func(t *testing.T) {
		opts := &metav1.ListOptions{Watch: true}
		w, err := client.Get().Resource("gadgets").VersionedParams(opts, metav1.ParameterCodec).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var want []runtime.Object
		for event := range w.ResultChan() {
			want = append(want, event.Object)
		}
		body, err := client.Get().Resource("gadgets").VersionedParams(opts, metav1.ParameterCodec).Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []runtime.Object
		if err := gadgets(t, true).frames(t.Context(), body, func(f frame) error {
			got = append(got, f.item.object)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(want) != len(withKind()) || !reflect.DeepEqual(want, got) {
			t.Errorf("want %d %+v\ngot %d %+v", len(want), want, len(got), got)
		}
	})
}

// The point of it all: client-go refuses the list that has one bad object.
func TestOneBadObject(t *testing.T) {
	client := gadgetClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, listOf(richGadgets[0], bad, richGadgets[1]))
	})
	if err := client.Get().Resource("gadgets").Do(t.Context()).Into(&gadgetList{}); err == nil {
		t.Error("client-go decodes it: this test shows nothing")
	}
	body, err := client.Get().Resource("gadgets").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	items, _, err := decodeList(gadgets(t, false), body)
	if err != nil || len(items) != 3 || items[0].bad != nil || items[1].bad == nil || items[2].bad != nil {
		t.Fatalf("got %+v, %v", items, err)
	}
	b := items[1].bad
	if b.meta.Name != "bad" || len(b.fields) != 1 || b.fields[0].Path != "spec.interval" || b.fields[0].Value != `"360d"` || b.fields[0].GoType != "v1.Duration" {
		t.Errorf("got %+v", b)
	}
}
