package conditions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networking "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	platform "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
)

func TestConditionTypesOfTheAPIs(t *testing.T) {
	want := []string{ready, degraded, dependenciesReady}
	for name, got := range map[string][]string{
		"WebApp":           {platform.ConditionReady, platform.ConditionDegraded, platform.ConditionDependenciesReady},
		"ApplicationRoute": {networking.ConditionReady, networking.ConditionDegraded, networking.ConditionDependenciesReady},
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTransitions(t *testing.T) {
	at := func(conditionType, status, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: conditionType, Status: metav1.ConditionStatus(status), Reason: reason, Message: "so"}}
	}
	cases := map[string]struct {
		reason    string
		old, next []metav1.Condition
		want      []Transition
	}{
		"New":         {"not done yet is no news", nil, at(ready, "False", "X"), nil},
		"Ready":       {"done", at(ready, "False", "X"), at(ready, "True", "Available"), []Transition{{"Normal", "Ready", "so", false}}},
		"StillReady":  {"nothing new", at(ready, "True", "Available"), at(ready, "True", "Available"), nil},
		"Missing":     {"from the start", nil, at(dependenciesReady, "False", "Missing"), []Transition{{"Warning", "Missing", "so", true}}},
		"StillGone":   {"said once", at(dependenciesReady, "False", "Missing"), at(dependenciesReady, "False", "Missing"), nil},
		"Found":       {"it has come", at(dependenciesReady, "False", "Missing"), at(dependenciesReady, "True", "Found"), []Transition{{"Normal", "Found", "every dependency exists", false}}},
		"NeverGone":   {"what was never missing is no news", nil, at(dependenciesReady, "True", "Found"), nil},
		"Degraded":    {"something lasting", nil, at(degraded, "True", "Invalid"), []Transition{{"Warning", "Invalid", "so", true}}},
		"OtherReason": {"is news", at(degraded, "True", "Invalid"), at(degraded, "True", "Forbidden"), []Transition{{"Warning", "Forbidden", "so", true}}},
		"Namespace":   {"no Event can be created there", nil, at(degraded, "True", reasonNamespaceTerminating), nil},
		"Mended": {"decoded again", at(undecodable.Condition, "False", "Undecodable"), at(undecodable.Condition, "True", "Decoded"),
			[]Transition{{"Normal", "Decoded", "the object can be decoded again and is reconciled", false}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Transitions(tc.old, tc.next)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
