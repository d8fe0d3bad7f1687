package informer_test

import (
	"slices"
	"testing"
)

// The owners of a bad child are woken from its record: when it turns bad, when it is
// bad in another way, and when it no longer is, also where handlers are told nothing
// since it was never good.
func TestOwnersOfABadChild(t *testing.T) {
	const owned = `,"ownerReferences":[{"apiVersion":"v1","kind":"Owner","name":"boss","uid":"u"},{"apiVersion":"v1","kind":"Owner","name":"aunt","uid":"v"}]`
	for name, end := range map[string]func(*rawServer){
		"mended":              func(s *rawServer) { s.put("child", goodSpec, owned) },
		"deleted":             func(s *rawServer) { s.remove("child", true) },
		"gone in a relist":    func(s *rawServer) { s.expire(func() { s.remove("child", true) }) },
		"without owners then": func(s *rawServer) { s.put("child", badSpec, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRawServer(t)
			s.put("child", badSpec, owned)
			a := startApps(t, s.client(t))
			woken := func(what string, want ...string) {
				t.Helper()
				eventually(t, patience, what, func() (bool, any) {
					a.mu.Lock()
					defer a.mu.Unlock()
					got := slices.Clone(a.owners)
					if !slices.Equal(got, want) {
						return false, got
					}
					a.owners = nil
					return true, got
				})
			}
			woken("it is bad", "boss of child", "aunt of child")
			s.put("child", otherBadSpec, owned)
			woken("it is bad in another way", "boss of child", "aunt of child")
			end(s)
			if name == "without owners then" {
				eventually(t, patience, "told", func() (bool, any) {
					a.mu.Lock()
					defer a.mu.Unlock()
					return len(a.told) == 3, a.told
				})
				return
			}
			woken("it is no longer", "boss of child", "aunt of child")
		})
	}
}
