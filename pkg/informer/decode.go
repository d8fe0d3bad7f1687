package informer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// object is what a decoder makes: a pointer to a Kubernetes API type.
type object interface {
	runtime.Object
	metav1.Object
}

// decoder makes objects of one Go type from the JSON that the API server sends,
// one by one, so that one that does not fit its type costs only itself.
//
// An object that fits is the one that client-go's typed client makes from the
// same bytes, to the last field: custom UnmarshalJSON included, no defaulting, no
// conversion. Plain JSON is decoded along a plan of the type (see plan.fast),
// everything else by the typed client's library with the typed client's options;
// only that library ever calls an object bad. Two things are different, and
// always so:
//
//   - TypeMeta is empty. The typed client clears it on watch and on get, but
//     leaves it on the items of a list of custom resources, so that the same
//     object looks different depending on how it got into the cache.
//   - managedFields are dropped unless asked for, before they are decoded, which
//     saves most of their cost. They are still checked to be JSON, but
//     not to be managedFields.
type decoder struct {
	typ               reflect.Type // a struct whose pointer is an object
	keepManagedFields bool
	plan              *plan // made for both of the above
}

// newDecoder returns a decoder of objects of type t, a pointer to a struct.
func newDecoder(t reflect.Type, keepManagedFields bool) (*decoder, error) {
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || !t.Implements(reflect.TypeFor[object]()) {
		return nil, fmt.Errorf("%s cannot be decoded item by item: a pointer to a Kubernetes API type is needed", t)
	}
	return &decoder{typ: t.Elem(), keepManagedFields: keepManagedFields, plan: objectPlan(t.Elem(), keepManagedFields)}, nil
}

func (d *decoder) new() object { return reflect.New(d.typ).Interface().(object) }

// item is one object as it arrived: exactly one of the two is set.
type item struct {
	object object
	bad    *badItem
}

// badItem is well-formed JSON that is not an object of the decoder's type.
type badItem struct {
	// meta is what could be read of the metadata, see readMetadata.
	meta metav1.ObjectMeta
	// fields are the places that do not fit, never empty, at most maxBadFields.
	fields []badField
	// err is the decoder's own.
	err error
}

// hasKey reports whether it is known which object this is.
func (b *badItem) hasKey() bool { return b.meta.Name != "" }

// item decodes one object. It may change raw. The error is errMalformed: raw is
// no JSON at all.
func (d *decoder) item(raw []byte) (item, error) {
	v := reflect.New(d.typ)
	obj := v.Interface().(object)
	if d.plan.fast(raw, v.Elem()) {
		return item{object: d.clear(obj)}, nil
	}
	v.Elem().SetZero() // fast may have begun
	if !d.keepManagedFields {
		var err error
		if raw, err = dropManagedFields(raw); err != nil {
			return item{}, err
		}
	}
	if err := unmarshal(raw, obj); err != nil {
		// A custom UnmarshalJSON may call a syntax error what is well-formed
		// (a string that should hold JSON), so the error alone does not tell.
		if !validJSON(raw) {
			return item{}, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return item{bad: &badItem{meta: readMetadata(raw), fields: blame(raw, d.typ, err), err: err}}, nil
	}
	return item{object: d.clear(obj)}, nil
}

// clear takes away what no object of this decoder has.
func (d *decoder) clear(obj object) object {
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if !d.keepManagedFields && obj.GetManagedFields() != nil {
		obj.SetManagedFields(nil)
	}
	return obj
}

// unmarshal is what decides whether bytes fit a type: the typed client's JSON
// decoder with the typed client's options. A type whose UnmarshalJSON panics is
// a type that the bytes do not fit.
func unmarshal(raw []byte, into any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decoding %T panicked: %v", into, r)
		}
	}()
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// validJSON is json.Valid, and quicker on what is valid.
func validJSON(raw []byte) bool {
	return ignore.fast(raw, reflect.Value{}) || json.Valid(raw)
}

var ignore = &plan{op: opIgnore}

var null = []byte("null")

// dropManagedFields returns raw with null in place of metadata.managedFields.
// What comes before moves up in place; that is little, since the API server
// writes metadata first. Anything unusual is left as it is.
func dropManagedFields(raw []byte) ([]byte, error) {
	var managed []byte
	_ = members(raw, func(key, metadata []byte) bool {
		if string(key) != "metadata" {
			return true
		}
		_ = members(metadata, func(key, value []byte) bool {
			if string(key) == "managedFields" {
				managed = value
			}
			return managed == nil
		})
		return false
	})
	if len(managed) <= len(null) {
		return raw, nil
	}
	if !validJSON(managed) {
		return nil, fmt.Errorf("%w: managedFields", errMalformed)
	}
	start := cap(raw) - cap(managed) // managed is a slice of raw
	cut := len(managed) - len(null)
	copy(raw[start+cut:], null)
	copy(raw[cut:], raw[:start])
	return raw[cut:], nil
}

// readMetadata reads what identifies an object and what deletes it: name,
// namespace, uid, resourceVersion, generation, creationTimestamp,
// deletionTimestamp, deletionGracePeriodSeconds, finalizers and
// ownerReferences. Each is read on its own and is zero when it cannot be, so that
// one bad annotation does not hide whose annotation it is. A list keeps the
// elements that can be read.
func readMetadata(raw []byte) metav1.ObjectMeta {
	var m metav1.ObjectMeta
	read := func(key, value []byte) bool {
		switch string(key) {
		case "name":
			readInto(value, &m.Name)
		case "namespace":
			readInto(value, &m.Namespace)
		case "uid":
			readInto(value, &m.UID)
		case "resourceVersion":
			readInto(value, &m.ResourceVersion)
		case "generation":
			readInto(value, &m.Generation)
		case "creationTimestamp":
			readInto(value, &m.CreationTimestamp)
		case "deletionTimestamp":
			readInto(value, &m.DeletionTimestamp)
		case "deletionGracePeriodSeconds":
			readInto(value, &m.DeletionGracePeriodSeconds)
		case "finalizers":
			readList(value, &m.Finalizers)
		case "ownerReferences":
			readList(value, &m.OwnerReferences)
		}
		return true
	}
	_ = members(raw, func(key, value []byte) bool {
		if string(key) == "metadata" {
			_ = members(value, read)
		}
		return true
	})
	return m
}

// readInto leaves *into alone when raw does not fit; a repeated key that fits
// replaces what was read before.
func readInto[F any](raw []byte, into *F) {
	if f, ok := read[F](raw); ok {
		*into = f
	}
}

// read decodes raw unless it is null or does not fit.
func read[F any](raw []byte) (f F, ok bool) {
	if bytes.Equal(raw, null) {
		return f, false
	}
	if planOf(reflect.TypeFor[F]()).fast(raw, reflect.ValueOf(&f).Elem()) {
		return f, true
	}
	var again F
	return again, unmarshal(raw, &again) == nil
}

func readList[F any](raw []byte, into *[]F) {
	var list []F
	err := elements(raw, func(value []byte) bool {
		if f, ok := read[F](value); ok {
			list = append(list, f)
		}
		return true
	})
	if err == nil {
		*into = list
	}
}
