package child

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// matches says whether every leaf of the apply configuration is in the live object
// with an equal value. Fields that the configuration does not mention, defaults of
// the API server and other people's, do not count.
func (k Kind[T, A]) matches(config any, live runtime.Object) (bool, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return false, err
	}
	var want map[string]any
	if err := json.Unmarshal(data, &want); err != nil {
		return false, err
	}
	// The same through the typed object writes quantities, durations and numbers
	// as the API server does; want says which of its fields count.
	typed := reflect.New(reflect.TypeOf(live).Elem()).Interface()
	if err := json.Unmarshal(data, typed); err != nil {
		return false, err
	}
	canonical, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return false, err
	}
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, err
	}
	// Cached objects have none.
	delete(want, "apiVersion")
	delete(want, "kind")
	return k.covers("", want, canonical, have), nil
}

// covers compares at the places that want has; canonical has the values for them.
func (k Kind[T, A]) covers(field string, want, canonical, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		if k.AtomicMaps[field] {
			return reflect.DeepEqual(canonical, have)
		}
		canonicalMap, ok := canonical.(map[string]any)
		if !ok {
			return true // empty: the typed object leaves it out too
		}
		haveMap, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			if !k.covers(name, value, canonicalMap[name], haveMap[name]) {
				return false
			}
		}
		return true
	case []any:
		canonicalList, _ := canonical.([]any)
		if len(want) == 0 || len(canonicalList) != len(want) || k.listKeys(field, canonicalList[0]) == nil {
			return reflect.DeepEqual(canonical, have)
		}
		haveList, _ := have.([]any)
		for n := range want {
			element := lookup(haveList, canonicalList[n], k.listKeys(field, canonicalList[n]))
			if element == nil || !k.covers("", want[n], canonicalList[n], element) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(canonical, have)
}

// listKeys are the keys by which the list in field is merged, nil for one value.
func (k Kind[T, A]) listKeys(field string, element any) []string {
	if field == "ownerReferences" {
		return []string{"uid"}
	}
	e, ok := element.(map[string]any)
	if !ok || k.Lists == nil {
		return nil
	}
	return k.Lists(field, e)
}

// lookup returns the element of list with the same keys as like, nil if there is
// none.
func lookup(list []any, like any, keys []string) any {
	l, _ := like.(map[string]any)
	for _, element := range list {
		e, _ := element.(map[string]any)
		same := e != nil
		for _, key := range keys {
			same = same && reflect.DeepEqual(e[key], l[key])
		}
		if same {
			return element
		}
	}
	return nil
}
