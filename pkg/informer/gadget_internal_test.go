package informer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// gadget has a field of every kind that API types are made of.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   gadgetSpec   `json:"spec,omitempty"`
	Status gadgetStatus `json:"status,omitempty"`
}

type gadgetSpec struct {
	Inlined      `json:",inline"`
	*inlinedPtr  `json:",inline"`
	Interval     metav1.Duration              `json:"interval,omitempty"`
	Timeout      *metav1.Duration             `json:"timeout,omitempty"`
	Resources    gadgetResources              `json:"resources,omitempty"`
	Size         *resource.Quantity           `json:"size,omitempty"`
	At           metav1.Time                  `json:"at,omitempty"`
	Until        *metav1.Time                 `json:"until,omitempty"`
	Renew        metav1.MicroTime             `json:"renew,omitempty"`
	Replicas     int32                        `json:"replicas,omitempty"`
	Revision     int64                        `json:"revision,omitempty"`
	Percent      uint8                        `json:"percent,omitempty"`
	Ratio        float32                      `json:"ratio,omitempty"`
	Quoted       int                          `json:"quoted,omitempty,string"`
	Port         intstr.IntOrString           `json:"port,omitempty"`
	MaxSurge     *intstr.IntOrString          `json:"maxSurge,omitempty"`
	Enabled      bool                         `json:"enabled,omitempty"`
	Image        string                       `json:"image,omitempty"`
	Args         []string                     `json:"args,omitempty"`
	Matrix       [][]int32                    `json:"matrix,omitempty"`
	Triple       [3]int16                     `json:"triple,omitempty"`
	Labels       map[string]string            `json:"labels,omitempty"`
	ByPort       map[int32]string             `json:"byPort,omitempty"`
	Limits       map[string]resource.Quantity `json:"limits,omitempty"`
	Selector     *metav1.LabelSelector        `json:"selector,omitempty"`
	Backends     []gadgetBackend              `json:"backends,omitempty"`
	ByName       map[string]*gadgetBackend    `json:"byName,omitempty"`
	Data         []byte                       `json:"data,omitempty"`
	Free         map[string]any               `json:"free,omitempty"`
	Any          any                          `json:"any,omitempty"`
	Template     runtime.RawExtension         `json:"template,omitempty"`
	Raw          json.RawMessage              `json:"raw,omitempty"`
	Embedded     *unstructured.Unstructured   `json:"embedded,omitempty"`
	Steps        gadgetSteps                  `json:"steps,omitempty"`
	Wait         gadgetWait                   `json:"wait,omitempty"`
	Nameless     struct{ metav1.Duration }    `json:"nameless,omitempty"`
	Level        gadgetLevel                  `json:"level,omitempty"`
	Nested       *gadgetSpec                  `json:"nested,omitempty"`
	Untagged     int32
	unexported   int      //lint:ignore U1000 a decoder must leave it alone
	Untouchable_ chan int `json:"-"`
}

