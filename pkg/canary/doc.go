// Package canary answers the question whether this process is worth keeping.
//
// [Handler] serves /healthz, /readyz and the like as Kubernetes components do,
// on net/http alone.
//
// [Canary] is a write that must come back. The leader updates a Lease once a
// minute and waits for its own Reflector to show that write. HasSynced says that a
// cache was filled once, and a probe that pings says that the process answers;
// this says that changes still arrive. The [State] is one of
//
//	standby        this process does not lead
//	pending        nothing was due yet
//	hearing        each write is seen within the interval
//	late           not within the interval: the connection is opened anew, once
//	deaf           not for FailAfter, over a fresh connection, while a GET works:
//	               liveness fails
//	unrecoverable  deaf, and two restarts have not helped: liveness holds again
//	forbidden      a permission is missing, which is named
//	unwritable     the Lease cannot be written: API server away, overloaded, full
//
// Only deaf fails liveness, only within the budget, and nothing here is for
// readiness: an unready replica serves nobody better.
//
// The budget is two restarts, spent by any process that leads and given back after
// ten minutes of hearing. It is kept in an annotation of the Lease and written
// before liveness fails, so that it outlives the restart; where it cannot be
// written liveness holds. Other checks that only a restart mends draw on the same
// budget ([Canary.WithinBudget]).
//
// The revision of the Lease, read from or written to etcd, never goes down unless
// etcd was set back. An API server that was not restarted after that goes on
// showing the old state to every list and watch; the canary tells
// ([Snapshot.Rewound], [Config.Rewound]).
//
// Rule for what may become a check behind a liveness probe: only what a restart
// can mend. A check that fails because the API server is away, or because a
// permission is missing, makes the kubelet restart every replica in a moment
// when that helps nobody.
//
// # What counts as seen
//
// Only an event of a watch. A list that shows a write proves nothing about
// watches, but takes away the event, so that the canary writes again. An event
// counts for all writes up to its revision; where revisions cannot be compared
// (they are opaque) it must be one of this process and as new, by a sequence
// number in an annotation.
//
// # Clocks
//
// No time that another process has written is ever compared with anything. The
// budget is a count; every duration is measured by the one process that lives
// through it, by its monotonic clock, and begins anew after a restart. Time in
// which the API server refused writes counts for no lateness, nor does time in
// which this process was stopped.
//
// # Caveats
//
// The canary watches one Lease, over a connection of its own. That it hears does
// not mean that every other watch of the process does; that has to be found out
// for each.
//
// FailAfter below two intervals is stretched: after the connection was opened anew
// a write gets one more interval before the state is deaf.
//
// A watch that the API server answers with an error, 429 or an ERROR frame say, or
// that it ends within the interval without an event, makes late and not deaf, for as
// long as that lasts: it is no silence, and no restart mends it. So do connections
// that something on the way cuts more often than that.
//
// A rewind is found only by a process that has known a higher revision, and only
// before etcd's revision has grown past that. Where revisions are opaque it is not
// found.
//
// While deaf, the connection is opened anew every FailAfter: what ailed the network
// may be over, while the stream stays silent. client-go's own waits between two
// attempts, up to a minute, come on top.
//
// Whoever deletes the Lease, or the annotation, gives the asks back.
//
// On standby, with the Lease unwritable or the budget spent, a check within the
// budget holds whatever it has found. Its caller must have other ways to tell.
//
// A check that hangs is reported as failed, but its goroutine stays until the
// check returns: there is one at most for each check, however often it is asked.
//
// Nothing here is authenticated. Error texts, which may name hosts and objects,
// are shown under ?verbose only; bind the server to an address that only those
// can reach who may read them.
package canary
