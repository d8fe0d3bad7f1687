package informer

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// maxBadFields bounds what is said about one object.
	maxBadFields = 32
	// maxFieldDepth bounds how deep a path goes; what is wrong further down is
	// reported at this depth.
	maxFieldDepth = 64
	// maxFieldText bounds a value and a reason, in bytes.
	maxFieldText = 120
)

// badField is one place in an object that does not fit its Go type.
type badField struct {
	// Path as in spec.backends[2].weight; a key that is no identifier is quoted,
	// as in metadata.annotations["a.b/c"]. Empty for the object itself.
	Path string
	// Value is the JSON found there, cut to maxFieldText bytes.
	Value string
	// GoType is what should be there, as in *v1.Duration.
	GoType string
	// Reason says why it does not fit, in words for the person who wrote it.
	Reason string

	steps []step       // Path, taken apart
	typ   reflect.Type // GoType
	key   bool         // it is the last step that does not fit, not the value

	quoted bool // the field has the json option "string"
}

// step is one step of a path: into a list when key is nil, else to a member.
type step struct {
	key   *string
	index int
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func formatPath(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case s.key == nil:
			fmt.Fprintf(&b, "[%d]", s.index)
		case !identifier.MatchString(*s.key):
			fmt.Fprintf(&b, "[%s]", quoteJSON(*s.key))
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(*s.key)
		}
	}
	return b.String()
}

