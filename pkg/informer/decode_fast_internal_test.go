package informer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubernetes "k8s.io/client-go/kubernetes/scheme"

	networking "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/scheme"
)

// compareFast fails if the plan takes raw and makes anything else of it than
// the typed client's decoder. It returns whether it took it.
func compareFast(t *testing.T, raw []byte, typ reflect.Type) bool {
	t.Helper()
	got := reflect.New(typ)
	if !planOf(typ).fast(slices.Clone(raw), got.Elem()) {
		return false
	}
	want := reflect.New(typ)
	if err := unmarshal(raw, want.Interface()); err != nil {
		t.Fatalf("took as a %v what the typed client refuses (%v): %s", typ, err, raw)
	}
	if !reflect.DeepEqual(want.Interface(), got.Interface()) {
		t.Fatalf("a %v differs from the typed client's: %s\nwant %#v\ngot  %#v", typ, raw, want, got)
	}
	return true
}

// Every kind of Kubernetes and of ours, with values in every field, then with
// some bytes changed.
func TestFastEqualsTypedClient(t *testing.T) {
	types := []reflect.Type{reflect.TypeFor[gadget]()}
	for _, s := range []*runtime.Scheme{kubernetes.Scheme, scheme.Scheme} {
		types = slices.AppendSeq(types, maps.Values(s.AllKnownTypes()))
	}
	slices.SortFunc(types, func(a, b reflect.Type) int { return strings.Compare(a.String(), b.String()) })
	types = slices.Compact(types)

	mutants, taken := 0, 0
	for _, typ := range types {
		if reflect.PointerTo(typ).Implements(unmarshalerType) || !reflect.PointerTo(typ).Implements(reflect.TypeFor[object]()) {
			continue
		}
		for seed := range uint64(4) {
			g := generator{rand.New(rand.NewPCG(seed, 13))}
			raw := g.value(typ, 0)
			if !json.Valid(raw) {
				t.Fatalf("the test's own JSON of a %v is none: %s", typ, raw)
			}
			if !compareFast(t, raw, typ) {
				t.Errorf("declined a plain %v (%v): %s", typ, unmarshal(raw, reflect.New(typ).Interface()), raw)
			}
			for range 20 {
				mutants++
				if compareFast(t, g.mutate(raw), typ) {
					taken++
				}
			}
		}
	}
	t.Logf("%d types, took %d of %d mutants", len(types), taken, mutants)
}

// generator writes JSON along a Go type.
type generator struct{ *rand.Rand }

func (g generator) pick(from ...string) []byte { return []byte(from[g.IntN(len(from))]) }

