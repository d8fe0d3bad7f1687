package informer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	kjson "sigs.k8s.io/json"

	networking "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	platform "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// seeds are whole bodies, objects and fragments that are worth mutating.
func seeds(f *testing.F, wrap func(items ...string) string) {
	for _, n := range []int{1, 7, 1 << 16} {
		f.Add([]byte(wrap(richGadgets...)), n)
		f.Add([]byte(wrap(bad, richGadgets[1], "null", "7")), n)
		f.Add([]byte(wrap()), n)
	}
}

// FuzzScanList: whatever comes, a list is decoded as the typed client decodes it
// item by item, and the whole as the typed client decodes the whole.
func FuzzScanList(f *testing.F) {
	seeds(f, listOf)
	for _, body := range []string{
		`{"items":[{}],"items":[{}]}`, `{"kind":"Status","status":"Failure","code":410}`, `{"metadata":{"resourceVersion":"1"},"it\u0065ms":[{}, 1.5e3 ,"x"]}`,
		`{"items":[{"metadata":{"managedFields":[{"time":7}]}},{"metadata":{"managedFields":null}}],"kind":"GadgetList"}`,
	} {
		f.Add([]byte(body), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		pieces := byN{bytes.NewReader(body), max(n, 1)}
		got, meta, err := decodeList(gadgets(t, true), pieces)
		if err == nil && !json.Valid(body) {
			t.Fatal("accepted what is no JSON")
		}

		var raw struct {
			metav1.TypeMeta `json:",inline"`
			metav1.ListMeta `json:"metadata"`
			Items           *[]json.RawMessage `json:"items"`
		}
		wantErr := kjson.UnmarshalCaseSensitivePreserveInts(body, &raw)
		switch {
		case wantErr != nil:
			if err == nil {
				t.Fatalf("accepted what the typed client refuses: %v", wantErr)
			}
			return
		case err != nil && strings.Contains(err.Error(), "items twice"),
			err != nil && raw.Kind != "" && !strings.HasSuffix(raw.Kind, "List"),
			err != nil && (raw.Kind == "" || raw.ResourceVersion == "") && raw.Items == nil:
			return // refused on purpose
		case err != nil:
			t.Fatalf("refused what the typed client accepts: %v", err)
		}
		if !reflect.DeepEqual(raw.ListMeta, meta) {
			t.Fatalf("ListMeta %+v, want %+v", meta, raw.ListMeta)
		}
		var items []json.RawMessage
		if raw.Items != nil {
			items = *raw.Items
		}
		if len(got) != len(items) {
			t.Fatalf("%d items, want %d", len(got), len(items))
		}
		for i := range items {
			compareItem(t, items[i], got[i], true)
		}
		dropped, _, err := decodeList(gadgets(t, false), bytes.NewReader(body))
		if err != nil {
			t.Fatalf("error only where managedFields are dropped: %v", err)
		}
		for i := range items {
			compareItem(t, items[i], dropped[i], false)
		}

		var whole gadgetList
		if kjson.UnmarshalCaseSensitivePreserveInts(body, &whole) != nil {
			return
		}
		for i := range whole.Items {
			want := &whole.Items[i]
			want.TypeMeta = metav1.TypeMeta{}
			if !reflect.DeepEqual(want, got[i].object) {
				t.Fatalf("item %d differs from the whole list's:\nwant %#v\ngot  %#v", i, want, got[i].object)
			}
		}
	})
}

