// Package informer keeps a typed local copy of one resource and knows how
// that copy is doing.
//
// The copy itself is client-go's, used as it is: Reflector, RealFIFO, Indexer
// and typed handlers. One [Informer] is one cache.SharedIndexInformer per
// namespace it is limited to, or one for all namespaces. What this package
// adds stands around it:
//
//   - Between client-go and the API server, a cache.ListerWatcher that counts,
//     notes when it last heard something and classifies what goes wrong
//     (listwatch.go, state.go). A kind that cannot be listed is a state with a
//     name, a reason and a way out. It is retried, quietly; no other kind
//     waits for it and the process stays up. If it comes of one stored object
//     that the server cannot read, Snapshot.Suspect says which, as far as that can
//     be found (unlistable.go).
//   - Where it is asked for, item by item decoding: [Tolerant] (tolerant.go). One
//     object that does not fit its Go type is set aside and stops nothing; client-go
//     would fail the whole list (decode.go, fields.go, quarantine.go).
//   - Where [Config].Hearing is set, something that makes sure the watch still tells
//     everything, and sees to it that the copy follows if it does not (hearing.go).
//   - Around the functions that users register: an index function or a handler
//     that panics is contained, counted and shown (contain.go). client-go ends
//     the process for either.
//   - Between a controller's writes and its next read: [Writes] remembers
//     written resource versions until the copy has caught up (writes.go).
//
// Everything an Informer knows about itself is in its [Snapshot].
//
// Wiring takes a few lines:
//
//	configMaps, err := informer.New(informer.Config[*corev1.ConfigMap]{
//		Resource:      corev1.SchemeGroupVersion.WithResource("configmaps"),
//		ListerWatcher: informer.ListWatch(clients, clients.CoreV1().ConfigMaps),
//	})
//	registration, err := configMaps.AddHandler(handlers)
//	lister := corelisters.NewConfigMapLister(configMaps.Indexer())
//	go configMaps.Run(ctx)
//	cache.WaitFor(ctx, "caches", registration.HasSyncedChecker())
//
// # Objects that cannot be decoded
//
// With [Tolerant] an object that does not fit its Go type is never partly decoded.
// Its record ([Informer.Quarantined]) names every bad field and the kubectl command
// that mends it. Until it is mended the local copy keeps its last good version, or
// has none:
//
//	arrives                     object unknown so far       good version cached
//	bad in a list or WatchList  left out, set aside         stands in, set aside
//	bad ADDED or MODIFIED       set aside; a bookmark       the same
//	                            moves the Reflector on
//	DELETED                     delivered, metadata alone   delivered as the good version
//	                                                        under the frame's metadata
//	good again                  delivered as added          delivered as an update
//	a list without it           let go                      let go, reported as deleted
//
// A good version stands in only for the object that it is a version of, by UID: if
// another one of that name is bad, then the cached one is reported as deleted. What
// is known changes with a complete list only, all pages of it or a WatchList up to
// its final bookmark.
//
// A controller asks Quarantined before each pass and leaves the object alone, as
// wired here:
//
//	webApps, err := informer.New(informer.Config[*v1alpha1.WebApp]{
//		Resource:      v1alpha1.SchemeGroupVersion.WithResource("webapps"),
//		ListerWatcher: informer.Tolerant(clients.PlatformV1alpha1().RESTClient()),
//	})
//	webApps.OnQuarantine(func(record informer.Quarantined, entered bool) { enqueue(record.Key) })
//
// # Hearing
//
// HasSynced says that the copy was filled once, not that it is still being told what
// happens. A watch can go silent without an end and without an error: behind a load
// balancer that has lost the API server, on a connection that is half open, on an API
// server whose own watch has died. client-go's informer then keeps its old copy,
// for minutes or for ever.
//
//	hearing, err := informer.NewHearing(informer.HearingConfig{Config: config}) // one a process
//	configMaps, err := informer.NewForConfig(config,
//		informer.ListWatchClient(corev1.NewForConfig, (*corev1.CoreV1Client).ConfigMaps),
//		informer.Config[*v1.ConfigMap]{Resource: v1.SchemeGroupVersion.WithResource("configmaps"), Hearing: hearing})
//
// [NewForConfig] gives each resource connections of its own, as [NewConnection] does for
// a client that is made in another way.
//
// The Reflector is then given a session in place of the API server's watch
// (session.go). The watch behind it can be replaced, and polling can take its place:
// the Reflector lists nothing anew and handlers see no repetition.
//
//   - A watch that is silent for ProbeAfter is checked by a question: a watch for
//     metadata over another connection (asker.go). Every AuditInterval, and when
//     somebody calls [Hearing.AuditNow], all that was delivered is compared with a
//     list of metadata (audit.go).
//   - What is missing has 5 s to arrive. Then the watch is deaf. It alone is opened
//     again, on a new TCP connection, from where it has got to (doubt.go, judge.go).
//   - If that brings nothing either, polling (poll.go): every PollInterval what is
//     missing is fetched and handed on as the events that should have come. Each
//     round tries another watch, and the first one that delivers ends the polling.
//   - News that do arrive, but late, make the watch delayed, not deaf.
//   - No watch outlives its timeout by more than 10 s, whether the API server's end
//     of it gets here or not.
//   - A WatchList whose initial events do not come to their end is refused, so that
//     client-go lists (watchlist.go): within 2 s where no WatchList begins.
//   - What is done about watches is spaced out by one brake a namespace, from 10 s to
//     5 min (brake.go), but for watches that have outlived their timeout and those that
//     polling tries. Nothing is done while the API server does not answer at all.
//   - An API server that answers nothing, whatever there is to hear of it, is
//     StateUnlistable for being Unreachable (reach.go), within a minute.
//   - If the API server was set back, as by restoring etcd from a backup, everything
//     is listed anew from no revision; see [Informer.OnRewind].
//
// Revisions are compared as far as the API server says that they can be
// (resourceversion.CompareResourceVersion), opaque ones only for being equal.
//
// docs/hearing.md says how soon each fault is found, what that costs, and why it is
// built so.
//
// # Caveats
//
// With Tolerant an object that is in neither the local copy nor the quarantine does
// not exist; one that is in the quarantine exists, whatever the copy says. Whoever
// reads a lister alone takes a bad object that was never good for missing, and an
// older version of others for the newest.
//
// Records and log lines quote bad values: do not use Tolerant for types that hold
// secrets.
//
// A last good version that stands in goes through Config.Transform again, and
// handlers see it as an update with an unchanged resource version, as every object
// of a relist.
//
// While the API server cannot decode a stored object, watches that were open before
// stay open and silent. No state tells that from a kind that nobody changes until the
// server ends them; with Hearing audits fail meanwhile, which Snapshot.Message says.
//
// What Tolerant lists does not show in client-go's request latency metric, as no
// watch does; it does in its request count.
//
// An object whose name cannot be read is counted (Snapshot.Unreadable) and left
// out. If it was in the copy before, a relist reports its delete.
//
// Having synced is not being up to date: HasSynced stays true on a watch that has
// gone silent. Ask Snapshot().State. With the standard settings a change that the
// watch does not bring is in the copy within 45 s of its being made if another watch
// does, and within 70 s if none does (above 8,000 objects later, since audits out of
// turn keep to 200 objects a second); after that polling is as old as PollInterval, or
// 15 s for each 5,000 objects. Without Hearing the state says hearing whatever the watch
// does.
//
// With Hearing a ListerWatcher has to list and watch every object of its namespace.
// Audits and questions are about them all: what a selector of its own leaves out counts
// as missing, and the watch is opened again and polled, until after two or three audits
// the state becomes deaf with a message that says so and hearing is off for that
// namespace (narrow.go). Without polling, or if all that is left out changes between two
// audits each time, that is not found out.
//
// With Hearing a list, or page of one, is given up after 5 min. Up to then one that
// hangs shows in the state only if the API server answers nothing else either, which is
// asked every 30 s.
//
// Questions, audits and rounds of polling that are refused do not change the state, as
// nothing is known to be missing. Snapshot.Message says so, and the log.
//
// An event that a watch leaves out although it delivers later ones is found by the
// second audit after it, so within 11 min.
//
// An API server that goes on running while its etcd is set back serves the old state
// to every list until it is restarted. No audit can tell.
//
// Where revisions are opaque polling may hand on a version that a watch then follows
// by an older one for a moment, since nothing says which of two is newer.
//
// While polling handlers see the newest version only, not those in between, and a
// deleted object as the copy last had it.
//
// Objects from the Indexer and in handlers are shared: never change them.
//
// Handlers run on one goroutine per namespace, so a handler of an Informer
// limited to several namespaces is called concurrently.
//
// Index functions have to be pure. One that answers differently for the same
// object leaves entries in the index that client-go cannot remove.
//
// A relist reports every unchanged object as an update with the same resource
// version; handlers that care compare the two.
//
// Retries are the Reflector's: 0.8 s doubling to 30 s, each stretched by a
// random factor of 1 to 2. A kind whose permission was granted or whose CRD was
// installed therefore shows up within 60 s, not at once. After 429 and "connection
// refused" it is 30 s, or what Retry-After says.
//
// client-go's REST client retries a 429 or 5xx that carries Retry-After up to
// ten times within one call. The state changes only when that call returns.
//
// The local copy may be older than one an earlier process has seen: where
// WatchList is not available the first list is served from the API server's
// watch cache. Decide nothing destructive on it alone.
package informer
