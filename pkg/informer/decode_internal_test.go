package informer

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewDecoderRefusesWhatIsNoObject(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[gadget](), reflect.TypeFor[*gadgetSpec](), reflect.TypeFor[string](), reflect.TypeFor[metav1.Object]()} {
		if _, err := newDecoder(typ, false); err == nil {
			t.Errorf("newDecoder(%v): no error", typ)
		}
	}
}

func TestManagedFieldsAreDroppedBeforeDecoding(t *testing.T) {
	// Not managedFields: decoding them would fail.
	raw := `{"kind":"Gadget","metadata":{"name":"n","managedFields":[{"time":"nonsense","fieldsV1":7}],"uid":"u"},"spec":{"replicas":2}}`
	got, err := gadgets(t, false).item([]byte(raw))
	if err != nil || got.bad != nil {
		t.Fatalf("got %+v, %v", got.bad, err)
	}
	want := &gadget{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}, Spec: gadgetSpec{Replicas: 2}}
	if !reflect.DeepEqual(want, got.object) {
		t.Errorf("want %+v, got %+v", want, got.object)
	}
	if got, _ = gadgets(t, true).item([]byte(raw)); got.bad == nil {
		t.Error("decoded in spite of its managedFields, which were to be kept")
	}
}

func TestBadItemKeepsItsMetadata(t *testing.T) {
	raw := `{"metadata":{"name":"n","namespace":"ns","uid":"u","resourceVersion":"7","generation":3,"labels":"x","annotations":{"a":1},
	 "creationTimestamp":"yesterday","deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["a/b",7,"c/d"],
	 "ownerReferences":[{"kind":"X","name":"o","uid":"u0","apiVersion":"v1"},{"kind":5},null]}}`
	got, err := gadgets(t, false).item([]byte(raw))
	if err != nil || got.bad == nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	deleted := metav1.Date(2026, 1, 2, 3, 4, 5, 0, metav1.Now().UTC().Location()).Local()
	want := metav1.ObjectMeta{
		Name: "n", Namespace: "ns", UID: "u", ResourceVersion: "7", Generation: 3,
		DeletionTimestamp: &metav1.Time{Time: deleted},
		Finalizers:        []string{"a/b", "c/d"},
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "o", UID: "u0"}},
	}
	if diff := cmp.Diff(want, got.bad.meta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if !got.bad.hasKey() {
		t.Error("hasKey is false")
	}
	for _, raw := range []string{`{"metadata":{"name":7}}`, `{"metadata":[]}`, `[]`, `7`, `"x"`, `{"spec":{"interval":7}}`} {
		got, err := gadgets(t, false).item([]byte(raw))
		if err != nil || got.bad == nil || got.bad.hasKey() {
			t.Errorf("%s: got %+v, %v, want a bad item without a key", raw, got, err)
		}
	}
}

func TestPanicInUnmarshalJSONIsABadItem(t *testing.T) {
	got, err := gadgets(t, false).item([]byte(`{"metadata":{"name":"n"},"spec":{"level":"panic"}}`))
	if err != nil || got.bad == nil || got.bad.fields[0].Path != "spec.level" {
		t.Errorf("got %+v, %v", got.bad, err)
	}
}

// Segments are used again: nothing decoded may point into them.
func TestObjectsDoNotShareTheSegment(t *testing.T) {
	raw := []byte(richGadgets[1])
	got, err := gadgets(t, true).item(raw)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] = 'x'
	}
	compareItem(t, []byte(richGadgets[1]), got, true)
}
