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
// stay open and silent, and nothing here tells that from a kind that nobody changes
// until the server ends them.
//
// What Tolerant lists does not show in client-go's request latency metric, as no
// watch does; it does in its request count.
//
// An object whose name cannot be read is counted (Snapshot.Unreadable) and left
// out. If it was in the copy before, a relist reports its delete.
//
// Having synced is not being up to date. HasSynced stays true on a watch that
// has gone silent.
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
// installed therefore shows up within 60 s, not at once.
//
// client-go's REST client retries a 429 or 5xx that carries Retry-After up to
// ten times within one call. The state changes only when that call returns.
//
// The local copy may be older than one an earlier process has seen: where
// WatchList is not available the first list is served from the API server's
// watch cache. Decide nothing destructive on it alone.
package informer