// quoteJSON is json.Marshal for strings, without escaping <, > and &.
func quoteJSON(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// findBadFields returns every place where the JSON object raw does not fit typ,
// or the first maxBadFields of them; none if, and only if, the whole of it fits.
//
// The errors of Duration, Quantity, Time and every other type that decodes
// itself do not say where they arose, and decoding ends with the first of them.
// So this walks raw along typ and tries every part on its own, as the decoder
// does. It is slow, and meant for objects that are known to be bad. What
// fails as a whole and in none of its parts is reported as a whole.
//
// It quotes what it finds: not for types that hold secrets.
func findBadFields(raw []byte, typ reflect.Type) []badField {
	f := &fieldFinder{}
	f.walk(bytes.TrimSpace(raw), typ, nil)
	return f.found
}

// blame is findBadFields for raw that is known not to fit: err says so.
func blame(raw []byte, typ reflect.Type, err error) []badField {
	f := &fieldFinder{}
	if raw = bytes.TrimSpace(raw); !f.parts(raw, typ, nil) {
		f.reportWhole(raw, typ, err, nil)
	}
	return f.found
}

type fieldFinder struct {
	found []badField
}

// walk reports what is wrong with raw and returns whether anything is.
func (f *fieldFinder) walk(raw []byte, t reflect.Type, path []step) bool {
	if len(f.found) == maxBadFields || planOf(t).fits(raw) {
		return false
	}
	// What is wrong with a part is wrong with the whole, so the whole is asked
	// last. (An array ignores what is beyond its length, but one that is fine
	// fits: no plan decodes it, the typed client's decoder does.)
	if len(path) < maxFieldDepth && f.parts(raw, t, path) {
		return true
	}
	err := unmarshalAlone(raw, t)
	if err != nil {
		f.reportWhole(raw, t, err, path)
	}
	return err != nil
}

func (f *fieldFinder) reportWhole(raw []byte, t reflect.Type, err error, path []step) {
	f.report(badField{Value: shorten(string(raw)), Reason: shorten(reason(raw, t, err)), typ: t}, path)
}

// parts walks the parts of raw and returns whether any of them is wrong.
func (f *fieldFinder) parts(raw []byte, t reflect.Type, path []step) bool {
	for !planOf(t).self && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if planOf(t).self || len(raw) == 0 {
		return false
	}
	wrong := false
	part := func(raw []byte, t reflect.Type, s step) {
		if f.walk(raw, t, append(path[:len(path):len(path)], s)) {
			wrong = true
		}
	}
	each := func(elem reflect.Type) error {
		i := 0
		return elements(raw, func(value []byte) bool {
			part(value, elem, step{index: i})
			i++
			return len(f.found) < maxBadFields
		})
	}
	switch {
	case t.Kind() == reflect.Struct && raw[0] == '{':
		fields := jsonFields(t)
		_ = members(raw, func(rawKey, value []byte) bool {
			key := string(rawKey)
			if field, ok := fields[key]; ok {
				if field.quoted {
					wrong = f.quoted(value, field.typ, append(path[:len(path):len(path)], step{key: &key})) || wrong
				} else {
					part(value, field.typ, step{key: &key})
				}
			}
			return len(f.found) < maxBadFields
		})
	case t.Kind() == reflect.Map && raw[0] == '{':
		_ = members(raw, func(rawKey, value []byte) bool {
			key := string(rawKey)
			s := step{key: &key}
			if err := tryKey(key, t); err != nil {
				wrong = true
				f.report(badField{Value: shorten(quoteJSON(key)), Reason: shorten(err.Error()), typ: t.Key(), key: true},
					append(path[:len(path):len(path)], s))
			} else {
				part(value, t.Elem(), s)
			}
			return len(f.found) < maxBadFields
		})
	case (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && raw[0] == '[':
		_ = each(t.Elem())
	case t.Kind() == reflect.Interface && t.NumMethod() == 0 && raw[0] == '[':
		_ = each(t)
	case t.Kind() == reflect.Interface && t.NumMethod() == 0 && raw[0] == '{':
		_ = members(raw, func(rawKey, value []byte) bool {
			key := string(rawKey)
			part(value, t, step{key: &key})
			return len(f.found) < maxBadFields
		})
	}
	return wrong
}

// quoted is walk for a field with the json option "string".
func (f *fieldFinder) quoted(raw []byte, t reflect.Type, path []step) bool {
	if len(f.found) == maxBadFields || tryField(raw, t, `json:"f,string"`) == nil {
		return false
	}
	f.report(badField{Value: shorten(string(raw)), Reason: shorten("is " + describeJSON(raw) + ", must be " + describe(t) + " in quotes"), typ: t, quoted: true}, path)
	return true
}

func (f *fieldFinder) report(b badField, path []step) {
	b.steps = slices.Clone(path)
	b.Path, b.GoType = formatPath(path), b.typ.String()
	f.found = append(f.found, b)
}

// tryDecode decodes raw alone, as the decoder does where it is.
func tryDecode(raw []byte, t reflect.Type) error {
	if planOf(t).fits(raw) {
		return nil
	}
	return unmarshalAlone(raw, t)
}

func unmarshalAlone(raw []byte, t reflect.Type) error {
	if t.Name() == "" && t.Kind() == reflect.Struct && decodes(reflect.PointerTo(t)) {
		// The decoder heeds UnmarshalJSON of a struct without a name only where
		// it starts from its pointer.
		return tryField(raw, t, `json:"f"`)
	}
	return unmarshal(raw, reflect.New(t).Interface())
}

// tryField decodes raw as the field of a struct.
func tryField(raw []byte, t reflect.Type, tag reflect.StructTag) error {
	s := reflect.StructOf([]reflect.StructField{{Name: "F", Type: t, Tag: tag}})
	return unmarshal(slices.Concat([]byte(`{"f":`), raw, []byte(`}`)), reflect.New(s).Interface())
}

// tryKey decodes one key of a map.
func tryKey(key string, t reflect.Type) error {
	if t.Key().Kind() == reflect.String && !decodes(reflect.PointerTo(t.Key())) {
		return nil // any key is; a map of 25,000 would take 0.1 s
	}
	m := reflect.MapOf(t.Key(), reflect.TypeFor[struct{}]())
	return unmarshal([]byte(`{`+quoteJSON(key)+`:{}}`), reflect.New(m).Interface())
}

var (
	unmarshalerType     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func decodes(t reflect.Type) bool {
	return t.Implements(unmarshalerType) || t.Implements(textUnmarshalerType)
}

// decodesItself reports whether the decoder leaves a value of type t to its own
// UnmarshalJSON or UnmarshalText, so that there is nothing in it to walk.
func decodesItself(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		return decodes(t)
	}
	return t.Name() != "" && t.Kind() != reflect.Interface && decodes(reflect.PointerTo(t))
}

// reason says in words why raw is not a t. Errors of types that decode
// themselves are in words already, as a rule.
func reason(raw []byte, t reflect.Type, err error) string {
	t = deref(t)
	got := "is " + describeJSON(raw)
	var mismatch *json.UnmarshalTypeError
	switch {
	case t == reflect.TypeFor[resource.Quantity](): // its error is a regular expression
	case !errors.As(err, &mismatch):
		return strings.TrimPrefix(err.Error(), "json: ")
	case got != "is a number":
	case t == reflect.TypeFor[intstr.IntOrString](), isInt(t.Kind()) && !decodesItself(t):
		if got = "is out of range"; bytes.ContainsAny(raw, ".eE") {
			got = "is not written as a whole number"
		}
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64, t.Kind() == reflect.Interface:
		got = "is out of range"
	}
	return got + ", must be " + describe(t)
}

func describeJSON(raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false without quotes"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// describe says what JSON a type is written as.
func describe(t reflect.Type) string {
	t = deref(t)
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return `a duration such as "30s"`
	case reflect.TypeFor[resource.Quantity]():
		return `a quantity such as "100m" or "1Gi"`
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "a time in quotes"
	case reflect.TypeFor[intstr.IntOrString]():
		return "a whole number (int32) or a string"
	}
	switch kind := t.Kind(); {
	case decodesItself(t):
		return "a " + t.String()
	case isInt(kind):
		unsigned := kind >= reflect.Uint
		bits := t.Bits()
		if unsigned {
			return fmt.Sprintf("a whole number from 0 to %d (%s)", ^uint64(0)>>(64-bits), kind)
		}
		limit := int64(1)<<(bits-1) - 1
		return fmt.Sprintf("a whole number from %d to %d (%s)", -limit-1, limit, kind)
	case kind == reflect.Float32, kind == reflect.Float64:
		return "a number (" + kind.String() + ")"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.String:
		return "a string (in quotes)"
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "a string in base64"
	case kind == reflect.Slice, kind == reflect.Array:
		return "a list"
	case kind == reflect.Struct, kind == reflect.Map:
		return "an object"
	default:
		return "a float64 at most"
	}
}

func isInt(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uintptr }

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// shorten cuts s to maxFieldText bytes, not within a character. What is no UTF-8 is
// replaced: JSON written from it would differ from it, and a message be taken for a
// new one each time it is compared with what is stored.
func shorten(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= maxFieldText {
		return s
	}
	const dots = "…"
	n := maxFieldText - len(dots)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + dots + " (" + strconv.Itoa(len(s)) + " bytes)"
}
