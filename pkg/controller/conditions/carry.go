package conditions

import (
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
)

// Carry completes newly computed conditions: the generation, and now as the time of the
// transition where old has another status or none. If they come of an error (failed),
// a message that differs from the old one in nothing but words with a digit stays as it
// was. If old has undecodable.Condition that is added, True: who computes a status has
// decoded the object. Other conditions of old are not carried. next is not changed.
func Carry(old, next []metav1.Condition, generation int64, failed bool, now metav1.Time) []metav1.Condition {
	all := slices.Clone(next)
	if meta.FindStatusCondition(old, undecodable.Condition) != nil {
		all = append(all, metav1.Condition{Type: undecodable.Condition, Status: metav1.ConditionTrue, Reason: undecodable.ReasonDecoded})
	}
	for n := range all {
		c := &all[n]
		c.ObservedGeneration, c.LastTransitionTime = generation, now
		was := meta.FindStatusCondition(old, c.Type)
		if was == nil || was.Status != c.Status {
			continue
		}
		c.LastTransitionTime = was.LastTransitionTime
		if failed && was.Reason == c.Reason && was.ObservedGeneration == c.ObservedGeneration && alike(was.Message, c.Message) {
			c.Message = was.Message
		}
	}
	return all
}

// volatileWord matches words with a digit: ports, addresses, ids, times, counts.
var volatileWord = regexp.MustCompile(`[\w.:-]*\d[\w.:-]*`)

// alike says whether two messages differ in nothing but such words.
func alike(a, b string) bool {
	return volatileWord.ReplaceAllLiteralString(a, "0") == volatileWord.ReplaceAllLiteralString(b, "0")
}

// Changed says whether there is anything in next that current does not say. Conditions
// of others in current do not count, nor do times.
func Changed(current, next []metav1.Condition) bool {
	return slices.ContainsFunc(next, func(c metav1.Condition) bool {
		old := meta.FindStatusCondition(current, c.Type)
		return old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message ||
			old.ObservedGeneration != c.ObservedGeneration
	})
}
