package informer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// counter counts what is read through it.
type counter struct {
	r io.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counter) read() int { return int(c.n.Load()) }

func frameOf(event, object string) string {
	return `{"type":"` + event + `","object":` + object + "}\n"
}

func TestFramesEqualTypedClient(t *testing.T) {
	var body strings.Builder
	var raws []string
	for i := range 300 {
		raw := append(richGadgets, bad)[i%(len(richGadgets)+1)]
		raws = append(raws, raw)
		body.WriteString(frameOf("ADDED", raw))
	}
	for _, n := range []int{1, 100, 1 << 20} {
		frames, err := decodeFrames(gadgets(t, true), byN{strings.NewReader(body.String()), n})
		if err != nil || len(frames) != len(raws) {
			t.Fatalf("%d frames of %d, %v", len(frames), len(raws), err)
		}
		for i, f := range frames {
			if f.event != watch.Added || f.status != nil {
				t.Fatalf("frame %d is %+v", i, f)
			}
			compareItem(t, []byte(raws[i]), f.item, true)
		}
	}
}

func TestFrames(t *testing.T) {
	status := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410,"details":{"retryAfterSeconds":7}}`
	good := `{"metadata":{"name":"n","resourceVersion":"5"}}`
	end := `{"kind":"Gadget","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}%s}`
	cases := map[string]struct {
		reason string
		body   string
		want   string
		err    string
	}{
		"Nothing":         {reason: "a watch without news ends so", body: "", want: ""},
		"NewlinesOnly":    {reason: "white space is no frame", body: "\n \n", want: ""},
		"All":             {reason: "every type", body: frameOf("ADDED", good) + frameOf("MODIFIED", good) + frameOf("DELETED", good) + frameOf("BOOKMARK", good), want: "ADDED n@5, MODIFIED n@5, DELETED n@5, BOOKMARK n@5"},
		"NoNewline":       {reason: "values frame themselves", body: strings.ReplaceAll(frameOf("ADDED", good)+frameOf("ADDED", good), "\n", ""), want: "ADDED n@5, ADDED n@5"},
		"Pretty":          {reason: "frames may span lines", body: "{\n \"object\": " + good + ",\n \"type\": \"ADDED\"\n}\n", want: "ADDED n@5"},
		"Bad":             {reason: "a bad object stops nothing", body: frameOf("ADDED", bad) + frameOf("DELETED", bad) + frameOf("ADDED", good), want: "ADDED bad(bad@9), DELETED bad(bad@9), ADDED n@5"},
		"InitialEnd":      {reason: "the bookmark that ends the initial events", body: frameOf("BOOKMARK", fmt.Sprintf(end, "")), want: "BOOKMARK @9 end"},
		"BadBookmark":     {reason: "a bookmark counts even where its object does not decode", body: frameOf("BOOKMARK", fmt.Sprintf(end, `,"spec":7`)), want: "BOOKMARK @9 end"},
		"Error":           {reason: "R37: an API error within the stream, Retry-After kept", body: frameOf("ERROR", status) + frameOf("ADDED", good), want: "ERROR 410 Expired too old 7s, ADDED n@5"},
		"ErrorOdd":        {reason: "an error without a Status is an error still", body: frameOf("ERROR", good), want: "ERROR 500 InternalError Internal error occurred: the API server sent a status without an error instead of objects 0s"},
		"R23Status":       {reason: "a Status in place of a frame is an API error, never an object", body: status, want: "ERROR 410 Expired too old 7s"},
		"R23StatusPretty": {reason: "over several lines too", body: strings.ReplaceAll(status, ",", ",\n  ") + "\n", want: "ERROR 410 Expired too old 7s"},
		"TypeTwice":       {reason: "the last one counts, as for the typed client", body: `{"type":"ADDED","type":"DELETED","object":7,"object":` + good + "}", want: "DELETED n@5"},
		"ObjectNull":      {reason: "null leaves the other one, as for the typed client", body: `{"type":"ADDED","object":` + good + `,"object":null}`, want: "ADDED n@5"},
		"UnknownMember":   {reason: "unknown members are skipped", body: `{"x":[1],"type":"ADDED","object":` + good + "}", want: "ADDED n@5"},
		"UnknownType":     {reason: "no such event", body: frameOf("ADDED", good) + frameOf("EXPLODED", good), want: "ADDED n@5", err: `type "EXPLODED"`},
		"NoType":          {reason: "no frame", body: `{"object":` + good + `}`, err: `type ""`},
		"NoObject":        {reason: "no frame", body: `{"type":"ADDED"}`, err: "without an object"},
		"NotAFrame":       {reason: "no frame", body: `[1]`, err: "expected"},
		"HTML":            {reason: "a proxy's page", body: "<html>", err: "expected"},
		"Truncated":       {reason: "frames before the break count", body: frameOf("ADDED", good) + `{"type":"ADDED","obj`, want: "ADDED n@5", err: "unexpected EOF"},
		"Malformed":       {reason: "frames before it count", body: frameOf("ADDED", good) + `{"type":"ADDED","object":{"a":tru}}` + frameOf("ADDED", good), want: "ADDED n@5", err: "malformed"},
		"MalformedError":  {reason: "malformed is no Status", body: `{"type":"ERROR","object":{"a":tru}}`, err: "malformed"},
		"MalformedBeside": {reason: "malformed beside the object", body: `{"type":"ADDED","x":tru,"object":{}}`, err: "malformed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 1 << 20} {
				frames, err := decodeFrames(gadgets(t, false), byN{strings.NewReader(tc.body), n})
				if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
					t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.err)
				}
				if got := describeFrames(frames); got != tc.want {
					t.Errorf("%s: got  %s\nwant %s", tc.reason, got, tc.want)
				}
			}
		})
	}
}

