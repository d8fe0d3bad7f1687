package informer

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fast decodes the JSON value raw into v, which must be zero, and returns whether
// it did. If so, v is what the typed client's decoder (unmarshal) makes of raw, to
// the last field. If not, nothing is said about raw, and v is to be thrown away.
//
// It exists because unmarshal goes over the bytes two to three times, with an
// indirect call for most of them: to check that they are JSON, to find where
// values end, and to decode them. This goes over them once, along a plan. What
// keeps the two equal is that this one declines whatever is not plain: a repeated
// or an escaped key, a null that a type may refuse, deep nesting, invalid UTF-8, a
// surrogate pair, a value that does not fit. So it needs to know nothing about
// errors and little about the corners of JSON in Go. Types that decode themselves
// do so here too; one whose UnmarshalJSON fails is asked again by unmarshal.
//
// FuzzFast and TestFastEqualsTypedClient (all kinds of Kubernetes) hold the two
// against each other.
func (p *plan) fast(raw []byte, v reflect.Value) (ok bool) {
	defer func() {
		if recover() != nil { // in an UnmarshalJSON
			ok = false
		}
	}()
	c := cursors.Get().(*cursor)
	c.data, c.pos, c.depth = raw, 0, 0
	c.space()
	ok = c.value(p, v) && c.space() == end && c.pos == len(raw)
	c.data = nil
	cursors.Put(c)
	return ok
}

// fits reports whether fast decodes raw.
func (p *plan) fits(raw []byte) bool {
	return p.op != opDecline && p.fast(raw, reflect.New(p.typ).Elem())
}

// end is what a cursor sees behind the last byte; NUL stands nowhere in JSON.
const end = 0

const (
	// maxFields is how many fields of a struct a cursor can tell apart.
	maxFields = 64
	// maxFastDepth is far below what the typed client's decoder allows, so that
	// the limit is its own business.
	maxFastDepth = 128
)

// cursor is a place in JSON text. Its methods return false to decline; where it
// stands then does not matter.
type cursor struct {
	data    []byte
	pos     int
	depth   int
	scratch []byte      // an unescaped string
	known   [512]string // see keep
}

var cursors = sync.Pool{New: func() any { return new(cursor) }}

// value decodes the value that begins at pos into v.
func (c *cursor) value(p *plan, v reflect.Value) bool {
	first := c.peek()
	if first == 'n' {
		return c.null(p, v)
	}
	switch p.op {
	case opStruct:
		return first == '{' && c.object(p, v)
	case opString:
		s, ok := c.text()
		if ok {
			v.SetString(c.keep(s))
		}
		return ok
	case opText:
		return first == '"' && c.skipString()
	case opIgnore:
		return c.skip()
	case opBool:
		yes := first == 't'
		v.SetBool(yes)
		return yes && c.literal("true") || c.literal("false")
	case opInt:
		n, ok := c.integer()
		if !ok || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
		return true
	case opUint:
		n, ok := c.integer()
		if first == '-' || !ok || v.OverflowUint(uint64(n)) {
			return false
		}
		v.SetUint(uint64(n))
		return true
	case opFloat:
		from := c.pos
		if !c.skipNumber() {
			return false
		}
		n, err := strconv.ParseFloat(string(c.data[from:c.pos]), v.Type().Bits())
		v.SetFloat(n)
		return err == nil
	case opPointer:
		to := reflect.New(p.elem.typ)
		v.Set(to)
		return c.value(p.elem, to.Elem())
	case opSlice:
		if first == '"' {
			return c.bytes(v)
		}
		return first == '[' && c.list(p, v)
	case opStringMap:
		return first == '{' && c.stringMap(v)
	case opMap:
		return first == '{' && c.mapOf(p, v)
	case opTime:
		s, ok := c.text()
		if !ok {
			return false
		}
		t, err := time.Parse(time.RFC3339, string(s))
		v.Addr().Interface().(*metav1.Time).Time = t.Local()
		return err == nil
	case opDuration:
		s, ok := c.text()
		if !ok {
			return false
		}
		d, err := time.ParseDuration(string(s))
		v.Addr().Interface().(*metav1.Duration).Duration = d
		return err == nil
	case opUnmarshaler:
		from := c.pos
		return c.skip() && v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(c.data[from:c.pos:c.pos]) == nil
	case opReference:
		from := c.pos
		return c.skip() && unmarshal(c.data[from:c.pos:c.pos], v.Addr().Interface()) == nil
	}
	return false
}

