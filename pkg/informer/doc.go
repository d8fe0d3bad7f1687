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
//     waits for it and the process stays up.
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
// # Caveats
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
