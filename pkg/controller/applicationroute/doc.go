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
//   - desired.go: what the children ought to be. Pure.
//   - status.go: what is reported. Pure.
//   - verdict.go: what gateways have said, as far as it counts. Pure.
//   - reasons.go: the words for it.
//   - report.go: writing the status, and Events on its transitions.
//   - handlers.go: what wakes whom.
package applicationroute
