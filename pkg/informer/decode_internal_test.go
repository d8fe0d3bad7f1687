package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
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

func TestNewDecoderRefusesWhatIsNoObject(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[gadget](), reflect.TypeFor[*gadgetSpec](), reflect.TypeFor[string](), reflect.TypeFor[metav1.Object]()} {
		if _, err := newDecoder(typ, false); err == nil {
			t.Errorf("newDecoder(%v): no error", typ)
		}
	}
}

// Every good item is what the typed client makes of it; the bad ones between
// them cost only themselves. In one piece, in pieces and byte by byte.
func TestListEqualsTypedClient(t *testing.T) {
	items := append([]string{bad}, richGadgets...)
	items = append(items, `{"metadata":{"name":"filler"},"spec":{"image":"`+strings.Repeat("x", 3*segmentBytes)+`"}}`, bad, `7`, `null`)
	for range 200 {
		items = append(items, richGadgets[1], bad)
	}
	body := listOf(items...)
	for name, r := range map[string]io.Reader{
		"whole":        strings.NewReader(body),
		"pieces":       byN{strings.NewReader(body), 1000},
		"bytes":        iotest.OneByteReader(strings.NewReader(body)),
		"data and EOF": iotest.DataErrReader(strings.NewReader(body)),
	} {
		for _, keep := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/managedFields=%v", name, keep), func(t *testing.T) {
				if seeker, ok := r.(io.Seeker); ok {
					_, _ = seeker.Seek(0, io.SeekStart)
				} else if !keep {
					r = byN{strings.NewReader(body), 7}
				}
				got, meta, err := decodeList(gadgets(t, keep), r)
				if err != nil {
					t.Fatal(err)
				}
				five := int64(5)
				if diff := cmp.Diff(metav1.ListMeta{ResourceVersion: "100", Continue: "more", RemainingItemCount: &five}, meta); diff != "" {
					t.Errorf("ListMeta (-want +got):\n%s", diff)
				}
				if len(got) != len(items) {
					t.Fatalf("%d items, want %d", len(got), len(items))
				}
				for i, raw := range items {
					compareItem(t, []byte(raw), got[i], keep)
				}
			})
		}
	}
}

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