func (g generator) value(t reflect.Type, depth int) []byte {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return g.pick(`"2026-11-29T10:00:00Z"`, `"2024-02-29T23:59:59+02:00"`, `null`, `"2026-11-29T10:00:00.123456Z"`)
	case reflect.TypeFor[metav1.MicroTime]():
		return g.pick(`"2026-11-29T10:00:00.123456Z"`, `null`)
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[gadgetWait]():
		return g.pick(`"1h30m"`, `"0s"`, `"1.5s"`)
	case reflect.TypeFor[resource.Quantity]():
		return g.pick(`"100m"`, `"1Gi"`, `1`, `null`)
	case reflect.TypeFor[intstr.IntOrString]():
		return g.pick(`80`, `"http"`)
	case reflect.TypeFor[gadgetLevel]():
		return g.pick(`"low"`, `"high"`)
	case reflect.TypeFor[gadgetSteps]():
		return g.pick(`"one"`, `["a","b"]`)
	case reflect.TypeFor[unstructured.Unstructured]():
		return g.pick(`{"kind":"X","apiVersion":"v1"}`)
	}
	if depth > 6 {
		return []byte(`null`)
	}
	if planOf(t).self && t.Kind() != reflect.Pointer {
		return g.pick(`null`, `{"a":[1,2.5,"x"]}`)
	}
	switch t.Kind() {
	case reflect.Pointer:
		if g.IntN(8) == 0 {
			return []byte(`null`)
		}
		return g.value(t.Elem(), depth)
	case reflect.String:
		return g.pick(`""`, `"plain"`, `"esc\"\\\/\b\f\n\r\t"`, `"\u003ca\u0026b\u003e"`, `"héllo ✓ 𝄞"`, `"a longer one than is kept for the next time"`, `"x"`)
	case reflect.Bool:
		return g.pick(`true`, `false`)
	case reflect.Float32, reflect.Float64:
		return g.pick(`0`, `-1.5`, `2e3`, `0.1`)
	case reflect.Struct:
		var members []string
		fields := jsonFields(t)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			f := fields[name]
			if f.quoted || planOf(f.typ).op == opDecline || throughPointer(t, f.index) || depth > 1 && g.IntN(3) == 0 {
				continue
			}
			value := g.value(f.typ, depth+1)
			members = append(members, fmt.Sprintf(`"%s":%s`, name, value))
		}
		if g.IntN(2) == 0 {
			g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		}
		if g.IntN(4) == 0 {
			members = append(members, ` "unknown" : [ { } , "x" , 1 ]`)
		}
		return []byte("{" + strings.Join(members, ",") + "}")
	case reflect.Map:
		key := "k"
		if isInt(t.Key().Kind()) {
			key = "7"
		}
		return fmt.Appendf(nil, `{"%s":%s,"%s1":%s}`, key, g.value(t.Elem(), depth+1), key, g.value(t.Elem(), depth+1))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return g.pick(`"aGVsbG8="`, `""`, `null`)
		}
		fallthrough
	case reflect.Array:
		var values [][]byte
		for range g.IntN(4) {
			values = append(values, g.value(t.Elem(), depth+1))
		}
		return slices.Concat([]byte("["), bytes.Join(values, []byte(" , ")), []byte("]"))
	case reflect.Interface:
		return g.pick(`1`, `1.0`, `9007199254740993`, `"x"`, `{"a":[1,null]}`, `null`)
	default: // integers
		return g.pick(`0`, `1`, `100`, `42`)
	}
}

