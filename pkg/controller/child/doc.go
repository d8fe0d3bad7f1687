// Package child reads, claims, applies and withdraws the children of an object: what
// a controller makes on its behalf, under its name, in its namespace.
//
// The files in reading order:
//
//   - kind.go: one kind of child, where it is read and how it is written.
//   - find.go: whose the object under a child's name is, and whether it may be
//     written.
//   - apply.go: server-side apply of nothing but our own fields, and not at all when
//     nothing differs.
//   - compare.go: whether anything differs.
//   - withdraw.go: the delete of a child that is no longer wanted.
//   - handlers.go: whom an event of a child concerns.
//
// A pass calls [Find], then [Ensure] or [Withdraw], for each kind:
//
//	current, err := child.Find(ctx, applier, deployments, owner, live)
//	if err != nil {
//		return err // a NotOwnedError or a WaitError among others
//	}
//	current, err = child.Ensure(ctx, applier, deployments, owner, current, desired, nil)
//
// # What is guaranteed
//
// An object that has another controller owner, or none, is never written to and never
// deleted; neither is one that belongs to an earlier owner of the same name.
// Ownership goes by UID.
//
// A child that is as the configuration says is not written: an apply that changes
// nothing costs a request, and for some shapes a new resourceVersion (kubernetes/kubernetes
// issues 124605 and 131175). It is as the configuration says if every leaf of the
// configuration is in it with an equal value and its annotation holds the hash of the
// whole configuration; without the hash nothing would show that a field has gone from
// the configuration.
//
// What others add to a child stays. What they change in our fields is set back.
//
// # Caveats
//
// Between the live GET that finds a child missing and the apply that creates it,
// somebody else may create one. The API server refuses to merge ours into it if it
// has a controller owner (there can be only one) or an immutable field that differs.
// One that has neither, made in those milliseconds, is adopted.
//
// [Kind].Lists and [Kind].AtomicMaps go by the name of a field, wherever it is. In a
// kind where two lists of the same name are merged differently, Lists has the element
// to tell them apart.
//
// Inside an atomic list every field counts, those too that the API server fills in: a
// configuration has to set them, or the child is applied again in every pass.
//
// Objects returned by Find and Read may be the cache's. Never change them.
package child
