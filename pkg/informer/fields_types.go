package informer

import (
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// jsonField is a member of a JSON object as a Go struct sees it.
type jsonField struct {
	typ    reflect.Type
	index  []int // as for reflect.Type.FieldByIndex
	quoted bool  // has the json option "string"
}

var jsonFieldsCache sync.Map // reflect.Type to map[string]jsonField

// jsonFields returns what the decoder takes from a JSON object for struct t, by
// member name, embedded structs included. The rules are those of encoding/json:
// of several fields of one name the one embedded least deep wins, then the one
// with a tag; where that leaves more than one, none is decoded.
func jsonFields(t reflect.Type) map[string]jsonField {
	if cached, ok := jsonFieldsCache.Load(t); ok {
		return cached.(map[string]jsonField)
	}
	fields := map[string]jsonField{}
	type embedding struct {
		typ   reflect.Type
		index []int
	}
	level := []embedding{{typ: t}}
	visited := map[reflect.Type]bool{}
	for len(level) > 0 {
		type candidate struct {
			jsonField
			tagged bool
		}
		var next []embedding
		// A struct embedded twice at the same depth hides its own fields.
		embedded := map[reflect.Type]int{}
		for _, e := range level {
			embedded[e.typ]++
		}
		found := map[string][]candidate{}
		for _, e := range level {
			s := e.typ
			if visited[s] {
				continue
			}
			visited[s] = true
			for i := range s.NumField() {
				sf := s.Field(i)
				index := append(e.index[:len(e.index):len(e.index)], i)
				tag := sf.Tag.Get("json")
				if tag == "-" || !sf.IsExported() && !(sf.Anonymous && deref1(sf.Type).Kind() == reflect.Struct) {
					continue
				}
				name, options, _ := strings.Cut(tag, ",")
				if !validName(name) {
					name = ""
				}
				if name == "" && sf.Anonymous && deref1(sf.Type).Kind() == reflect.Struct {
					next = append(next, embedding{deref1(sf.Type), index})
					continue
				}
				c := candidate{jsonField{sf.Type, index, hasOption(options, "string") && quotable(deref1(sf.Type).Kind())}, name != ""}
				if name == "" {
					name = sf.Name
				}
				for range embedded[s] {
					found[name] = append(found[name], c)
				}
			}
		}
		for name, candidates := range found {
			if _, hidden := fields[name]; hidden {
				continue
			}
			best := candidates
			if len(candidates) > 1 {
				best = nil
				for _, c := range candidates {
					if c.tagged {
						best = append(best, c)
					}
				}
			}
			if len(best) == 1 {
				fields[name] = best[0].jsonField
			} else {
				fields[name] = jsonField{} // hides what is embedded deeper
			}
		}
		level = next
	}
	for name, f := range fields {
		if f.typ == nil {
			delete(fields, name)
		}
	}
	jsonFieldsCache.Store(t, fields)
	return fields
}

// deref1 takes one pointer away, which is as much as embedding allows.
func deref1(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func hasOption(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want {
			return true
		}
	}
	return false
}

func quotable(k reflect.Kind) bool {
	return k == reflect.Bool || k == reflect.String || isInt(k) || k == reflect.Float32 || k == reflect.Float64
}

// validName reports whether the decoder takes name from a tag.
func validName(name string) bool {
	for _, c := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return name != ""
}
