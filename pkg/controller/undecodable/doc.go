// Package undecodable tells people of objects that cannot be decoded, and lets go
// of those that are being deleted.
//
// An informer sets such an object aside and the gate freezes its key; Reporter is
// what runs in place of the reconciler then. It knows the record that the informer
// made, never the object: there is no Go value that it could act on.
//
// The files in reading order:
//
//   - reporter.go: the outline of a pass.
//   - message.go: what people are told. Pure.
//   - condition.go: how a condition gets into a status that nobody can decode, by
//     a JSON patch. Pure.
//   - write.go: reading and patching the status.
//   - turns.go: at most one report a second.
//
// # Guarantees
//
//   - Nothing but the condition Decodable in the status and, on deletion, our own
//     finalizer is ever written. Other conditions and other finalizers stay.
//   - A condition is written only if it differs from the live one, and never
//     because of what this very write has changed.
//   - Over all objects at most one is read and written a second, in the order in
//     which they came, so that thousands of bad objects cost no more than one.
//     Deletions do not wait for their turn.
//   - A Warning Event is recorded when the condition turns False, not while it
//     stays so and not after a restart.
//   - Where the API server refuses the write, one Event and one log line say so with
//     the way out, and the key is retried by the rules of its class.
//
// # Caveats
//
// The condition of the last of n bad objects is written n seconds after they have
// turned bad. Log, metrics and /debug/quarantine know of all of them at once.
//
// A status that is no object, or whose conditions are no list, has no place for a
// condition. An Event and a log line say so instead, once in the life of a process.
//
// A condition that somebody else has removed is put back a minute after it was last
// looked at, at the earliest, and only when the object changes or its key is
// rechecked.
//
// The patch tests the object's uid and no resourceVersion: an object that is written
// all the time could never be reached.
package undecodable