var fragments = []string{
	`null`, `""`, `{}`, `[]`, `7`, `-7`, `-0`, `01`, `1.0`, `1e2`, `1.`, `-`, `99999999999999999999`, `300`, `"7"`, `true`, `tru`, `"\ud834\udd1e"`, `"\ud834"`, `"\x"`, "\"\xff\"", "\"\x01\"",
	`,`, `:`, `"`, `\`, ` `, "\n", "\v", `{`, `}`, `[`, `]`, `"metadata":{},`, `"name":"twice",`, `"n\u0061me":"x",`, `"NAME":"x",`, "\x00", `é`,
}

// mutate puts a fragment in place of some bytes.
func (g generator) mutate(raw []byte) []byte {
	from := g.IntN(len(raw) + 1)
	if g.IntN(2) == 0 { // at the beginning of a value or a key
		if i := bytes.IndexAny(raw[from:], `:,[{`); i >= 0 {
			from += i + 1
		}
	}
	to := min(len(raw), from+g.IntN(4))
	if g.IntN(2) == 0 {
		if end, err := skipValue(raw, min(from, len(raw))); err == nil {
			to = end
		}
	}
	return slices.Concat(raw[:from], []byte(fragments[g.IntN(len(fragments))]), raw[max(to, from):])
}

func TestFast(t *testing.T) {
	type named struct {
		S string                `json:"s"`
		P *string               `json:"p"`
		I int8                  `json:"i"`
		U uint16                `json:"u"`
		F float32               `json:"f"`
		B []byte                `json:"b"`
		L []string              `json:"l"`
		M map[string]string     `json:"m"`
		N map[string]*named2    `json:"n"`
		T metav1.Time           `json:"t"`
		D *metav1.Duration      `json:"d"`
		V metav1.Duration       `json:"v"`
		A any                   `json:"a"`
		X map[gadgetLevel]int   `json:"x"`
		Z struct{ metav1.Time } `json:"z"`
		Q int                   `json:"q,string"`
	}
	cases := map[string]struct {
		reason string
		raw    string
		taken  bool
	}{
		"Empty":         {reason: "nothing set", raw: `{}`, taken: true},
		"Null":          {reason: "leaves the object alone", raw: `null`, taken: true},
		"Nulls":         {reason: "leave zero values", raw: `{"s":null,"p":null,"i":null,"f":null,"b":null,"l":null,"m":null,"n":null,"t":null,"d":null,"a":null}`, taken: true},
		"NullValue":     {reason: "its UnmarshalJSON refuses it", raw: `{"v":null}`},
		"NullElements":  {reason: "count", raw: `{"l":[null],"m":{"a":null},"n":{"a":null}}`, taken: true},
		"EmptyNotNil":   {reason: "[] is not null", raw: `{"l":[],"m":{},"n":{},"b":""}`, taken: true},
		"Spaces":        {reason: "white space is free", raw: "\t{ \"s\" : \"x\" , \"l\" : [ \"a\" , \"b\" ] }\r\n", taken: true},
		"Escapes":       {reason: "frequent in annotations", raw: `{"s":"\"\\\/\b\f\n\r\t\u003c\u00e9","m":{"\"k":"\n"}}`, taken: true},
		"UTF8":          {reason: "frequent in messages", raw: `{"s":"é✓𝄞","m":{"é":"é"}}`, taken: true},
		"Unknown":       {reason: "skipped", raw: `{"x1":{"a":[1,-2.5e+3,"\ud834",true,false,null]},"S":"x"}`, taken: true},
		"UnknownTwice":  {reason: "nothing depends on it", raw: `{"x1":1,"x1":2}`, taken: true},
		"MapTwice":      {reason: "the last one counts", raw: `{"m":{"a":"1","a":"2"}}`, taken: true},
		"Surrogates":    {reason: "rare", raw: `{"s":"\ud834\udd1e"}`},
		"BadUTF8":       {reason: "replaced by the typed client", raw: "{\"s\":\"\xff\"}"},
		"Twice":         {reason: "the typed client merges", raw: `{"l":["a"],"l":[]}`},
		"EscapedKey":    {reason: "rare", raw: `{"\u0073":"x"}`},
		"OutOfRange":    {reason: "does not fit", raw: `{"i":128}`},
		"Negative":      {reason: "does not fit", raw: `{"u":-0}`},
		"Fraction":      {reason: "does not fit", raw: `{"i":1.0}`},
		"FloatRange":    {reason: "does not fit", raw: `{"f":1e39}`},
		"Quoted":        {reason: "the option string", raw: `{"q":"1"}`},
		"Unquoted":      {reason: "refused by the option string", raw: `{"q":1}`},
		"Nameless":      {reason: "heeded in some places only", raw: `{"z":"2026-11-29T10:00:00Z"}`},
		"Wrong":         {reason: "does not fit", raw: `{"s":1}`},
		"TextKeys":      {reason: "left to the typed client's decoder", raw: `{"x":{"low":1}}`, taken: true},
		"Any":           {reason: "left to the typed client's decoder", raw: `{"a":{"b":9007199254740993}}`, taken: true},
		"Trailing":      {reason: "no JSON", raw: `{} {}`},
		"TrailingComma": {reason: "no JSON", raw: `{"l":["a",]}`},
		"LeadingZero":   {reason: "no JSON", raw: `{"i":01}`},
		"Control":       {reason: "no JSON", raw: "{\"s\":\"\n\"}"},
		"BadSkipped":    {reason: "no JSON in what is skipped", raw: `{"x1":[tru]}`},
		"BadEscape":     {reason: "no JSON in what is skipped", raw: `{"x1":"\u12g4"}`},
		"NUL":           {reason: "no JSON", raw: "{}\x00"},
		"Nothing":       {reason: "no JSON", raw: ``},
		"Half":          {reason: "no JSON", raw: `{"s":"x"`},
		"Deep":          {reason: "the limit is the typed client's", raw: `{"x1":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := compareFast(t, []byte(tc.raw), reflect.TypeFor[named]()); got != tc.taken {
				t.Errorf("%s: taken is %v, want %v", tc.reason, got, tc.taken)
			}
		})
	}
}

type named2 struct {
	S string `json:"s"`
}

// What makes the difference in speed: objects as the API server sends them are
// taken, whether or not managedFields are kept.
func TestFastTakesWhatIsUsual(t *testing.T) {
	body := routes(t, 0, true)
	for _, keep := range []bool{false, true} {
		d, err := newDecoder(reflect.TypeFor[*networking.ApplicationRoute](), keep)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		for _, raw := range list.Items[:100] {
			if !d.plan.fast(raw, reflect.New(d.typ).Elem()) {
				t.Fatalf("keepManagedFields=%v: declined %s", keep, raw)
			}
		}
	}
}
