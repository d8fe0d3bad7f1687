// Package controller runs one Reconciler: it owns the queue, the workers, the
// retries and the record of what every key is doing and why.
//
// # One loop, one switch
//
// A worker pops a key, asks the gate, gives the pass a deadline, calls
// Reconcile (or Config.Frozen, for a key that the gate freezes), classifies what
// came back and decides in one switch when the key runs again. A Reconciler
// therefore returns only two things: when to look again, and an error.
//
// # Built from client-go's parts
//
// Deduplication, "never the same key twice at once", requeue of a key that
// changed while it was being worked on, delays and the workqueue_* metrics are
// client-go's. Three things are plugged in: lanes (the order), a limiter (how
// long a failed key waits) and the ledger (whether a key that was popped is
// really due). All three keep what they know in one record for each key, which
// is what client-go's queues carry. client-go can only bring a waiting key forward and can take
// nothing out of its delaying heap, so a popped key may be early or left over:
// the ledger puts the first back and drops the second.
//
// # Guarantees
//
//   - A key is reconciled by at most one worker at a time, and every Enqueue of
//     it is followed by a pass that starts after Enqueue was called, unless the
//     Run it happened in ends first.
//   - With the three lanes all busy, Background gets at least one pop in ten and
//     Normal at least one in five; an Urgent key that finds no Urgent key ahead
//     of it waits for at most two pops of lower lanes. Inside a lane namespaces
//     take turns.
//   - No failed key waits longer than RetryMaxDelay plus 10 %, whatever the
//     shared bucket says, except where a class states a longer floor (Invalid,
//     FieldConflict), a recheck (Terminal, Frozen) or the server sent a
//     Retry-After.
//   - Any Enqueue runs a key that waits in backoff at once. It does not override
//     a server's Retry-After; RetryNow does.
//   - A panic, a pass that never returns and a key that always fails each cost
//     the key they happen to, not the controller.
//
// # Handlers
//
// Event handlers only enqueue; every API call is made in a worker, so that
// informers feel no back-pressure and client-go's pending notifications stay
// few. Protect contains a panic in a handler, an index or a map function.
//
// # Caveats
//
//   - A pass that ignores its context cannot be stopped. It keeps its key, and
//     Run ends with ErrWorkersRunning if it outlasts the shutdown.
//   - At most Workers replacements exist at a time. When they are wedged too,
//     nothing runs any more and Check says so.
//   - The cause of Run's context is read once. A lead that is lost while passes
//     are being awaited is not heard of here: writes have to be fenced where they
//     are sent.
//   - Enqueue is a no-op while Run is not running. What was missed is made up by
//     Config.Keys at the next start, which knows no object that is gone by then:
//     clean-up after a deletion needs a finalizer or an owner reference.
//   - Where RetryQPS and RetryMaxDelay cannot both hold the delay wins: n keys
//     that keep failing are retried at n/RetryMaxDelay a second.
//   - Retry-After is believed for up to one hour.
//   - The ledger keeps every key that waits, is ready or is being worked on, and
//     of those that settled the last 4096 at least; at most it keeps 4096 more of
//     them than there are others, or 8192. It knows nothing of older ones.
//   - Snapshot and Keys look at every key in the ledger: made for a scrape or a
//     person, not for a hot path.
//   - client-go does not let anyone wait for the goroutine of its delaying
//     queue: that one ends a moment after Run has returned.
package controller
