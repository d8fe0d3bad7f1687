package informer

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"
)

type fieldCase struct {
	json string // spec, or the whole object if it begins with metadata or status
	want []string
}

// raw is the whole object.
func (c fieldCase) raw() string {
	if key, value, ok := strings.Cut(c.json, ":"); ok && !strings.HasPrefix(c.json, `"`) {
		return `{"` + key + `":` + value + `}`
	} else if !ok {
		return c.json
	}
	return `{"metadata":{"name":"n"},"spec":{` + c.json + `}}`
}

const (
	i32  = "a whole number from -2147483648 to 2147483647 (int32)"
	i64  = "a whole number from -9223372036854775808 to 9223372036854775807 (int64)"
	i64w = "a whole number from -9223372036854775808 to 9223372036854775807 (int)"
)

// What decodes and what does not, and what is said about it. Each bad field is
// written "path: reason"; the rest of the object is good.
var fieldCases = map[string]fieldCase{
	"R02 duration in days":          {`"interval":"360d"`, []string{`spec.interval: time: unknown unit "d" in duration "360d"`}},
	"duration in words":             {`"interval":"5 minutes"`, []string{`spec.interval: time: unknown unit " minutes" in duration "5 minutes"`}},
	"duration empty":                {`"interval":""`, []string{`spec.interval: time: invalid duration ""`}},
	"duration number":               {`"timeout":30`, []string{`spec.timeout: is a number, must be a duration such as "30s"`}},
	"duration without unit":         {`"timeout":"1"`, []string{`spec.timeout: time: missing unit in duration "1"`}},
	"R04 duration overflow":         {`"interval":"9999999h"`, []string{`spec.interval: time: invalid duration "9999999h"`}},
	"duration negative":             {`"interval":"-5s"`, nil},
	"R05 quantity empty":            {`"resources":{"limits":{"cpu":""}}`, []string{`spec.resources.limits.cpu: is a string, must be a quantity such as "100m" or "1Gi"`}},
	"quantity with space":           {`"size":"1 Gi"`, []string{`spec.size: is a string, must be a quantity such as "100m" or "1Gi"`}},
	"quantity unit":                 {`"limits":{"a.b/c":"100mb"}`, []string{`spec.limits["a.b/c"]: is a string, must be a quantity such as "100m" or "1Gi"`}},
	"quantity bool":                 {`"size":true`, []string{`spec.size: is true or false without quotes, must be a quantity such as "100m" or "1Gi"`}},
	"quantity null":                 {`"size":null,"limits":{"x":null}`, nil},
	"time date only":                {`"at":"2024-01-01"`, []string{`spec.at: parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"`}},
	"time without zone":             {`"until":"2024-01-01T00:00:00"`, []string{`spec.until: parsing time "2024-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"`}},
	"time empty":                    {`"at":""`, []string{`spec.at: parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"`}},
	"time epoch":                    {`"at":1700000000`, []string{`spec.at: is a number, must be a time in quotes`}},
	"time null":                     {`"at":null,"until":null,"renew":null`, nil},
	"micro time without micros":     {`"renew":"2024-01-01T00:00:00Z"`, []string{`spec.renew: parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"`}},
	"int32 overflow":                {`"replicas":3000000000`, []string{`spec.replicas: is out of range, must be ` + i32}},
	"int32 1.0":                     {`"replicas":1.0`, []string{`spec.replicas: is not written as a whole number, must be ` + i32}},
	"int32 1.5":                     {`"replicas":1.5`, []string{`spec.replicas: is not written as a whole number, must be ` + i32}},
	"int32 1e3":                     {`"replicas":1e3`, []string{`spec.replicas: is not written as a whole number, must be ` + i32}},
	"int32 quoted":                  {`"replicas":"3"`, []string{`spec.replicas: is a string, must be ` + i32}},
	"R13 int32 in words":            {`"replicas":"two","image":"x"`, []string{`spec.replicas: is a string, must be ` + i32}},
	"int64 overflow":                {`"revision":9223372036854775808`, []string{`spec.revision: is out of range, must be ` + i64}},
	"int64 1e+06":                   {`"revision":1e+06`, []string{`spec.revision: is not written as a whole number, must be ` + i64}},
	"uint8":                         {`"percent":-1`, []string{`spec.percent: is out of range, must be a whole number from 0 to 255 (uint8)`}},
	"int null":                      {`"replicas":null`, nil},
	"float":                         {`"ratio":"0.5"`, []string{`spec.ratio: is a string, must be a number (float32)`}},
	"int in quotes wanted":          {`"quoted":12`, []string{`spec.quoted: is a number, must be ` + i64w + ` in quotes`}},
	"int-or-string 1.5":             {`"port":1.5`, []string{`spec.port: is not written as a whole number, must be a whole number (int32) or a string`}},
	"int-or-string bool":            {`"maxSurge":true`, []string{`spec.maxSurge: is true or false without quotes, must be a whole number (int32) or a string`}},
	"int-or-string overflow":        {`"port":3000000000`, []string{`spec.port: is out of range, must be a whole number (int32) or a string`}},
	"bool quoted":                   {`"enabled":"true"`, []string{`spec.enabled: is a string, must be true or false`}},
	"string from number":            {`"image":5`, []string{`spec.image: is a number, must be a string (in quotes)`}},
	"R14 string from bool":          {`"labels":{"summary":false}`, []string{`spec.labels.summary: is true or false without quotes, must be a string (in quotes)`}},
	"list from string":              {`"args":"x"`, []string{`spec.args: is a string, must be a list`}},
	"R01 string from list":          {`"image":["x"]`, []string{`spec.image: is a list, must be a string (in quotes)`}},
	"list from object":              {`"args":{}`, []string{`spec.args: is an object, must be a list`}},
	"map values from int":           {`"labels":{"a":1,"b":"c","d e":2}`, []string{`spec.labels.a: is a number, must be a string (in quotes)`, `spec.labels["d e"]: is a number, must be a string (in quotes)`}},
	"map from list":                 {`"labels":[]`, []string{`spec.labels: is a list, must be an object`}},
	"selector from list":            {`"selector":[]`, []string{`spec.selector: is a list, must be an object`}},
	"map null value":                {`"labels":{"a":null}`, nil},
	"map key":                       {`"byPort":{"http":"x","80":"y"}`, []string{`spec.byPort.http: json: cannot unmarshal number http into Go value of type int32`}},
	"list null element":             {`"args":[null],"backends":[null]`, nil},
	"nulls":                         {`"args":null,"labels":null,"timeout":null,"selector":null`, nil},
	"unknown field":                 {`"nonsense":{"a":[1]}`, nil},
	"repeated key":                  {`"replicas":1,"replicas":2`, nil},
	"repeated key, first bad":       {`"replicas":"x","replicas":2`, []string{`spec.replicas: is a string, must be ` + i32}},
	"wrong case":                    {`"REPLICAS":"x","untagged":"x"`, nil},
	"untagged":                      {`"Untagged":"x"`, []string{`spec.Untagged: is a string, must be ` + i32}},
	"list element":                  {`"backends":[{"service":"a"},{"service":7},{"weight":"1","timeout":"1"}]`, []string{`spec.backends[1].service: is a number, must be a string (in quotes)`, `spec.backends[2].weight: is a string, must be ` + i32, `spec.backends[2].timeout: time: missing unit in duration "1"`}},
	"list in list":                  {`"matrix":[[1],[2,"3"]]`, []string{`spec.matrix[1][1]: is a string, must be ` + i32}},
	"array":                         {`"triple":[1,2,"x"]`, []string{`spec.triple[2]: is a string, must be a whole number from -32768 to 32767 (int16)`}},
	"map of pointers":               {`"byName":{"x.y":{"timeout":5}}`, []string{`spec.byName["x.y"].timeout: is a number, must be a duration such as "30s"`}},
	"nested":                        {`"nested":{"nested":{"interval":"1"}}`, []string{`spec.nested.nested.interval: time: missing unit in duration "1"`}},
	"inlined":                       {`"inside":"x"`, []string{`spec.inside: is a string, must be ` + i32}},
	"decodes itself, list":          {`"steps":[1]`, []string{`spec.steps: is a list, must be a informer.gadgetSteps`}},
	"decodes itself, embedded":      {`"wait":"3"`, []string{`spec.wait: time: missing unit in duration "3"`}},
	"nameless struct":               {`"nameless":"3s"`, []string{`spec.nameless: is a string, must be an object`}},
	"nameless struct, inside":       {`"nameless":{"Duration":"3s"}`, []string{`spec.nameless.Duration: is a string, must be ` + i64}},
	"text":                          {`"level":"medium"`, []string{`spec.level: unknown level "medium"`}},
	"text from number":              {`"level":3`, []string{`spec.level: is a number, must be a informer.gadgetLevel`}},
	"bytes":                         {`"data":"%%%"`, []string{`spec.data: illegal base64 data at input byte 0`}},
	"free form":                     {`"free":{"a":[1,{"b":1e999}]},"any":[1e400]`, []string{`spec.free.a[1].b: is out of range, must be a float64 at most`, `spec.any[0]: is out of range, must be a float64 at most`}},
	"raw":                           {`"raw":{"a":1e999},"template":7`, nil},
	"R22 unstructured without kind": {`"embedded":{}`, []string{`spec.embedded: Object 'Kind' is missing in '{}'`}},
	"several":                       {`"interval":"1","replicas":"2","timeout":"3"`, []string{`spec.interval: time: missing unit in duration "1"`, `spec.replicas: is a string, must be ` + i32, `spec.timeout: time: missing unit in duration "3"`}},
	"R08 status":                    {`status:{"phase":3}`, []string{`status.phase: is a number, must be a string (in quotes)`}},
	"status list element":           {`status:{"conditions":[{"type":"a","lastTransitionTime":"x"}]}`, []string{`status.conditions[0].lastTransitionTime: parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"`}},
	"annotation":                    {`metadata:{"name":"x","annotations":{"a.b/c":1}}`, []string{`metadata.annotations["a.b/c"]: is a number, must be a string (in quotes)`}},
	"owner reference":               {`metadata:{"ownerReferences":[{"controller":"true"}]}`, []string{`metadata.ownerReferences[0].controller: is a string, must be true or false`}},
	"spec a list":                   {`spec:[]`, []string{`spec: is a list, must be an object`}},
	"whole a list":                  {`[]`, []string{`: is a list, must be an object`}},
	"whole a string":                {`"x"`, []string{`: is a string, must be an object`}},
}

