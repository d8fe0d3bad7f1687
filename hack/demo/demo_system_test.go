package main

import (
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
)

// The demo is a promise of the README, and the only test in which the binary,
// the manifests' RBAC rules and Pods that become Ready all meet.
func TestDemo(t *testing.T) {
	root, err := install.Root()
	if err != nil {
		t.Fatal(err)
	}
	cp := controlplane.ForTest(t, controlplane.Config{Full: true})
	if err := tell(t.Context(), cp, root, true, narrator{out: t.Output(), start: time.Now()}); err != nil {
		t.Fatal(err)
	}
}
