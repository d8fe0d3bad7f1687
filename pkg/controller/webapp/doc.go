// Package webapp reconciles WebApps: each gets a Deployment and a Service of its
// own name in its own namespace.
//
// The files in reading order:
//
//   - controller.go: wiring, and the outline of a pass.
//   - desired.go: what the children ought to be. Pure.
//   - apply.go: making them so, by server-side apply of nothing but our own
//     fields, and not at all when nothing differs.
//   - configmap.go: the referenced ConfigMap, of which only a hash is cached.
//   - finalize.go: the drain and the finalizer. From metadata alone.
//   - status.go: what is reported. Pure.
//   - report.go: writing the status, and Events on its transitions.
//
// # What a pass guarantees
//
// A pass reads the caches, at most four writes bring one WebApp from nothing to
// its final shape (finalizer, Deployment, Service, status), and a pass that finds
// everything in place writes nothing, after a restart too.
//
// Children have fixed names. One that has another controller owner, or none, is
// never written to or scaled; neither is one that belongs to an earlier WebApp of
// the same name. Ownership goes by UID.
//
// What others add to a child (labels, sidecars, resources) stays. What they
// change in our fields is set back.
//
// Before a Deployment is scaled to zero its owner is read from the API server,
// and each write carries the UID it is meant for.
//
// # Caveats
//
// Between the live GET that finds a child missing and the apply that creates it,
// somebody else may create one. The API server refuses to merge ours into it if
// it is a Deployment (spec.selector conflicts), has a controller owner (there can
// be only one) or is a Service with a selector. A Service without selector and
// owner, made in those milliseconds, is adopted.
//
// Server-side apply has no UID precondition where a status is concerned: the API
// server ignores metadata.uid there. Status is therefore applied against a
// resourceVersion, and again after a look when somebody else was quicker.
//
// The drain is timed from deletionTimestamp, which is the API server's clock. A
// local clock that is ahead shortens it by that much; one that is behind does not
// prolong it.
//
// While a ConfigMap is missing the Deployment goes on referring to the one it
// refers to already. A new image is rolled out all the same, and its pods wait for
// the ConfigMap.
//
// The text in a condition that reports an error stays the first one's while
// later ones differ only in words with digits (ports, request ids, times).
// Otherwise a failure with ever new text would be a write per attempt, and each
// such write wakes the key that ought to back off.
package webapp
