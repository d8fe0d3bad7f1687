package informer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
)

// fixCommands returns the kubectl commands that mend the fields of the object,
// ready to be pasted into a shell once each <placeholder> has been replaced. Two
// commands where both the status, which is a subresource, and something else
// are bad; none for an object that is bad as a whole. kind is as kubectl
// takes it, best with version and group.
func fixCommands(kind string, name cache.ObjectName, fields []badField) []string {
	isStatus := func(f badField) bool { return f.steps[0].key != nil && *f.steps[0].key == "status" }
	var status, rest []badField
	for _, f := range fields {
		switch {
		case len(f.steps) == 0:
		case isStatus(f):
			status = append(status, f)
		default:
			rest = append(rest, f)
		}
	}
	var commands []string
	for _, part := range []struct {
		flag   string
		fields []badField
	}{{"", rest}, {" --subresource=status", status}} {
		patchType, patch := fixPatch(part.fields)
		if patch == "" {
			continue
		}
		command := "kubectl patch " + shellQuote(kind) + " " + shellQuote(name.Name)
		if name.Namespace != "" {
			command += " -n " + shellQuote(name.Namespace)
		}
		commands = append(commands, command+part.flag+" --type="+patchType+" -p "+shellQuote(patch))
	}
	return commands
}

// fixPatch returns a patch that puts a value of the right type in place of each
// field, and its type as kubectl names it: a merge patch, or a JSON patch if a
// path leads through a list, since a merge patch would replace the whole list.
//
// Where the meaning of what is there is beyond doubt ("80" for a number) the patch
// says it; else it holds a placeholder for a person to fill in. The patch is ""
// if there is nothing to patch.
func fixPatch(fields []badField) (patchType, patch string) {
	fields = slices.DeleteFunc(slices.Clone(fields), func(f badField) bool { return len(f.steps) == 0 })
	if len(fields) == 0 {
		return "", ""
	}
	throughList := func(f badField) bool {
		return slices.ContainsFunc(f.steps, func(s step) bool { return s.key == nil })
	}
	if slices.ContainsFunc(fields, throughList) {
		var ops []string
		seen := map[string]bool{}
		for _, f := range fields {
			path := quoteJSON(jsonPointer(f.steps))
			switch {
			case seen[path]: // a repeated key
			case f.key:
				ops = append(ops, `{"op":"remove","path":`+path+`}`)
			default:
				ops = append(ops, `{"op":"replace","path":`+path+`,"value":`+replacement(f)+`}`)
			}
			seen[path] = true
		}
		return "json", "[" + strings.Join(ops, ",") + "]"
	}
	root := mergePatch{}
	for _, f := range fields {
		root.put(f)
	}
	return "merge", root.String()
}

// mergePatch is a JSON object whose leaves are JSON text, placeholders included.
type mergePatch map[string]any // mergePatch or string

func (m mergePatch) put(f badField) {
	for _, s := range f.steps[:len(f.steps)-1] {
		child, ok := m[*s.key].(mergePatch)
		if !ok {
			child = mergePatch{}
			m[*s.key] = child
		}
		m = child
	}
	last := *f.steps[len(f.steps)-1].key
	if f.key {
		m[last] = "null" // removes it
	} else {
		m[last] = replacement(f)
	}
}

func (m mergePatch) String() string {
	var members []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		members = append(members, quoteJSON(key)+":"+fmt.Sprint(m[key]))
	}
	return "{" + strings.Join(members, ",") + "}"
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// jsonPointer formats a path by RFC 6901.
func jsonPointer(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteByte('/')
		if s.key == nil {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(pointerEscapes.Replace(*s.key))
		}
	}
	return b.String()
}

