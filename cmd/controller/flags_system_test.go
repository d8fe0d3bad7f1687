package main_test

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// A flag that makes no sense is refused before anything is started: one line that
// names the flag and the way out, and exit code 2.
func TestSystemBadFlags(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // not before the parallel cases have ended
	path := binary(t)
	for name, c := range map[string]struct {
		reason string
		args   []string
		want   []string // all in the one line
	}{
		"unknown flag": {
			reason: "a typo must not be ignored",
			args:   []string{"--wokers=3"}, want: []string{"--wokers", "--help"},
		},
		"no number": {
			reason: "the value is shown as it was given",
			args:   []string{"--workers=many"}, want: []string{"--workers", `"many"`},
		},
		"no unit": {
			reason: "a duration without a unit is a frequent mistake",
			args:   []string{"--shutdown-timeout=30"}, want: []string{"--shutdown-timeout", "30"},
		},
		"argument": {
			reason: "everything is a flag",
			args:   []string{"start"}, want: []string{`"start"`, "flag"},
		},
		"no workers": {
			reason: "nothing would ever be reconciled",
			args:   []string{"--workers=0"}, want: []string{"--workers=0", "positive"},
		},
		"negative": {
			reason: "no delay is negative",
			args:   []string{"--retry-base-delay=-1s"}, want: []string{"--retry-base-delay=-1s", "positive"},
		},
		"renew deadline not below the lease duration": {
			reason: "another process would lead before this one has given up",
			args:   []string{"--leader-elect-renew-deadline=15s"}, want: []string{"--leader-elect-renew-deadline=15s", "--leader-elect-lease-duration"},
		},
		"lease with a fraction of a second": {
			reason: "a Lease cannot hold it",
			args:   []string{"--leader-elect-lease-duration=15500ms"}, want: []string{"--leader-elect-lease-duration=15.5s", "whole seconds"},
		},
		"retry delays in the wrong order": {
			reason: "the cap would be below the first delay",
			args:   []string{"--retry-max-delay=1ms"}, want: []string{"--retry-max-delay=1ms", "--retry-base-delay"},
		},
		"no namespace's name": {
			reason: "nothing would ever be found there",
			args:   []string{"--namespaces=team-a,Team_B"}, want: []string{"--namespaces", `"Team_B"`},
		},
		"no address": {
			reason: "host:port, or 0",
			args:   []string{"--metrics-bind-address=8080"}, want: []string{"--metrics-bind-address=8080", "host:port", "0"},
		},
		"address in use": {
			reason: "found at start and not when somebody probes",
			args:   []string{"--kubeconfig=KUBECONFIG", "--health-probe-bind-address=" + taken.Addr().String(), "--metrics-bind-address=0", "--debug-bind-address=0"},
			want:   []string{"--health-probe-bind-address=" + taken.Addr().String(), "in use"},
		},
		"no kubeconfig": {
			reason: "named by its path",
			args:   []string{"--kubeconfig=/no/such/file"}, want: []string{"--kubeconfig=/no/such/file", "no such file"},
		},
		"neither cluster nor kubeconfig": {
			reason: "the way out is the flag",
			args:   nil, want: []string{"--kubeconfig"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := make([]string, len(c.args))
			for i, a := range c.args {
				args[i] = strings.ReplaceAll(a, "KUBECONFIG", kubeconfigTo(t, "https://127.0.0.1:1"))
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, path, args...)
			cmd.Env = []string{"HOME=" + t.TempDir()}
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 2 {
				t.Fatalf("%s: exit code %d (%v), want 2:\n%s", c.reason, code, err, out)
			}
			// What klog said before is no part of the refusal.
			var refusals []string
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "controller: ") {
					refusals = append(refusals, line)
				} else if !strings.HasPrefix(line, "I") {
					t.Errorf("%s: unexpected line %q", c.reason, line)
				}
			}
			if len(refusals) != 1 {
				t.Fatalf("%s: %d refusals, want one line:\n%s", c.reason, len(refusals), out)
			}
			for _, want := range c.want {
				if !strings.Contains(refusals[0], want) {
					t.Errorf("%s: %q lacks %q", c.reason, refusals[0], want)
				}
			}
		})
	}
}
