// Package curves measures what the flags of the queue do to latency, load and
// recovery, and draws docs/queue/*.svg, which docs/queue.md explains:
//
//	go test ./hack/curves -update
//
// The controller is the real one, with passes that only take time, on the fake
// clock of testing/synctest, which is why this is a test. Without -update a
// smaller form of each measurement is made and checked for its shape.
//
// # Caveats
//
// Delays are jittered at random, so that no two runs draw the very same lines.
// What a pass does to the API server is not in here.
package curves
