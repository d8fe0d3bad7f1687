package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// The measurement itself, small.
func TestHeapdump(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	o := options{secrets: 8, bytes: 256 << 10}
	r, err := measure(t.Context(), cp, o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	r.print(&table, o)
	t.Log("\n" + table.String())
	if err := r.check(); err != nil {
		t.Error(err)
	}
}

// holderEnv makes a process of this test that holds a pattern in its memory.
const holderEnv = "HEAPDUMP_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) == "" {
		os.Exit(m.Run())
	}
	held := make([]byte, 3*chunk)
	n, _ := os.Stdin.Read(held[chunk-10:]) // across two chunks, wherever the mapping begins
	_, _ = os.Stdout.Write([]byte{byte(n)})
	time.Sleep(time.Minute)
	_, _ = os.Stdout.Write(held[:1])
}

// The search finds what is there, and not what is not.
func TestSearch(t *testing.T) {
	there, absent := newPattern("there"), newPattern("absent")
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"=1")
	holder.Stdin = bytes.NewReader(append(there[0], there[1]...))
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	if n, err := out.Read(make([]byte, 1)); n != 1 {
		t.Fatal(err)
	}
	found, size, err := search(holder.Process.Pid, there, absent)
	if err != nil {
		t.Fatal(err)
	}
	if found[0] < 2 || found[1] != 0 || size < 3*chunk {
		t.Errorf("found %d times and %d times in %d bytes, want 2 or more and 0", found[0], found[1], size)
	}
}

func TestPatternCount(t *testing.T) {
	p := newPattern("x")
	twice := append(append([]byte("ab"), p.fill(2*patternSize)...), p[1]...)
	for limit, want := range map[int]int{0: 0, 2: 0, 3: 1, 3 + patternSize: 2, len(twice): 3} {
		if got := p.count(twice, limit); got != want {
			t.Errorf("up to %d: %d, want %d", limit, got, want)
		}
	}
}