func TestFindBadFields(t *testing.T) {
	for name, tc := range fieldCases {
		t.Run(name, func(t *testing.T) {
			raw := tc.raw()
			fields := findBadFields([]byte(raw), reflect.TypeFor[gadget]())
			var got []string
			for _, f := range fields {
				got = append(got, f.Path+": "+f.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("bad fields of %s (-want +got):\n%s", raw, diff)
			}
			if _, err := typed([]byte(raw)); (err == nil) != (len(fields) == 0) {
				t.Errorf("the typed client says %v", err)
			}
			checkFix(t, raw, fields)
		})
	}
}

var samples = regexp.MustCompile(`<[^<>]* such as ([^<>]*)>|<true or false>`)

// fillIn does what a person does with a placeholder: takes the example.
func fillIn(patch string) string {
	return samples.ReplaceAllStringFunc(patch, func(s string) string {
		if s == "<true or false>" {
			return "true"
		}
		return samples.FindStringSubmatch(s)[1]
	})
}

// checkFix applies the patch, placeholders filled in, and expects that the
// object then decodes.
func checkFix(t *testing.T, raw string, fields []badField) {
	t.Helper()
	if len(fields) == 0 || fields[0].Path == "" {
		return
	}
	kind, patch := fixPatch(fields)
	filled := fillIn(patch)
	if strings.Contains(filled, "<JSON of") {
		return
	}
	fixed := applyPatch(t, kind, raw, filled)
	if left := findBadFields([]byte(fixed), reflect.TypeFor[gadget]()); len(left) > 0 {
		t.Errorf("%s patch %s\nmakes %s\nwhich is still bad: %+v", kind, filled, fixed, left)
	}
}

// applyPatch applies a patch of the kinds that fixPatch makes.
func applyPatch(t *testing.T, kind, raw, patch string) string {
	t.Helper()
	var doc any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(raw), &doc); err != nil {
		t.Skip("a value that no patch library reads either")
	}
	if kind == "merge" {
		var p any
		if err := json.Unmarshal([]byte(patch), &p); err != nil {
			t.Fatalf("%v: %s", err, patch)
		}
		doc = mergeInto(doc, p)
	} else {
		var ops []struct {
			Op, Path string
			Value    any
		}
		if err := json.Unmarshal([]byte(patch), &ops); err != nil {
			t.Fatalf("%v: %s", err, patch)
		}
		for _, op := range ops {
			at := doc
			steps := strings.Split(op.Path, "/")[1:]
			for i, s := range steps {
				s = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
				last := i == len(steps)-1
				switch parent := at.(type) {
				case map[string]any:
					if _, ok := parent[s]; !ok {
						t.Fatalf("nothing at %s of %s", op.Path, raw)
					}
					switch {
					case last && op.Op == "remove":
						delete(parent, s)
					case last:
						parent[s] = op.Value
					}
					at = parent[s]
				case []any:
					n, err := strconv.Atoi(s)
					if err != nil || n >= len(parent) {
						t.Fatalf("nothing at %s of %s", op.Path, raw)
					}
					if last {
						parent[n] = op.Value
					}
					at = parent[n]
				default:
					t.Fatalf("nothing at %s of %s", op.Path, raw)
				}
			}
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// mergeInto is RFC 7396.
func mergeInto(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	m, ok := target.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(m, k)
		} else {
			m[k] = mergeInto(m[k], v)
		}
	}
	return m
}

func TestFixCommands(t *testing.T) {
	cases := map[string]struct {
		reason string
		json   string
		want   []string
	}{
		"Merge":       {"a person has to say how long", `{"spec":{"timeout":"1"}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=merge -p '{"spec":{"timeout":"<duration such as 30s>"}}'`}},
		"Several":     {"one patch for all of them", `{"spec":{"timeout":"1","replicas":[],"limits":{"a.b/c":""},"enabled":1,"args":"x","at":0}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=merge -p '{"spec":{"args":<list such as ["text"]>,"at":"<time such as 2026-01-31T15:04:05Z>","enabled":<true or false>,"limits":{"a.b/c":"<quantity such as 100m>"},"replicas":<whole number such as 1>,"timeout":"<duration such as 30s>"}}'`}},
		"List":        {"a merge patch would replace the whole list", `{"spec":{"backends":[{},{"weight":true}],"labels":{"a/b~c":1}}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=json -p '[{"op":"replace","path":"/spec/backends/1/weight","value":<whole number such as 1>},{"op":"replace","path":"/spec/labels/a~1b~0c","value":"1"}]'`}},
		"Unambiguous": {"the same value in the right type", `{"spec":{"replicas":"3","enabled":"true","image":5,"revision":1e3}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=merge -p '{"spec":{"enabled":true,"image":"5","replicas":3,"revision":1000}}'`}},
		"R14":         {"false may have been No, off or false", `{"spec":{"labels":{"summary":false}}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=merge -p '{"spec":{"labels":{"summary":"<string such as text>"}}}'`}},
		"NotRounded":  {"1.5 replicas are neither 1 nor 2, 3e9 are no int32", `{"spec":{"replicas":1.5,"Untagged":"3000000000"}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=merge -p '{"spec":{"Untagged":<whole number such as 1>,"replicas":<whole number such as 1>}}'`}},
		"R08":         {"the status is a subresource", `{"status":{"phase":[]},"spec":{"port":true}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=merge -p '{"spec":{"port":<number, or name in quotes, such as 80>}}'`, `kubectl patch webapps.v1.x.dev web -n shop --subresource=status --type=merge -p '{"status":{"phase":"<string such as text>"}}'`}},
		"MapKey":      {"a key that is no number has to go", `{"spec":{"byPort":{"it's":"x"}}}`, []string{`kubectl patch webapps.v1.x.dev web -n shop --type=merge -p '{"spec":{"byPort":{"it'\''s":null}}}'`}},
		"Whole":       {"nothing to patch", `[]`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields := findBadFields([]byte(tc.json), reflect.TypeFor[gadget]())
			got := fixCommands("webapps.v1.x.dev", cache.NewObjectName("shop", "web"), fields)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			checkFix(t, tc.json, fields)
			for _, command := range got {
				checkShell(t, command)
			}
		})
	}
}