// null leaves v as it is, zero. Types that decode themselves are asked what they
// make of it, unless a pointer to them can be nil.
func (c *cursor) null(p *plan, v reflect.Value) bool {
	if !c.literal("null") {
		return false
	}
	switch p.op {
	case opUnmarshaler:
		return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON([]byte("null")) == nil
	case opDuration, opDecline:
		return false
	case opReference:
		return unmarshal([]byte("null"), v.Addr().Interface()) == nil
	}
	return true
}

// object decodes into a struct.
func (c *cursor) object(p *plan, v reflect.Value) bool {
	var seen uint64
	next := 0
	for more, ok := c.open('}'); ; more, ok = c.next('}') {
		if !more || !ok {
			return ok
		}
		key, ok := c.plainKey()
		if !ok {
			return false
		}
		i := p.field(key, next)
		if i < 0 {
			if !c.skip() {
				return false
			}
			continue
		}
		if seen&(1<<i) != 0 {
			return false
		}
		seen |= 1 << i
		next = i + 1
		f := &p.fields[i]
		to := v
		for _, i := range f.index {
			to = to.Field(i)
		}
		if !c.value(f.plan, to) {
			return false
		}
	}
}

func (c *cursor) list(p *plan, v reflect.Value) bool {
	n := 0
	for more, ok := c.open(']'); ; more, ok = c.next(']') {
		if !more || !ok {
			if n == 0 {
				v.Set(reflect.MakeSlice(p.typ, 0, 0))
			}
			return ok
		}
		if n == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(n + 1)
		if !c.value(p.elem, v.Index(n)) {
			return false
		}
		n++
	}
}

func (c *cursor) stringMap(v reflect.Value) bool {
	m := make(map[string]string)
	for more, ok := c.open('}'); ; more, ok = c.next('}') {
		if !more || !ok {
			*v.Addr().Interface().(*map[string]string) = m
			return ok
		}
		key, ok := c.key()
		if !ok {
			return false
		}
		k := c.keep(key)
		if c.peek() == 'n' {
			m[k] = ""
			if !c.literal("null") {
				return false
			}
			continue
		}
		value, ok := c.text()
		if !ok {
			return false
		}
		m[k] = c.keep(value)
	}
}

func (c *cursor) mapOf(p *plan, v reflect.Value) bool {
	v.Set(reflect.MakeMap(p.typ))
	k, elem := reflect.New(p.typ.Key()).Elem(), reflect.New(p.elem.typ).Elem()
	for more, ok := c.open('}'); ; more, ok = c.next('}') {
		if !more || !ok {
			return ok
		}
		key, ok := c.key()
		if !ok {
			return false
		}
		k.SetString(c.keep(key))
		elem.SetZero()
		if !c.value(p.elem, elem) {
			return false
		}
		v.SetMapIndex(k, elem)
	}
}

// bytes decodes base64.
func (c *cursor) bytes(v reflect.Value) bool {
	s, ok := c.text()
	if !ok || v.Type().Elem().Kind() != reflect.Uint8 {
		return false
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Decode(b, s)
	if err != nil {
		return false
	}
	v.SetBytes(b[:n])
	return true
}

// keep returns s as a string of its own. Short ones come again and again (label
// keys, reasons, names of owners), so many of them are kept once only.
func (c *cursor) keep(s []byte) string {
	const longest = 32
	if len(s) == 0 || len(s) > longest {
		return string(s)
	}
	hash := uint32(2166136261)
	for _, b := range s {
		hash = (hash ^ uint32(b)) * 16777619
	}
	place := &c.known[(hash^hash>>16)%uint32(len(c.known))]
	if *place != string(s) {
		*place = string(s)
	}
	return *place
}
