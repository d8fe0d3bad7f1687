package informer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
		"Discovery":       {reason: "client-go sees an empty list, which would delete everything", body: `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"test.steadwatch.dev/v1","resources":[]}`, err: "without items and resource version"},
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
