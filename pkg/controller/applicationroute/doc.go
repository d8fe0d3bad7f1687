// Package applicationroute reconciles ApplicationRoutes: each gets an HTTPRoute of
// its own name in its own namespace, and a ListenerSet of that name if it names a
// Secret to serve HTTPS with.
//
// The files in reading order:
//
//   - controller.go: wiring, and the outline of a pass.
//   - observed.go: what a pass finds out.
//   - hostnames.go: which route holds a hostname.
//   - dependencies.go: the Services, the Secret and the Gateway, none of them ours.
//   - secret.go: what is kept of Secrets, and their type without their data.
//   - desired.go: what the children ought to be. Pure.
//   - status.go: what is reported. Pure.
//   - verdict.go: what gateways have said, as far as it counts. Pure.
//   - reasons.go: the words for it.
//   - report.go: writing the status, and Events on its transitions.
//   - handlers.go: what wakes whom.
//
// # Caveats
//
// No data of a Secret is asked for, but its metadata may repeat it: "kubectl apply"
// without --server-side keeps what it was given in an annotation, and the API server
// cannot be asked for metadata without annotations. With Config.Secrets those
// annotations of every Secret in the namespaces watched pass through this process's
// memory: when the copy is filled, when such a Secret changes, and in each audit of the
// hearing. They are dropped before anything is kept, but neither free memory nor a
// buffer that is used again is wiped: docs/measurements.md has counts.
// Secrets made in any other way, by cert-manager or by server-side apply, show nothing.
//
// Without the audits a watch of Secrets that has gone silent would not be noticed, so
// they are not left out.
package applicationroute
