// Package applicationroute reconciles ApplicationRoutes: each gets an HTTPRoute of
// its own name in its own namespace, and a ListenerSet of that name if it names a
// Secret to serve HTTPS with.
//
// The files in reading order:
//
//   - controller.go: wiring, and the outline of a pass.
//   - observed.go: what a pass finds out.
//   - availability.go: kinds that may not be served, or not to us.
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
// Whose a child is, and when it is written, is in package child.
//
// # What a pass guarantees
//
// A pass reads the caches; at most three writes bring one route from nothing to its
// final shape (ListenerSet, HTTPRoute, status), and a pass that finds everything in
// place writes nothing, after a restart too.
//
// Children have fixed names and are the route's by UID, or are left alone. They are
// never without hostnames, which would match all of them: a route that holds none has
// none. There is no finalizer: the garbage collector deletes the children.
//
// Nothing ever refers to what is not there yet: the ListenerSet is written before the
// HTTPRoute that hangs on it, and deleted after it hangs on the Gateway again.
//
// A hostname that is rendered is not given up on the word of a cache: the route that is
// said to hold it is read from the API server first. Nor is one taken that the HTTPRoute
// of another route has, as far as the cache shows: who has to let go of it does so first.
// Nor is a child deleted without a look at the API server's copy, whose UID and
// resourceVersion the delete carries; of that one no more than metadata is read, so that
// a child that cannot be decoded goes too.
//
// Only ApplicationRoutes and Services are waited for before anything runs. Of the
// others each may be missing, forbidden or late. A route waits for those that it needs
// and says so; when such a kind comes or goes every route is looked at again, behind
// what changes by itself.
//
// Who is woken is found by index: the routes that name a Service, a Secret or a
// Gateway, and those that claim a hostname. Nothing looks at all routes but the start
// and a kind that comes or goes.
//
// # Caveats
//
// While a hostname passes from one route to another nobody serves it for a moment: it is
// let go, that shows in the cache, and then it is taken. Not so where the first is
// deleted: its HTTPRoute is the garbage collector's, which is not waited for.
//
// The cache does not show everything at once. Two passes within the time that a write
// takes to get there may both take a hostname; the one that does not come first lets go
// of it again. Where that one cannot, because its applies are refused from then on, both
// serve it until it can. Which of the two the gateway prefers is its decision (by the
// Gateway API the older HTTPRoute).
//
// A route whose applies are refused keeps what its HTTPRoute has, and with it whatever
// it has to let go of. Who comes first for that waits, and names it.
//
// Only routes that this controller can see take part: with --namespaces those in other
// namespaces do not, and neither do HTTPRoutes and listeners that somebody else has
// made.
//
// A route that cannot be decoded holds what its HTTPRoute has. Where that one cannot
// be decoded either, and the process has been restarted since, nobody knows what it
// holds, and others may take it.
//
// A route that names no Gateway, where there is no default, claims nothing. What had
// been rendered for it stays as it was, so that a flag that gets lost takes nothing
// off the air, and it holds that ahead of all others, until it names one or is deleted.
//
// Of n routes that claim one hostname each pass looks at all n, and a change of the
// holder wakes all n.
//
// What the Gateway says of itself counts whatever generation it is about; what it says
// of the children has to be about their latest.
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
//
// The same words in a condition, and the moment between a live GET and an apply: see
// the caveats of packages conditions and child.
package applicationroute