func TestList(t *testing.T) {
	status := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410,"details":{"retryAfterSeconds":7}}`
	cases := map[string]struct {
		reason string
		body   string
		items  int
		meta   metav1.ListMeta
		err    string // "" for none
	}{
		"Empty":           {reason: "a list without items is a list", body: listOf(), meta: metav1.ListMeta{ResourceVersion: "100", Continue: "more", RemainingItemCount: new(int64(5))}},
		"NullItems":       {reason: "built-in types write an empty list so", body: `{"kind":"GadgetList","items":null}`},
		"NoItems":         {reason: "its kind says that it is a list", body: `{"kind":"GadgetList","metadata":{"resourceVersion":"1"}}`, meta: metav1.ListMeta{ResourceVersion: "1"}},
		"NoKind":          {reason: "its items say that it is a list", body: `{"items":[{}]}`, items: 1},
		"ItemsFirst":      {reason: "members come in any order", body: `{"items":[{},{}],"metadata":{"resourceVersion":"1"},"kind":"GadgetList"}`, items: 2, meta: metav1.ListMeta{ResourceVersion: "1"}},
		"EscapedKey":      {reason: "a key may be escaped", body: `{"it\u0065ms":[{}],"kind":"GadgetList"}`, items: 1},
		"WrongCase":       {reason: "names are case-sensitive", body: `{"Items":[{},{}],"kind":"GadgetList","items":[{}]}`, items: 1},
		"Spaces":          {reason: "white space is free", body: " \n{ \"items\" :\t[ {} ,\r\n{ } ] , \"kind\" : \"GadgetList\" }\n ", items: 2},
		"Unknown":         {reason: "unknown members are skipped", body: `{"kind":"GadgetList","x":[{"items":[1]},"]}"],"items":[{}],"y":1.5e3}`, items: 1},
		"MetadataTwice":   {reason: "the typed client merges them", body: `{"metadata":{"resourceVersion":"1","continue":"c"},"metadata":{"resourceVersion":"2"},"items":[]}`, meta: metav1.ListMeta{ResourceVersion: "2", Continue: "c"}},
		"ItemsTwice":      {reason: "the typed client would mix the two", body: `{"items":[{}],"items":[{}]}`, err: "items twice"},
		"ItemsString":     {reason: "not a list", body: `{"items":"x"}`, err: "items are"},
		"ItemsObject":     {reason: "not a list", body: `{"items":{}}`, err: "items are"},
		"Nothing":         {reason: "0 bytes are no list", body: ``, err: "unexpected EOF"},
		"EmptyObject":     {reason: "the typed client sees an empty list, which would delete everything", body: `{}`, err: "neither a kind nor items"},
		"Null":            {reason: "as above", body: `null`, err: "expected"},
		"Table":           {reason: "another kind", body: `{"kind":"Table","rows":[]}`, err: `"Table" came`},
		"HTML":            {reason: "a proxy's page", body: "<html><body>502</body></html>", err: `"<`},
		"R23Status":       {reason: "a Status with 200 is an API error", body: status, err: "too old"},
		"R23StatusPretty": {reason: "however it is printed", body: "{\n  \"kind\": \"Status\",\n  \"status\": \"Failure\",\n  \"code\": 429,\n  \"message\": \"slow down\"\n}", err: "slow down"},
		"StatusSuccess":   {reason: "client-go sees an empty list, which would delete everything", body: `{"kind":"Status","status":"Success"}`, err: "instead of objects"},
		"StatusOdd":       {reason: "a Status that does not decode is an error still", body: `{"kind":"Status","code":"x"}`, err: "read the status"},
		"KindNoString":    {reason: "no list", body: `{"kind":1,"items":[]}`, err: "without its items"},
		"BadListMeta":     {reason: "paging cannot go on", body: `{"metadata":{"remainingItemCount":"x"},"items":[]}`, err: "without its items"},
		"Truncated":       {reason: "cut within an item", body: listOf(richGadgets...)[:400], err: "unexpected EOF"},
		"TruncatedAfter":  {reason: "cut after an item", body: `{"items":[{}`, err: "unexpected EOF"},
		"TruncatedEnd":    {reason: "the last byte is missing", body: `{"items":[{}]`, err: "unexpected EOF"},
		"Trailing":        {reason: "more than one value", body: `{"items":[]} {}`, err: "after the list"},
		"BadLiteral":      {reason: "malformed within an item", body: `{"items":[{"spec":{"enabled":tru}}]}`, err: "malformed"},
		"BadBrackets":     {reason: "malformed within an item", body: `{"items":[{"spec":[}]}]}`, err: "malformed"},
		"BadManaged":      {reason: "malformed within what is dropped", body: `{"items":[{"metadata":{"managedFields":[{"a":tru}]}}]}`, err: "managedFields"},
		"BadOutside":      {reason: "malformed beside the items", body: `{"x":tru,"items":[]}`, err: "malformed"},
		"MissingComma":    {reason: "malformed between items", body: `{"items":[{} {}]}`, err: "expected"},
		"TrailingComma":   {reason: "malformed", body: `{"items":[{},]}`, err: "value was expected"},
		"TrailingComma2":  {reason: "malformed", body: `{"items":[{}],}`, err: "expected"},
		"MissingColon":    {reason: "malformed", body: `{"items" [{}]}`, err: "expected"},
		"KeyNoString":     {reason: "malformed", body: `{items:[]}`, err: "key expected"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 1 << 20} {
				items, meta, err := decodeList(gadgets(t, false), byN{strings.NewReader(tc.body), n})
				if tc.err != "" {
					if err == nil || !strings.Contains(err.Error(), tc.err) {
						t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				if len(items) != tc.items {
					t.Errorf("%s: %d items, want %d", tc.reason, len(items), tc.items)
				}
				if diff := cmp.Diff(tc.meta, meta); diff != "" {
					t.Errorf("%s: ListMeta (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
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

func TestListStops(t *testing.T) {
	long := listOf(strings.Repeat(richGadgets[0]+",", 20000) + "{}")
	t.Run("yield", func(t *testing.T) {
		stop := errors.New("stop")
		n := 0
		_, err := gadgets(t, false).list(t.Context(), io.NopCloser(strings.NewReader(long)), func(item) error {
			if n++; n == 3 {
				return stop
			}
			return nil
		})
		if err != stop || n != 3 {
			t.Errorf("got %v after %d items", err, n)
		}
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, long[:1<<20]) // and then nothing
		}()
		done := make(chan error)
		go func() {
			_, err := gadgets(t, false).list(ctx, r, func(item) error { return nil })
			done <- err
		}()
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("got %v", err)
		}
	})
	t.Run("reader", func(t *testing.T) {
		broken := errors.New("broken")
		_, _, err := decodeList(gadgets(t, false), io.MultiReader(strings.NewReader(long[:1<<20]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}

// A consumer that does not keep up holds the reader back.
func TestLookAheadIsBounded(t *testing.T) {
	body := listOf(strings.Repeat(richGadgets[0]+",", 200000) + "{}")
	r := &counter{r: strings.NewReader(body)}
	most := 0
	_, err := gadgets(t, false).list(t.Context(), io.NopCloser(r), func() func(item) error {
		n, size := 0, len(richGadgets[0])+1
		return func(item) error {
			n++
			most = max(most, r.read()-n*size)
			return nil
		}
	}())
	if err != nil {
		t.Fatal(err)
	}
	// One segment is being filled, one has just been waited for.
	if limit := lookAheadBytes + 4*segmentBytes; most > limit {
		t.Errorf("read %d bytes ahead of %d, limit %d", most, len(body), limit)
	}
}

func TestSegmentCapacityIsNotShared(t *testing.T) {
	s := &source{r: bytes.NewReader([]byte(`{"items":[{"a":1},{"b":2}]}`)), fresh: freshSegment}
	if _, _, err := scanList(s); err != nil || len(s.values) != 2 {
		t.Fatalf("%d values, %v", len(s.values), err)
	}
	if v := s.values[1]; string(s.buf[v.start:v.end]) != `{"b":2}` {
		t.Errorf("second value is %s", s.buf[v.start:v.end])
	}
}
