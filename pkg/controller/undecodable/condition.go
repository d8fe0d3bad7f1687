package undecodable

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The condition that says whether an object can be decoded. It is there only once
// that has not been so.
const (
	Condition = "Decodable"
	// ReasonUndecodable goes with False, ReasonDecoded with True.
	ReasonUndecodable = "Undecodable"
	ReasonDecoded     = "Decoded"
)

// liveObject is as much of an object as a condition depends on. The status stays
// text: nobody knows what it holds.
type liveObject struct {
	Metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
		Generation      int64     `json:"generation"`
	} `json:"metadata"`
	Status json.RawMessage `json:"status"`
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// noPlaceError says that a status cannot hold a condition.
type noPlaceError struct{ field, found string }

func (e noPlaceError) Error() string {
	return fmt.Sprintf("%s is %s, so that no condition can be put there", e.field, e.found)
}

// falsePatch returns the JSON patch that puts Decodable=False with that message into
// the live object's status, nil if it is there already. turned is whether the
// condition was not False before.
//
// Each operation that could land on what somebody else has put there meanwhile is
// tested: a test for null holds where there is nothing.
func falsePatch(live liveObject, message string, now time.Time) (patch []operation, turned bool, err error) {
	want := metav1.Condition{
		Type: Condition, Status: metav1.ConditionFalse, Reason: ReasonUndecodable, Message: message,
		ObservedGeneration: live.Metadata.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	test := []operation{{"test", "/metadata/uid", live.Metadata.UID}}
	if isNull(live.Status) {
		return append(test, operation{"test", "/status", nil},
			operation{"add", "/status", map[string]any{"conditions": []metav1.Condition{want}}}), true, nil
	}
	var status map[string]json.RawMessage
	if json.Unmarshal(live.Status, &status) != nil {
		return nil, false, noPlaceError{"status", cut(string(live.Status), maxWords)}
	}
	if isNull(status["conditions"]) {
		return append(test, operation{"test", "/status/conditions", nil},
			operation{"add", "/status/conditions", []metav1.Condition{want}}), true, nil
	}
	var conditions []json.RawMessage
	if json.Unmarshal(status["conditions"], &conditions) != nil {
		return nil, false, noPlaceError{"status.conditions", cut(string(status["conditions"]), maxWords)}
	}
	for n, raw := range conditions {
		var old map[string]any
		if json.Unmarshal(raw, &old) != nil || old["type"] != Condition {
			continue
		}
		turned = old["status"] != string(metav1.ConditionFalse)
		if since, err := time.Parse(time.RFC3339, fmt.Sprint(old["lastTransitionTime"])); err == nil && !turned {
			want.LastTransitionTime = metav1.NewTime(since)
			if old["reason"] == want.Reason && old["message"] == want.Message && old["observedGeneration"] == float64(want.ObservedGeneration) {
				return nil, false, nil
			}
		}
		at := fmt.Sprintf("/status/conditions/%d", n)
		return append(test, operation{"test", at + "/type", Condition}, operation{"replace", at, want}), turned, nil
	}
	return append(test, operation{"add", "/status/conditions/-", want}), true, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