// FuzzWatchFrames: whatever comes, frames are those of client-go's framer and
// decoder up to the first that they refuse, but for what is tolerated on purpose.
func FuzzWatchFrames(f *testing.F) {
	seeds(f, func(items ...string) string {
		var b strings.Builder
		for i, item := range items {
			b.WriteString(frameOf([]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"}[i%5], item))
		}
		return b.String()
	})
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410}}{"kind":"Status","code":429} {"type":"ADDED","type":"DELETED","object":{}} `), 5)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		got, err := decodeFrames(gadgets(t, true), byN{bytes.NewReader(body), max(n, 1)})
		framer := json.NewDecoder(bytes.NewReader(body))
		for i := 0; ; i++ {
			var value json.RawMessage
			frameErr := framer.Decode(&value)
			if frameErr == io.EOF {
				if err != nil || len(got) != i {
					t.Fatalf("%d frames and %v, want %d", len(got), err, i)
				}
				return
			}
			var event metav1.WatchEvent
			if frameErr == nil {
				frameErr = kjson.UnmarshalCaseSensitivePreserveInts(value, &event)
			}
			if frameErr == nil && len(got) > i && got[i].status != nil && event.Type == "" {
				continue // a Status in place of a frame
			}
			if frameErr == nil && (event.Object.Raw == nil || event.Type == "") {
				frameErr = errors.New("incomplete")
			}
			switch watch.EventType(event.Type) {
			case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
			default:
				if frameErr == nil {
					frameErr = errors.New("unknown type")
				}
			}
			if frameErr != nil {
				if err == nil || len(got) != i {
					t.Fatalf("%d frames and %v, want %d and an error (%v)", len(got), err, i, frameErr)
				}
				return
			}
			if len(got) <= i {
				t.Fatalf("frame %d is missing (%v): %s", i, err, value)
			}
			g := got[i]
			if string(g.event) != event.Type {
				t.Fatalf("frame %d is %s, want %s", i, g.event, event.Type)
			}
			switch g.event {
			case watch.Error:
				if g.status == nil || g.status.Status != metav1.StatusFailure {
					t.Fatalf("frame %d: no failure: %+v", i, g.status)
				}
			case watch.Bookmark:
				if g.item.object == nil {
					t.Fatalf("frame %d: a bad bookmark", i)
				}
				if _, err := typed(event.Object.Raw); err == nil {
					compareItem(t, event.Object.Raw, g.item, true)
				}
			default:
				compareItem(t, event.Object.Raw, g.item, true)
			}
		}
	})
}

// FuzzFindBadFields: an object decodes if, and only if, nothing in it is bad.
func FuzzFindBadFields(f *testing.F) {
	for _, raw := range append(richGadgets, bad, `7`, `null`, `{"spec":{"backends":[{"weight":"1"}],"byPort":{"x":"y"},"free":{"a":1e999},"nameless":"1s","level":3,"quoted":1}}`, `{"spec":{"interval":"x","triple":[1,2,3,"x"]}}`) {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		_, err := typed(raw)
		fields := findBadFields(raw, reflect.TypeFor[gadget]())
		if (err == nil) != (len(fields) == 0) {
			t.Fatalf("decoding says %v, found %+v", err, fields)
		}
		if len(fields) > maxBadFields {
			t.Fatalf("%d fields", len(fields))
		}
		for _, field := range fields {
			if field.GoType == "" || field.Reason == "" || field.Value == "" {
				t.Fatalf("incomplete: %+v", field)
			}
			if len(field.Value) > maxFieldText+20 || len(field.Reason) > maxFieldText+20 || len(field.steps) > maxFieldDepth {
				t.Fatalf("unbounded: %+v", field)
			}
		}
		kind, patch := fixPatch(fields)
		if (patch == "") != (len(fields) == 0 || fields[0].Path == "" && len(fields) == 1) {
			t.Fatalf("patch %q for %+v", patch, fields)
		}
		if filled := fillIn(patch); kind != "" && !strings.Contains(filled, "<JSON of") && !json.Valid([]byte(filled)) && !strings.ContainsAny(string(raw), "<>") {
			t.Fatalf("no JSON once filled in: %s", filled)
		}
	})
}

// FuzzFast: what a plan takes is what the typed client's decoder makes of it,
// for types of all shapes. The other targets cover it too, but mostly mutate
// what is around the objects.
func FuzzFast(f *testing.F) {
	types := []reflect.Type{
		reflect.TypeFor[gadget](), reflect.TypeFor[networking.ApplicationRoute](), reflect.TypeFor[platform.WebApp](),
		reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.Secret](), reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.Status](),
	}
	for _, raw := range richGadgets {
		f.Add([]byte(raw))
	}
	for i, typ := range types {
		g := generator{rand.New(rand.NewPCG(uint64(i), 0))}
		f.Add(g.value(typ, 0))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, typ := range types {
			compareFast(t, raw, typ)
		}
		if valid := ignore.fast(raw, reflect.Value{}); valid && !json.Valid(raw) {
			t.Fatal("accepted what is no JSON")
		}
	})
}
