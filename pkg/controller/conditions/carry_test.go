package conditions_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/controller/conditions"
)

var then, now = metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))

func condition(conditionType, status, reason, message string, generation int64, since metav1.Time) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionStatus(status), Reason: reason, Message: message,
		ObservedGeneration: generation, LastTransitionTime: since}
}

func computed(conditionType, status, reason, message string) metav1.Condition {
	return condition(conditionType, status, reason, message, 0, metav1.Time{})
}

func TestCarry(t *testing.T) {
	const first, second = "read tcp 10.0.0.1:51234: reset (id 5f3e-9a)", "read tcp 10.0.0.1:60001: reset (id 77aa-0b)"
	cases := map[string]struct {
		reason    string
		old, next metav1.Condition
		failed    bool
		want      []metav1.Condition
	}{
		"New": {"there was none", computed("Other", "True", "X", ""), computed("Ready", "True", "Available", "ok"), false,
			[]metav1.Condition{condition("Ready", "True", "Available", "ok", 3, now)}},
		"SameStatus": {"another reason is no transition", condition("Ready", "False", "RollingOut", "1 of 3", 2, then),
			computed("Ready", "False", "Missing", "gone"), false, []metav1.Condition{condition("Ready", "False", "Missing", "gone", 3, then)}},
		"OtherStatus": {"this is one", condition("Ready", "False", "RollingOut", "1 of 3", 3, then),
			computed("Ready", "True", "Available", "ok"), false, []metav1.Condition{condition("Ready", "True", "Available", "ok", 3, now)}},
		"VolatileWords": {"ports and ids change at each attempt", condition("Ready", "False", "ReconcileError", first, 3, then),
			computed("Ready", "False", "ReconcileError", second), true, []metav1.Condition{condition("Ready", "False", "ReconcileError", first, 3, then)}},
		"NoFailure": {"a count that moves is news", condition("Ready", "False", "RollingOut", "1 of 3", 3, then),
			computed("Ready", "False", "RollingOut", "2 of 3"), false, []metav1.Condition{condition("Ready", "False", "RollingOut", "2 of 3", 3, then)}},
		"OtherWords": {"another failure", condition("Ready", "False", "ReconcileError", first, 3, then),
			computed("Ready", "False", "ReconcileError", "no endpoints"), true, []metav1.Condition{condition("Ready", "False", "ReconcileError", "no endpoints", 3, then)}},
		"OtherGeneration": {"for a new spec the text is new", condition("Ready", "False", "ReconcileError", first, 2, then),
			computed("Ready", "False", "ReconcileError", second), true, []metav1.Condition{condition("Ready", "False", "ReconcileError", second, 3, then)}},
		"Decodable": {"it was False once, and has been decoded", condition("Decodable", "False", "Undecodable", "x", 3, then),
			computed("Ready", "True", "Available", "ok"), false,
			[]metav1.Condition{condition("Ready", "True", "Available", "ok", 3, now), condition("Decodable", "True", "Decoded", "", 3, now)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old, next := []metav1.Condition{tc.old}, []metav1.Condition{tc.next}
			got := conditions.Carry(old, next, 3, tc.failed, now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if next[0] != tc.next {
				t.Errorf("what was computed has been changed: %+v", next[0])
			}
		})
	}
}

func TestChanged(t *testing.T) {
	base := condition("Ready", "True", "Available", "ok", 3, then)
	with := func(change func(*metav1.Condition)) []metav1.Condition {
		c := base
		change(&c)
		return []metav1.Condition{c, condition("Other", "True", "X", "", 1, then)}
	}
	for name, tc := range map[string]struct {
		reason  string
		current []metav1.Condition
		want    bool
	}{
		"Same":       {"nothing to write, whatever else is there", with(func(*metav1.Condition) {}), false},
		"Time":       {"times alone", with(func(c *metav1.Condition) { c.LastTransitionTime = now }), false},
		"Missing":    {"somebody took it away", nil, true},
		"Status":     {"an edit", with(func(c *metav1.Condition) { c.Status = "False" }), true},
		"Reason":     {"an edit", with(func(c *metav1.Condition) { c.Reason = "Edited" }), true},
		"Message":    {"an edit", with(func(c *metav1.Condition) { c.Message = "edited" }), true},
		"Generation": {"seen at another spec", with(func(c *metav1.Condition) { c.ObservedGeneration = 2 }), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := conditions.Changed(tc.current, []metav1.Condition{base}); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
