package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// narrator tells a person what happens, with the seconds since the start.
type narrator struct {
	out   io.Writer
	start time.Time
}

// step announces what comes next and why.
func (n narrator) step(title string, why ...string) {
	fmt.Fprintf(n.out, "\n%5.1fs  %s\n", time.Since(n.start).Seconds(), title)
	for _, line := range why {
		fmt.Fprintf(n.out, "        %s\n", line)
	}
}

// see reports something that was observed.
func (n narrator) see(format string, args ...any) {
	fmt.Fprintf(n.out, "%5.1fs    → %s\n", time.Since(n.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write lets the control plane report its own progress.
func (n narrator) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		fmt.Fprintf(n.out, "%5.1fs    %s", time.Since(n.start).Seconds(), line)
	}
	return len(p), nil
}
