// Package canary answers the question whether this process is worth keeping.
//
// [Handler] serves /healthz, /readyz and the like as Kubernetes components do,
// on net/http alone.
//
// Rule for what may become a check behind a liveness probe: only what a restart
// can mend. A check that fails because the API server is away, or because a
// permission is missing, makes the kubelet restart every replica in a moment
// when that helps nobody.
//
// # Caveats
//
// A check that hangs is reported as failed, but its goroutine stays until the
// check returns: there is one at most for each check, however often it is asked.
//
// Nothing here is authenticated. Error texts, which may name hosts and objects,
// are shown under ?verbose only; bind the server to an address that only those
// can reach who may read them.
package canary
