package informer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// keysOf makes a map of a string that has these keys with a number each.
func keysOf(keys ...string) string {
	var all []string
	for n, key := range keys {
		all = append(all, quoteJSON(key)+":"+fmt.Sprint(n))
	}
	return `{` + strings.Join(all, ",") + `}`
}

// oddKeys are keys of annotations that people, or people with ill intent, write.
var oddKeys = []string{
	"a.b/c", "it's", `say "hi"`, "with space", "$HOME", "`id`", "$(id)", "~t~1", "", "ü", "<b>", `back\slash`, "new\nline", "tab\t",
	"nul\x00", "-", "#", "*", "..", "[0]", "a[0].b", "\u2028", "%s", "'; exit 1; '", "0", "null",
}

// hostileCases are made to break what finds, tells and mends.
var hostileCases = map[string]fieldCase{
	"odd keys":                                  {json: `"labels":` + keysOf(oddKeys...)},
	"odd keys behind a list":                    {json: `"labels":` + keysOf(oddKeys...) + `,"backends":[{"weight":"x"}]`},
	"odd keys on the way":                       {json: `"byName":{"a.b/c~d 'e' \"f\"":{"service":1},"":{"service":2},"0":{"timeout":5}}`},
	"odd keys of numbers":                       {json: `"byPort":{"it's":"x","":"y","1.5":"z","1e3":"a","~/":"b","-":"c"}`},
	"bad list items, first and last":            {json: `"backends":[{"service":1},{},{},{},{},{},{},{},{},{},{"weight":[]}]`},
	"bad items in lists in lists":               {json: `"matrix":[["a"],[],[1,2,{}]],"args":[1,true,null,[],{}]`},
	"list of things that are no items":          {json: `"backends":["x",1,null,[],true]`},
	"spec and status, list and map":             {json: `status:{"phase":["x"],"conditions":[{"type":1},{"lastTransitionTime":""},5]},"spec":{"labels":{"a/b":false},"backends":[{"weight":"1"}]}`},
	"huge integers":                             {json: `"replicas":123456789012345678901234567890,"revision":-9223372036854775809,"percent":256,"triple":[32768,-32769,1]`},
	"huge floats":                               {json: `"ratio":1e300,"replicas":1e21,"revision":-1e30,"port":1e10`},
	"negative zero":                             {json: `"replicas":-0,"percent":-0`},
	"shell in a value":                          {json: `"interval":"'; touch /tmp/x; '$(id)\u0060id\u0060","at":"\"'\\\n","size":"${IFS}"`},
	"placeholder in a value":                    {json: `"interval":"<duration such as 30s>","replicas":"<3>","labels":{"<x>":1}`},
	"control characters":                        {json: `"interval":"\u0000\u001b[31mred\u0007\u2028\ufeff"`},
	"lone surrogate":                            {json: `"interval":"\ud800","labels":{"\ud800":1}`},
	"a number that is too long":                 {json: `"replicas":` + strings.Repeat("9", 5000)},
	"a string that is too long":                 {json: `"interval":"` + strings.Repeat("ü", 100_000) + `"`},
	"a long key":                                {json: `"labels":{"` + strings.Repeat("k", 700) + `":1}`},
	"deep":                                      {json: `"nested":` + strings.Repeat(`{"nested":`, 50) + `{"interval":"1"}` + strings.Repeat(`}`, 50)},
	"deep, unknown":                             {json: `"interval":"1","unknown":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000)},
	"deep, where a string is wanted":            {json: `"image":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000)},
	"deep, free form":                           {json: `"interval":"1","free":` + strings.Repeat(`{"a":`, 2000) + `1` + strings.Repeat(`}`, 2000)},
	"ten thousand bad fields":                   {json: `"args":[` + strings.TrimSuffix(strings.Repeat("1,", 10_000), ",") + `]`},
	"ten thousand good, one bad":                {json: `"args":[` + strings.Repeat(`"x",`, 10_000) + `1]`},
	"everything at once":                        {json: `"interval":[],"timeout":{},"size":[],"at":[],"until":{},"renew":5,"replicas":{},"revision":[],"percent":"","ratio":[],"quoted":[],"port":[],"maxSurge":{},"enabled":[],"image":{},"args":1,"matrix":{},"triple":{},"labels":1,"limits":[],"selector":1,"backends":1,"byName":1,"data":1,"free":1,"Untagged":[]`},
	"R07 a filter of a kind that is newer":      {json: `"backends":[{"service":"a","type":"CORS","cors":{"allowOrigins":["*"],"maxAge":5}}]`},
	"R07 a filter whose field is an object now": {json: `"backends":[{"service":"a"},{"type":"CORS","service":{"name":"a"}}]`},
	"R14 summary: No":                           {json: `"labels":{"summary":false,"description":true,"runbook":null,"severity":3}`},
	"R22 anything embedded":                     {json: `"template":{},"raw":{},"free":{},"any":{}`},
	"R22 an object without kind":                {json: `"embedded":{},"template":{}`},
}

// Whatever is wrong, something is found, it can be printed anywhere, and what has
// been found, put right, leaves nothing to be found.
func TestFindHostileFields(t *testing.T) {
	for name, tc := range hostileCases {
		t.Run(name, func(t *testing.T) {
			raw := tc.raw()
			fields := findBadFields([]byte(raw), reflect.TypeFor[gadget]())
			if _, err := typed([]byte(raw)); (err == nil) != (len(fields) == 0) {
				t.Fatalf("the typed client says %v, found %d", err, len(fields))
			}
			for _, f := range fields {
				if !utf8.ValidString(f.Path + f.Value + f.Reason) {
					t.Errorf("no UTF-8: %+v", f)
				}
			}
			if len(fields) < maxBadFields {
				checkFix(t, raw, fields)
			}
		})
	}
}

// Bytes that are no text are still told as text.
func TestBadFieldsAreText(t *testing.T) {
	for _, raw := range []string{
		"{\"spec\":{\"interval\":\"\xff\xfe\"}}",
		"{\"spec\":{\"labels\":{\"\xff\":1}}}",
		"{\"spec\":{\"args\":\"" + strings.Repeat("\xff", 500) + "\"}}",
	} {
		fields := findBadFields([]byte(raw), reflect.TypeFor[gadget]())
		if len(fields) != 1 {
			t.Errorf("%q: %+v", raw, fields)
		}
		for _, f := range fields {
			if !utf8.ValidString(f.Path + f.Value + f.Reason) {
				t.Errorf("%q: %+v is no text", raw, f)
			}
		}
	}
}