func describeFrames(frames []frame) string {
	var out []string
	for _, f := range frames {
		switch {
		case f.status != nil:
			var after int32
			if f.status.Details != nil {
				after = f.status.Details.RetryAfterSeconds
			}
			out = append(out, fmt.Sprintf("%s %d %s %s %ds", f.event, f.status.Code, f.status.Reason, f.status.Message, after))
		case f.item.bad != nil:
			out = append(out, fmt.Sprintf("%s bad(%s@%s)", f.event, f.item.bad.meta.Name, f.item.bad.meta.ResourceVersion))
		default:
			s := fmt.Sprintf("%s %s@%s", f.event, f.item.object.GetName(), f.item.object.GetResourceVersion())
			if f.item.object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				s += " end"
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, ", ")
}

// A frame is there as soon as its last byte is, without waiting for the next.
func TestFramesDoNotWaitForMore(t *testing.T) {
	r, w := io.Pipe()
	frames := make(chan frame)
	done := make(chan error)
	d := gadgets(t, false)
	go func() {
		done <- d.frames(t.Context(), r, func(f frame) error {
			frames <- f
			return nil
		})
	}()
	for i := range 5 {
		if _, err := io.WriteString(w, strings.TrimSpace(frameOf("ADDED", fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i)))); err != nil {
			t.Fatal(err)
		}
		if f := <-frames; f.item.object.GetName() != fmt.Sprintf("n%d", i) {
			t.Fatalf("frame %d is %+v", i, f)
		}
	}
	w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFramesReportTheReadersError(t *testing.T) {
	broken := errors.New("broken")
	frames, err := decodeFrames(gadgets(t, false), io.MultiReader(strings.NewReader(frameOf("ADDED", richGadgets[0])), iotest.ErrReader(broken)))
	if err != broken || len(frames) != 1 {
		t.Errorf("%d frames, %v", len(frames), err)
	}
}

// client-go gives up at 16 MiB.
func TestLargeFrame(t *testing.T) {
	big := `{"metadata":{"name":"big"},"spec":{"image":"` + strings.Repeat("x", 20<<20) + `"}}`
	frames, err := decodeFrames(gadgets(t, false), strings.NewReader(frameOf("ADDED", big)+frameOf("ADDED", richGadgets[0])))
	if err != nil || describeFrames(frames) != "ADDED big@, ADDED plain@7" {
		t.Errorf("%d frames, %v", len(frames), err)
	}
}
