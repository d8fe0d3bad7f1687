package informer

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A plan says how to decode JSON into one Go type. It is made once for a type,
// from the same rules that the typed client's decoder applies to every value
// again.
//
// A plan knows the plain cases only. Where a type, or the bytes, are anything
// else, it declines, and the typed client's own decoder decides; see fast.
type plan struct {
	op  op
	typ reflect.Type
	// self is set if values of the type decode themselves.
	self bool
	// elem is what a pointer points to and what a slice or a map consists of.
	elem *plan
	// fields of a struct, sorted by name.
	fields []fieldPlan
}

type op byte

const (
	// opDecline is for what depends on more than the value's own bytes.
	opDecline op = iota
	// opReference hands the value to the typed client's decoder: maps with
	// other keys than strings, arrays, interfaces, UnmarshalText and whatever no
	// API type has.
	opReference
	opUnmarshaler // has UnmarshalJSON
	opTime        // metav1.Time
	opDuration    // metav1.Duration
	opString
	opBool
	opInt
	opUint
	opFloat
	opPointer
	opSlice
	opMap       // keys are strings
	opStringMap // map[string]string
	opStruct
	// opText checks that there is a string (or null) and drops it.
	opText
	// opIgnore checks that there is JSON and drops it.
	opIgnore
)

type fieldPlan struct {
	name  string
	index []int
	*plan
}

var plans sync.Map // reflect.Type to *plan

// planOf returns the plan for values of type t.
func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	// Types refer to themselves, so unfinished plans must be found too, but not
	// by another goroutine.
	made := planner{}
	p := made.plan(t)
	for t, p := range made {
		plans.LoadOrStore(t, p)
	}
	return p
}

type planner map[reflect.Type]*plan

func (made planner) plan(t reflect.Type) *plan {
	if p, ok := made[t]; ok {
		return p
	}
	p := &plan{op: opOf(t), typ: t, self: decodesItself(t)}
	made[t] = p
	switch p.op {
	case opPointer, opSlice, opMap:
		p.elem = made.plan(t.Elem())
	case opStruct:
		for name, f := range jsonFields(t) {
			field := fieldPlan{name: name, index: f.index, plan: &plan{op: opDecline, typ: f.typ}}
			if !f.quoted && !throughPointer(t, f.index) {
				field.plan = made.plan(f.typ)
			}
			p.fields = append(p.fields, field)
		}
		slices.SortFunc(p.fields, func(a, b fieldPlan) int { return strings.Compare(a.name, b.name) })
	}
	return p
}

func opOf(t reflect.Type) op {
	pointer := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return opTime
	case t == reflect.TypeFor[metav1.Duration]():
		return opDuration
	case t == reflect.TypeFor[json.Number]():
		return opReference
	case t.Kind() == reflect.Interface:
		return opReference
	case t.Kind() != reflect.Pointer && decodes(pointer):
		switch {
		case t.Name() == "":
			return opDecline // heeded or not, depending on where it is
		case pointer.Implements(unmarshalerType):
			return opUnmarshaler
		default:
			return opReference
		}
	}
	switch kind := t.Kind(); kind {
	case reflect.String:
		return opString
	case reflect.Bool:
		return opBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return opInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return opUint
	case reflect.Float32, reflect.Float64:
		return opFloat
	case reflect.Pointer:
		return opPointer
	case reflect.Slice:
		return opSlice
	case reflect.Map:
		switch {
		case t == reflect.TypeFor[map[string]string]():
			return opStringMap
		case t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textUnmarshalerType):
			return opMap
		}
	case reflect.Struct:
		if len(jsonFields(t)) <= maxFields {
			return opStruct
		}
	}
	return opReference
}

// throughPointer reports whether a field lies in a struct that is embedded as
// a pointer.
func throughPointer(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		t = t.Field(i).Type
		if t.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

// objectPlan is planOf for the type of a whole object. What is cleared
// afterwards is not stored first.
func objectPlan(t reflect.Type, keepManagedFields bool) *plan {
	p := *planOf(t)
	if p.op != opStruct {
		return &p
	}
	p.fields = slices.Clone(p.fields)
	for i, f := range p.fields {
		switch {
		case len(f.index) == 2 && t.FieldByIndex(f.index[:1]).Type == reflect.TypeFor[metav1.TypeMeta]():
			p.fields[i].plan = &plan{op: opText, typ: f.typ}
		case f.name == "metadata" && f.typ == reflect.TypeFor[metav1.ObjectMeta]() && !keepManagedFields:
			meta := *f.plan
			meta.fields = slices.Clone(meta.fields)
			for j, f := range meta.fields {
				if f.name == "managedFields" {
					meta.fields[j].plan = &plan{op: opIgnore, typ: f.typ}
				}
			}
			p.fields[i].plan = &meta
		}
	}
	return &p
}

// field returns the place of the field called name, -1 if there is none. The
// API server writes the fields of custom resources in the order of their names,
// so it is looked for from next on first.
func (p *plan) field(name []byte, next int) int {
	if next < len(p.fields) && p.fields[next].name == string(name) {
		return next
	}
	low, high := 0, len(p.fields)
	for low < high {
		middle := (low + high) / 2
		switch at := p.fields[middle].name; {
		case at == string(name):
			return middle
		case at < string(name):
			low = middle + 1
		default:
			high = middle
		}
	}
	return -1
}
