// Package metrics turns what the other packages know into Prometheus metrics. It
// is the one package beside the command that knows Prometheus.
//
// Two kinds: what happens in moments (passes, requests) is counted as it happens,
// by [Metrics]; what is a state (informers, queues) is read when somebody asks, by
// [NewCollector], from the same snapshots that /healthz and /debug are drawn from,
// so that the three cannot disagree.
//
// Labels hold what an installation has a fixed, small number of: controllers,
// resources, classes, verbs. Never the name of an object, a namespace or a path.
// Series whose labels are known beforehand exist from the start, at 0: a counter
// that appears with the value 1 never increased, as far as an alert can see.
//
// All metrics are listed in docs/metrics.md, which a test of this package writes.
//
// # Caveats
//
// client-go's hooks for its REST clients and its leader election are global and
// take the first provider only. The command sets them; tests that would set them
// again see nothing.
//
// client-go offers a hook for reflector metrics that nothing reads (0.37). Lists,
// watches and events are counted by the informers themselves.
package metrics