// checkShell has a real shell take the command apart: once filled in, its last
// word must be JSON.
func checkShell(t *testing.T, command string) {
	t.Helper()
	script := `kubectl() { for last; do :; done; printf %s "$last"; }; ` + fillIn(command)
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil || !json.Valid(out) {
		t.Errorf("%s\ngives %q, %v", command, out, err)
	}
}

func TestShellQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "a b", "it's", `$(id) "x" \ '`, "<x>", "ü\n"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shellQuote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q came out as %q, %v", s, out, err)
		}
	}
}

func TestBadFieldsAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 5000)
	var labels []string
	for i := range 1000 {
		labels = append(labels, fmt.Sprintf(`"k%d":[%q]`, i, long))
	}
	fields := findBadFields([]byte(`{"spec":{"labels":{`+strings.Join(labels, ",")+`}}}`), reflect.TypeFor[gadget]())
	if len(fields) != maxBadFields {
		t.Errorf("%d fields, want %d", len(fields), maxBadFields)
	}
	for _, f := range fields {
		if len(f.Value) > maxFieldText+20 || len(f.Reason) > maxFieldText+20 {
			t.Fatalf("value of %d and reason of %d bytes", len(f.Value), len(f.Reason))
		}
	}
	deep := strings.Repeat(`{"nested":`, 200) + `{"interval":7}` + strings.Repeat("}", 200)
	fields = findBadFields([]byte(`{"spec":`+deep+`}`), reflect.TypeFor[gadget]())
	if len(fields) != 1 || len(fields[0].steps) != maxFieldDepth {
		t.Errorf("%d fields, the first %d deep", len(fields), len(fields[0].steps))
	}
}

