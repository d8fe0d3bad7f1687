package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// The measurement itself, small. Every run checks that all objects have arrived.
func TestSyncbench(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	binary := filepath.Join(t.TempDir(), "syncbench")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := options{n: 300, rounds: 1, timeout: time.Minute}
	results, err := measure(t.Context(), cp, binary, o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes {
		for _, as := range contestants {
			runs := results[mode][as]
			if len(runs) != 1 || runs[0].Wall <= 0 || runs[0].CPU <= 0 || runs[0].PeakRSS < runs[0].Heap || runs[0].Heap <= 0 {
				t.Errorf("%s by %s: measured nothing: %+v", as, mode, runs)
			}
		}
	}
	if table := table(o, results); strings.Count(table, " ×)") != 2*2*4 { // modes, contestants, columns
		t.Errorf("no ratio in each line:\n%s", table)
	}
}
