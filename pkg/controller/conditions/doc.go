// Package conditions says in an object's status, and in Events, what a controller has
// found out about it. WebApp and ApplicationRoute have the same four conditions, Ready,
// Progressing, Degraded and DependenciesReady; what each comes from is their
// controllers' business.
//
// The files in reading order:
//
//   - problem.go: an error as people should read it.
//   - carry.go: new conditions in the light of the old ones. Pure.
//   - transition.go: which changes are worth an Event. Pure.
//   - write.go: writing a status, and Events.
//   - convergence.go: how long a change of spec takes to become Ready.
//
// A pass computes its conditions without times and generations, and then:
//
//	status.Conditions = conditions.Carry(old.Conditions, computed, object.Generation, err != nil, now)
//	if conditions.Changed(old.Conditions, status.Conditions) {
//		written, err := conditions.ApplyStatus(object, apply, live)
//		...
//		conditions.Tell(ctx, namespaces, recorder, object, conditions.Transitions(old.Conditions, status.Conditions))
//	}
//
// # Caveats
//
// The text in a condition that reports an error stays the first one's while later ones
// differ only in words with digits (ports, request ids, times). Otherwise a failure
// with ever new text would be a write per attempt, and each such write wakes the key
// that ought to back off.
//
// Server-side apply has no UID precondition where a status is concerned: the API server
// ignores metadata.uid there. A status is therefore applied against a resourceVersion,
// and again after a look when somebody else was quicker.
//
// Conditions of others in a status are not looked at, and an apply does not touch them.
package conditions