// The field rules are encoding/json's: compared by what a field takes.
func TestJSONFields(t *testing.T) {
	type Deep struct {
		A int `json:"a"`
		B int
	}
	type Left struct {
		Deep
		Both int
		X    int `json:"x"`
	}
	type Right struct {
		*Deep
		Both int
		X    int
	}
	type tagged struct {
		Left `json:"left"`
		Right
		Named Deep `json:"Deep"`
		C     int  `json:"c,omitempty,string"`
		D     int  `json:"-"`
		//lint:ignore SA5008 what encoding/json makes of odd tags is what this is about
		E int `json:"-,"`
		//lint:ignore SA5008 the same
		F int `json:"bad\"name"`
		A string
	}
	type both struct {
		Left
		Right
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[tagged](), reflect.TypeFor[both](), reflect.TypeFor[gadgetSpec]()} {
		fields := jsonFields(typ)
		for _, name := range []string{"a", "A", "B", "Both", "x", "X", "left", "Left", "Right", "Deep", "c", "C", "D", "-", "E", "F", "bad\"name", "inside", "beyond", "image", "interval", "Untagged", "unexported", "inlinedPtr", "Inlined"} {
			// No field of these is an interface: a member that is taken refuses
			// one of these two.
			taken := false
			for _, value := range []string{`{"\u0000":1}`, `[[[1]]]`} {
				taken = taken || kjson.UnmarshalCaseSensitivePreserveInts([]byte(`{`+strconv.Quote(name)+`:`+value+`}`), reflect.New(typ).Interface()) != nil
			}
			if _, ok := fields[name]; ok != taken {
				t.Errorf("%v, member %q: found %v, the decoder takes it: %v", typ, name, ok, taken)
			}
		}
	}
}