// replacement is the JSON to put in place of a bad value.
func replacement(f badField) string {
	if f.quoted {
		if describeJSON([]byte(f.Value)) == "a number" && tryField([]byte(quoteJSON(f.Value)), f.typ, `json:"f,string"`) == nil {
			return quoteJSON(f.Value)
		}
		return quoteJSON(strings.Trim(placeholder(f.typ), `"`))
	}
	if s := restated(f); s != "" && tryDecode([]byte(s), f.typ) == nil {
		return s
	}
	return placeholder(f.typ)
}

// restated writes the same value in the JSON type that is wanted, or returns ""
// where it takes a person to know what was meant. true for a string is such a
// case: YAML makes it from yes, on and y.
func restated(f badField) string {
	if decodesItself(deref(f.typ)) || f.Value == "" {
		return ""
	}
	text, quoted := f.Value, false
	if f.Value[0] == '"' {
		quoted = true
		if json.Unmarshal([]byte(f.Value), &text) != nil {
			return "" // cut
		}
	}
	number := describeJSON([]byte(f.Value)) == "a number"
	switch kind := deref(f.typ).Kind(); {
	case isInt(kind) && quoted:
		if _, err := strconv.ParseInt(text, 10, 64); err == nil && json.Valid([]byte(text)) {
			return text
		}
	case isInt(kind) && number:
		const exact = 1 << 53
		if n, err := strconv.ParseFloat(text, 64); err == nil && n == math.Trunc(n) && math.Abs(n) < exact {
			return strconv.FormatInt(int64(n), 10)
		}
	case kind == reflect.Bool && quoted && (text == "true" || text == "false"):
		return text
	case kind == reflect.String && number && json.Valid([]byte(text)):
		return quoteJSON(text)
	}
	return ""
}

// placeholder is what to replace by hand, as JSON will stand once that is done:
// in quotes if a string is wanted.
func placeholder(t reflect.Type) string {
	name, sample := sampleOf(t, 0)
	if s, ok := strings.CutPrefix(sample, `"`); ok {
		return `"<` + name + ` such as ` + strings.TrimSuffix(s, `"`) + `>"`
	}
	switch sample {
	case "true":
		return "<true or false>"
	case "":
		return "<" + name + ">"
	}
	return "<" + name + " such as " + sample + ">"
}

// sampleOf names a type for a person and returns a JSON sample of it, "" where
// none is known.
func sampleOf(t reflect.Type, depth int) (name, sample string) {
	t = deref(t)
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "duration", `"30s"`
	case reflect.TypeFor[resource.Quantity]():
		return "quantity", `"100m"`
	case reflect.TypeFor[metav1.Time]():
		return "time", `"2026-01-31T15:04:05Z"`
	case reflect.TypeFor[metav1.MicroTime]():
		return "time", `"2026-01-31T15:04:05.000000Z"`
	case reflect.TypeFor[intstr.IntOrString]():
		return "number, or name in quotes,", `80`
	}
	switch kind := t.Kind(); {
	case decodesItself(t), depth > 4:
		return "JSON of " + t.String(), ""
	case isInt(kind):
		return "whole number", `1`
	case kind == reflect.Float32, kind == reflect.Float64:
		return "number", `0.5`
	case kind == reflect.Bool:
		return "bool", `true`
	case kind == reflect.String:
		return "string", `"text"`
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "base64", `"dGV4dA=="`
	case kind == reflect.Slice, kind == reflect.Array:
		if _, elem := sampleOf(t.Elem(), depth+1); elem != "" {
			return "list", "[" + elem + "]"
		}
		return "list", `[]`
	case kind == reflect.Map:
		_, elem := sampleOf(t.Elem(), depth+1)
		if _, key := sampleOf(t.Key(), depth+1); elem != "" && key == `"text"` {
			return "object", `{"key":` + elem + `}`
		}
		return "object", `{}`
	case kind == reflect.Struct:
		return "object of " + t.String(), `{}`
	default:
		return "JSON", `{}`
	}
}

// shellQuote quotes s for a POSIX shell.
func shellQuote(s string) string {
	plain := s != ""
	for _, c := range s {
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._/", c))
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
