package undecodable

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

func TestMessage(t *testing.T) {
	const tail = ". The spec is not acted on and what was made for it is left as it is until this is mended"
	field := func(n int) informer.BadField {
		return informer.BadField{Path: fmt.Sprintf("spec.f%d", n), Value: `"1"`, GoType: "*v1.Duration", Reason: "a unit is missing"}
	}
	for name, tc := range map[string]struct {
		reason string
		record informer.Quarantined
		want   string
	}{
		"one": {"field, value, reason and command", informer.Quarantined{Fields: []informer.BadField{field(1)}, Fix: []string{"kubectl patch x"}},
			`spec.f1 is "1": a unit is missing` + tail + ": kubectl patch x"},
		"many": {"the first few", informer.Quarantined{Fields: []informer.BadField{field(1), field(2), field(3), field(4), field(5)}, Fix: []string{"a", "b"}},
			`spec.f1 is "1": a unit is missing; spec.f2 is "1": a unit is missing; spec.f3 is "1": a unit is missing; and 2 more` + tail + ": a && b"},
		"whole": {"no field and no command", informer.Quarantined{Fields: []informer.BadField{{Value: "{", Reason: "it ends too early"}}},
			`the object is {: it ends too early` + tail + ": kubectl edit webapps.v1alpha1.platform.tejo.dev a -n ns"},
		"unknown": {"the decoder's words are all there is", informer.Quarantined{Error: "boom"},
			"The object cannot be decoded: boom" + tail + ": kubectl edit webapps.v1alpha1.platform.tejo.dev a -n ns"},
		"long": {"half a command must not be pasted", informer.Quarantined{Fields: []informer.BadField{field(1)}, Fix: []string{strings.Repeat("x", maxCommand+1)}},
			`spec.f1 is "1": a unit is missing` + tail + " by the command that /debug/quarantine shows"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.record.Key = cache.NewObjectName("ns", "a")
			tc.record.Resource = schema.GroupVersionResource{Group: "platform.tejo.dev", Version: "v1alpha1", Resource: "webapps"}
			if diff := cmp.Diff(tc.want, message(tc.record)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A condition gets into whatever is there, and nothing else is touched.
func TestFalsePatch(t *testing.T) {
	now := time.Unix(2000, 0).UTC()
	const (
		test  = `{"op":"test","path":"/metadata/uid","value":"u"},`
		since = "1970-01-01T00:16:40Z"
		later = "1970-01-01T00:33:20Z"
	)
	condition := func(since string) string {
		return `{"type":"Decodable","status":"False","observedGeneration":7,"lastTransitionTime":"` + since + `","reason":"Undecodable","message":"m"}`
	}
	for name, tc := range map[string]struct {
		reason, status, want string
		turned               bool
		noPlace              string
	}{
		"no status":       {"the first to write", ``, test + `{"op":"test","path":"/status","value":null},{"op":"add","path":"/status","value":{"conditions":[` + condition(later) + `]}}`, true, ""},
		"null status":     {"as none", `null`, test + `{"op":"test","path":"/status","value":null},{"op":"add","path":"/status","value":{"conditions":[` + condition(later) + `]}}`, true, ""},
		"no conditions":   {"other fields stay", `{"replicas":"x"}`, test + `{"op":"test","path":"/status/conditions","value":null},{"op":"add","path":"/status/conditions","value":[` + condition(later) + `]}`, true, ""},
		"others":          {"other conditions stay", `{"conditions":[{"type":"Ready"},3]}`, test + `{"op":"add","path":"/status/conditions/-","value":` + condition(later) + `}`, true, ""},
		"same":            {"nothing to write", `{"conditions":[{"type":"Ready"},` + condition(since) + `]}`, ``, false, ""},
		"was True":        {"it turns", `{"conditions":[{"type":"Ready"},{"type":"Decodable","status":"True","lastTransitionTime":"` + since + `"}]}`, test + `{"op":"test","path":"/status/conditions/1/type","value":"Decodable"},{"op":"replace","path":"/status/conditions/1","value":` + condition(later) + `}`, true, ""},
		"other message":   {"since the same time", `{"conditions":[` + strings.Replace(condition(since), `"m"`, `"n"`, 1) + `]}`, test + `{"op":"test","path":"/status/conditions/0/type","value":"Decodable"},{"op":"replace","path":"/status/conditions/0","value":` + condition(since) + `}`, false, ""},
		"older spec":      {"observedGeneration follows", `{"conditions":[` + strings.Replace(condition(since), `:7`, `:6`, 1) + `]}`, test + `{"op":"test","path":"/status/conditions/0/type","value":"Decodable"},{"op":"replace","path":"/status/conditions/0","value":` + condition(since) + `}`, false, ""},
		"no time":         {"a bad one of our own is mended", `{"conditions":[` + condition("yesterday") + `]}`, test + `{"op":"test","path":"/status/conditions/0/type","value":"Decodable"},{"op":"replace","path":"/status/conditions/0","value":` + condition(later) + `}`, false, ""},
		"status is text":  {"never guessed what was meant", `"x"`, ``, false, "status"},
		"conditions is a": {"nor overwritten", `{"conditions":{"a":1}}`, ``, false, "status.conditions"},
	} {
		t.Run(name, func(t *testing.T) {
			var live liveObject
			live.Metadata.UID, live.Metadata.Generation, live.Status = "u", 7, json.RawMessage(tc.status)
			patch, turned, err := falsePatch(live, "m", now)
			var noPlace noPlaceError
			if errors.As(err, &noPlace); noPlace.field != tc.noPlace {
				t.Fatalf("%s: err is %v, want none or one about %q", tc.reason, err, tc.noPlace)
			}
			got, err := json.Marshal(patch)
			if err != nil {
				t.Fatal(err)
			}
			want := "[" + tc.want + "]"
			if tc.want == "" {
				want = "null"
			}
			if diff := cmp.Diff(want, string(got)); diff != "" || turned != tc.turned {
				t.Errorf("%s: turned is %t, want %t (-want +got):\n%s", tc.reason, turned, tc.turned, diff)
			}
		})
	}
}

// 10,000 keys that all come at once are served one a second, in their order, and do
// not wake much more often than that.
func TestTurns(t *testing.T) {
	const n = 10_000
	var line turns
	start := time.Unix(0, 0)
	wake := map[time.Duration][]int{}
	for k := range n {
		wake[0] = append(wake[0], k)
	}
	key := func(k int) cache.ObjectName { return cache.NewObjectName("ns", fmt.Sprint(k)) }
	served, asked := 0, 0
	for second := time.Duration(0); served < n && second < 2*n*time.Second; second += time.Second {
		servedNow := 0
		for _, k := range wake[second] {
			asked++
			if wait := line.take(key(k), start.Add(second)); wait > 0 {
				at := second + (wait + time.Second - 1).Truncate(time.Second)
				wake[at] = append(wake[at], k)
				continue
			}
			if k != served {
				t.Fatalf("key %d was served as number %d", k, served)
			}
			served++
			servedNow++
		}
		if servedNow > 1 {
			t.Fatalf("%d were served at %s", servedNow, second)
		}
	}
	if served < n || asked > 2*n {
		t.Errorf("%d of %d were served, %d looks were taken for it", served, n, asked)
	}
	if len(line.due) > 0 {
		t.Errorf("%d keys are remembered for nothing", len(line.due))
	}
}

// Whoever comes after a crowd that has gone does not pay for it, and an object that
// is written all the time does not push in.
func TestTurnsOweNothingAndKeepPlaces(t *testing.T) {
	var line turns
	now := time.Unix(0, 0)
	key := func(k int) cache.ObjectName { return cache.NewObjectName("ns", fmt.Sprint(k)) }
	for k := range 1000 {
		line.take(key(k), now)
	}
	for range 100 { // number 5 changes all the time
		if wait := line.take(key(5), now); wait != 5*interval {
			t.Fatalf("number 5 is to wait for %s now, not 5 s", wait)
		}
	}
	for k := range 1000 {
		line.leave(key(k))
	}
	if wait := line.take(key(1000), now.Add(interval)); wait != 0 {
		t.Errorf("after all have left, the next one still waits for %s", wait)
	}
}