type gadgetStatus struct {
	Phase      string             `json:"phase,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type gadgetResources struct {
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
}

type gadgetBackend struct {
	Service string           `json:"service"`
	Weight  *int32           `json:"weight,omitempty"`
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Inlined and inlinedPtr contribute their fields to the struct they are in.
type Inlined struct {
	Inside int32  `json:"inside,omitempty"`
	Image  string `json:"image,omitempty"` // hidden by gadgetSpec's
}

type inlinedPtr struct {
	Beyond int32 `json:"beyond,omitempty"`
}

// gadgetSteps is a list of strings, or one string for a list of one.
type gadgetSteps []string

func (s *gadgetSteps) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*s = gadgetSteps{""}
		return json.Unmarshal(b, &(*s)[0])
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// gadgetWait decodes itself because of what it embeds.
type gadgetWait struct{ metav1.Duration }

// gadgetLevel decodes itself from text.
type gadgetLevel int

func (l *gadgetLevel) UnmarshalText(b []byte) error {
	switch string(b) {
	case "low":
		*l = 1
	case "high":
		*l = 2
	case "panic":
		panic("level")
	default:
		return fmt.Errorf("unknown level %q", b)
	}
	return nil
}

func (g *gadget) DeepCopyObject() runtime.Object {
	out := *g
	return &out
}

type gadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []gadget `json:"items"`
}

func (g *gadgetList) DeepCopyObject() runtime.Object {
	out := *g
	return &out
}

// richGadgets all decode. Quirks that decoders disagree about are among them.
var richGadgets = []string{
	`{"apiVersion":"test.steadwatch.dev/v1","kind":"Gadget","metadata":{"name":"plain","namespace":"ns","uid":"u1","resourceVersion":"7"}}`,
	`{"apiVersion":"test.steadwatch.dev/v1","kind":"Gadget","metadata":{"name":"rich","namespace":"ns","uid":"u2","resourceVersion":"8",
	  "generation":3,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a.b/c":"d"},"annotations":{"x\"y":"}{][\\","z":"ü\u00fc\ud83d\ude00"},
	  "finalizers":["a/b"],"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"o","uid":"u0","controller":true}],
	  "managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:interval":{},"k:{\"p\":\"]}\"}":{}}}}]},
	 "spec":{"interval":"1h30m","timeout":"-5s","resources":{"limits":{"cpu":"100m","memory":"1Gi"}},"size":12,"at":"2026-01-02T03:04:05+02:00","until":null,
	  "renew":"2026-01-02T03:04:05.123456Z","replicas":3,"revision":9007199254740993,"percent":255,"ratio":1.5,"quoted":"12","port":80,"maxSurge":"25%","enabled":true,
	  "image":"x","args":["a",""],"matrix":[[1],[],null],"triple":[1,2,3,4],"labels":{"k":null},"byPort":{"80":"http"},"limits":{"cpu":1},
	  "selector":{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]},"backends":[{"service":"s","weight":1,"timeout":"2s"},null],"byName":{"n":null,"m":{"service":"t"}},
	  "data":"aGk=","free":{"i":9007199254740993,"f":1.0,"e":1e3,"s":"x","n":null,"l":[1,{"a":[]}]},"any":[1,2.5],"template":{"any": "thing"},"raw":{"keep" : [ 1 ]},
	  "embedded":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}},"steps":"one","wait":"3s","nameless":{"Duration":5},"level":"high","inside":4,"Untagged":5,
	  "nested":{"interval":"1s","nested":{"steps":["a","b"]}}},"status":{"phase":"Ready","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"r","message":"m"}]}}`,
	`{"kind":"Gadget","metadata":{"name":"case","Name":"wrong"},"spec":{"Interval":"nonsense","REPLICAS":"x","interval":"1s","untagged":"x","unknown":{"a":[1,2,{"b":"}"}]}},"Spec":7}`,
	`{"kind":"Gadget","metadata":{"name":"twice","labels":{"a":"1"}},"metadata":{"labels":{"b":"2"}},"spec":{"replicas":1,"args":["a","b"]},"spec":{"args":["c"],"replicas":2}}`,
	`{"kind":"Gadget","metadata":null,"spec":{"interval":"0","size":null,"at":null,"replicas":null,"args":null,"timeout":null,"steps":null,"embedded":null,"raw":null,"template":null,"enabled":null,"image":null,"port":null}}`,
	"{\n\t\"metadata\" : { \"name\" : \"spaced\" } ,\r\n \"spec\" : { \"args\" : [ ] , \"free\" : { } }\n}",
	`{"\u006detadata":{"n\u0061me":"escaped","managed\u0046ields":[{"manager":"m"}]}}`,
	`{}`,
}

const bad = `{"apiVersion":"test.steadwatch.dev/v1","kind":"Gadget","metadata":{"name":"bad","namespace":"ns","uid":"u9","resourceVersion":"9"},"spec":{"interval":"360d"}}`

func listOf(items ...string) string {
	return `{"apiVersion":"test.steadwatch.dev/v1","kind":"GadgetList","metadata":{"resourceVersion":"100","continue":"more","remainingItemCount":5},"items":[` + strings.Join(items, ",") + `]}`
}

func gadgets(t testing.TB, keepManagedFields bool) *decoder {
	t.Helper()
	d, err := newDecoder(reflect.TypeFor[*gadget](), keepManagedFields)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// typed decodes one object as the typed client does, TypeMeta cleared.
func typed(raw []byte) (*gadget, error) {
	g := &gadget{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, g); err != nil {
		return nil, err
	}
	g.TypeMeta = metav1.TypeMeta{}
	return g, nil
}

func decodeList(d *decoder, r io.Reader) ([]item, metav1.ListMeta, error) {
	var items []item
	meta, err := d.list(context.Background(), io.NopCloser(r), func(i item) error {
		items = append(items, i)
		return nil
	})
	return items, meta, err
}

func decodeFrames(d *decoder, r io.Reader) ([]frame, error) {
	var frames []frame
	err := d.frames(context.Background(), io.NopCloser(r), func(f frame) error {
		frames = append(frames, f)
		return nil
	})
	return frames, err
}

// byN cuts what it reads into pieces of n bytes.
type byN struct {
	r io.Reader
	n int
}

func (b byN) Read(p []byte) (int, error) { return b.r.Read(p[:min(len(p), b.n)]) }

// compareItem fails unless got is what the typed client makes of raw.
func compareItem(t *testing.T, raw []byte, got item, keep bool) {
	t.Helper()
	want, err := typed(raw)
	if (got.object == nil) == (got.bad == nil) {
		t.Fatalf("item %+v: exactly one of object and bad must be set", got)
	}
	if err != nil {
		if got.bad == nil && !keep && strings.Contains(string(raw), "managed") {
			return // bad managedFields, which were dropped
		}
		if got.bad == nil {
			t.Fatalf("decoded what the typed client refuses (%v): %s", err, raw)
		}
		if len(got.bad.fields) == 0 {
			t.Fatalf("no bad field in %s", raw)
		}
		return
	}
	if got.bad != nil {
		t.Fatalf("refused what the typed client decodes: %v: %s", got.bad.err, raw)
	}
	if !keep {
		want.ManagedFields = nil
	}
	if !reflect.DeepEqual(want, got.object) {
		t.Fatalf("differs from the typed client (-typed +got): %s\nwant %#v\ngot  %#v", raw, want, got.object)
	}
}
