package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	networking "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/scheme"
)

// routes returns a LIST of 10,000 ApplicationRoutes as an API server writes it,
// of which every nth is bad; 0 for none.
func routes(b testing.TB, nth int, managedFields bool) []byte {
	b.Helper()
	var out bytes.Buffer
	out.WriteString(`{"apiVersion":"networking.tejo.dev/v1alpha1","items":[`)
	for i := range 10000 {
		if i > 0 {
			out.WriteByte(',')
		}
		timeout := "2s"
		if nth > 0 && i%nth == 0 {
			timeout = "1"
		}
		managed := ""
		if managedFields {
			managed = `"managedFields":[{"apiVersion":"networking.tejo.dev/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:example.com/owner":{}}},"f:spec":{".":{},"f:backends":{".":{},"k:{\"port\":8080,\"service\":\"svc\"}":{".":{},"f:port":{},"f:service":{},"f:weight":{}}},"f:hostnames":{".":{},"v:\"route.example.com\"":{}},"f:timeout":{},"f:tlsSecret":{}}},"manager":"kubectl","operation":"Apply","time":"2026-11-29T10:00:00Z"}],`
		}
		fmt.Fprintf(&out, `{"apiVersion":"networking.tejo.dev/v1alpha1","kind":"ApplicationRoute","metadata":{"annotations":{"example.com/owner":"team-%d"},"creationTimestamp":"2026-11-29T10:00:00Z","generation":2,"labels":{"app":"a"},%s"name":"route-%05d","namespace":"ns-%03d","resourceVersion":"%d","uid":"7f3c1a52-9b1e-4c7e-9a44-%012d"},"spec":{"backends":[{"port":8080,"service":"svc-%d","weight":1}],"hostnames":["route-%d.example.com"],"timeout":%q},"status":{"conditions":[{"lastTransitionTime":"2026-11-29T10:00:01Z","message":"accepted","reason":"Accepted","status":"True","type":"Ready"}],"observedGeneration":2}}`,
			i%50, managed, i, i%100, 1000+i, i, i, i, timeout)
	}
	out.WriteString(`],"kind":"ApplicationRouteList","metadata":{"resourceVersion":"20000"}}`)
	if !json.Valid(out.Bytes()) {
		b.Fatal("the benchmark's own list is malformed")
	}
	return out.Bytes()
}

// The ways to get 10,000 typed objects from the body of a LIST. The body comes
// through an io.Reader in each case, as it comes from a connection.

func decodeOurs(b *testing.B, body []byte, wantBad int) {
	b.Helper()
	d, err := newDecoder(reflect.TypeFor[*networking.ApplicationRoute](), false)
	if err != nil {
		b.Fatal(err)
	}
	bad, good := 0, make([]*networking.ApplicationRoute, 0, 16)
	_, err = d.list(context.Background(), io.NopCloser(bytes.NewReader(body)), func(i item) error {
		if i.bad != nil {
			bad++
			return nil
		}
		good = append(good, i.object.(*networking.ApplicationRoute))
		return nil
	})
	if err != nil || bad != wantBad || len(good)+bad != 10000 {
		b.Fatalf("%d good, %d bad, %v", len(good), bad, err)
	}
	runtime.KeepAlive(good)
}

func decodeTyped(b *testing.B, body []byte, _ int) {
	data, err := io.ReadAll(bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	list := &networking.ApplicationRouteList{}
	decoder := scheme.Codecs.WithoutConversion().DecoderToVersion(scheme.Codecs.SupportedMediaTypes()[0].Serializer, networking.SchemeGroupVersion)
	if _, _, err := decoder.Decode(data, nil, list); err != nil || len(list.Items) != 10000 {
		b.Fatalf("%d items, %v", len(list.Items), err)
	}
}

func decodeDynamic(b *testing.B, body []byte, wantBad int) {
	data, err := io.ReadAll(bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	decoded, _, err := unstructured.UnstructuredJSONScheme.Decode(data, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	bad, good := 0, make([]*networking.ApplicationRoute, 0, 16)
	for _, u := range decoded.(*unstructured.UnstructuredList).Items {
		r := &networking.ApplicationRoute{}
		if apiruntime.DefaultUnstructuredConverter.FromUnstructured(u.Object, r) != nil {
			bad++
			continue
		}
		good = append(good, r)
	}
	if bad != wantBad || len(good)+bad != 10000 {
		b.Fatalf("%d good, %d bad", len(good), bad)
	}
}

// BenchmarkListDecode compares them in one run.
//
//	go test ./pkg/informer -run '^$' -bench 'ListDecode$' -benchmem -cpu 1,2 -count 6 | benchstat -col /by -
//
// client-go's typed decode cannot be shown with bad objects: it fails.
func BenchmarkListDecode(b *testing.B) {
	for _, input := range []struct {
		name    string
		nth     int
		managed bool
	}{{"0", 0, false}, {"0+managedFields", 0, true}, {"1%", 100, false}, {"100%", 1, false}} {
		body := routes(b, input.nth, input.managed)
		wantBad := 0
		if input.nth > 0 {
			wantBad = 10000 / input.nth
		}
		for _, by := range []struct {
			name string
			run  func(*testing.B, []byte, int)
		}{{"ours", decodeOurs}, {"typed", decodeTyped}, {"dynamic", decodeDynamic}} {
			if by.name == "typed" && wantBad > 0 {
				continue
			}
			b.Run("bad="+input.name+"/by="+by.name, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					by.run(b, body, wantBad)
				}
				b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// BenchmarkListDecodeByTurns is for machines that do other things too: ours and
// the typed decode take turns, and what is reported is the CPU time of ours for 0
// and 1 % bad objects, and how many times that of the typed decode, or of 0 %,
// it is.
func BenchmarkListDecodeByTurns(b *testing.B) {
	good, bad := routes(b, 0, false), routes(b, 100, false)
	var ours, typed, some time.Duration
	for b.Loop() {
		runtime.GC() // nobody pays for another's garbage
		began := cpuTime(b)
		decodeOurs(b, good, 0)
		runtime.GC()
		first := cpuTime(b)
		decodeTyped(b, good, 0)
		runtime.GC()
		second := cpuTime(b)
		decodeOurs(b, bad, 100)
		runtime.GC()
		ours, typed, some = ours+first-began, typed+second-first, some+cpuTime(b)-second
	}
	b.ReportMetric(float64(ours.Microseconds())/1000/float64(b.N), "cpu-ms/0%")
	b.ReportMetric(float64(some.Microseconds())/1000/float64(b.N), "cpu-ms/1%")
	b.ReportMetric(float64(ours)/float64(typed), "×typed")
	b.ReportMetric(float64(some)/float64(ours), "1%×0%")
}

// cpuTime is what the process has used so far, garbage collection included; on
// a shared machine it says more than the time that has passed.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkFindBadFields is what a bad object costs beside a good one.
func BenchmarkFindBadFields(b *testing.B) {
	raw := []byte(richGadgets[1])
	raw = bytes.Replace(raw, []byte(`"1h30m"`), []byte(`"1"`), 1)
	b.ReportAllocs()
	for b.Loop() {
		if len(findBadFields(raw, reflect.TypeFor[gadget]())) != 1 {
			b.Fatal("want one bad field")
		}
	}
}
