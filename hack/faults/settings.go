package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// settings are the intervals of one run of this command. The API server's own, such
// as a bookmark a minute, cannot be shortened.
type settings struct {
	short bool

	// Given to the controller.
	probeAfter, auditInterval, pollInterval time.Duration
	canaryInterval, canaryFailAfter         time.Duration

	// tick is the time between two changes, look the time between two looks at the
	// controller's own view.
	tick, look time.Duration
	// recovery is for how long at least changes go on after the fault, and patience
	// how long the last of them may then take before it counts as lost.
	recovery, patience time.Duration

	liveness probe
}

// probe is the manifests' livenessProbe with the kubelet's defaults.
type probe struct {
	delay, period, timeout time.Duration
	failures               int
	grace                  time.Duration // terminationGracePeriodSeconds
	backoff, maxBackoff    time.Duration // before a container is started again
}

func newSettings(root string, short bool) (settings, error) {
	liveness, err := manifestsProbe(root)
	if err != nil {
		return settings{}, err
	}
	s := settings{
		short: short, probeAfter: 30 * time.Second, auditInterval: 5 * time.Minute, pollInterval: 15 * time.Second,
		canaryInterval: time.Minute, canaryFailAfter: 5 * time.Minute,
		tick: 4 * time.Second, look: 2 * time.Second, recovery: 90 * time.Second, patience: 2 * time.Minute, liveness: liveness,
	}
	if short {
		s.probeAfter, s.auditInterval, s.pollInterval = 3*time.Second, 20*time.Second, 3*time.Second
		s.canaryInterval, s.canaryFailAfter = 4*time.Second, 16*time.Second
		s.tick, s.look, s.recovery, s.patience = time.Second, 250*time.Millisecond, 5*time.Second, time.Minute
		s.liveness.delay, s.liveness.period = time.Second, time.Second
		s.liveness.backoff, s.liveness.maxBackoff = time.Second, 10*time.Second
	}
	return s, nil
}

func manifestsProbe(root string) (probe, error) {
	file := filepath.Join(root, "manifests", "base", "deployment.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return probe{}, err
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(data, &d); err != nil {
		return probe{}, fmt.Errorf("%s: %w", file, err)
	}
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 || pod.Containers[0].LivenessProbe == nil || pod.TerminationGracePeriodSeconds == nil {
		return probe{}, fmt.Errorf("%s: no livenessProbe or no terminationGracePeriodSeconds", file)
	}
	seconds := func(n, unset int32) time.Duration {
		if n == 0 {
			n = unset
		}
		return time.Duration(n) * time.Second
	}
	var l corev1.Probe = *pod.Containers[0].LivenessProbe
	p := probe{
		delay: seconds(l.InitialDelaySeconds, 0), period: seconds(l.PeriodSeconds, 10), timeout: seconds(l.TimeoutSeconds, 1),
		failures: int(l.FailureThreshold), grace: time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second,
		backoff: 10 * time.Second, maxBackoff: 5 * time.Minute,
	}
	if p.failures == 0 {
		p.failures = 3
	}
	return p, nil
}

// of chooses between the two lengths of a run.
func (s settings) of(full, short time.Duration) time.Duration {
	if s.short {
		return short
	}
	return full
}

// found is how soon one deaf watch has to be found and mended: its silence, a
// question to a dead connection and one to a fresh one, the grace for what the
// answer named, and what a busy machine adds.
func (s settings) found() time.Duration {
	return s.of(time.Minute, s.probeAfter+2*4*time.Second+5*time.Second+4*time.Second)
}

// polled is how soon work has to go on by polling, and polledAge how old a change may
// then become.
func (s settings) polled() time.Duration    { return s.of(2*time.Minute, s.found()+2*s.pollInterval) }
func (s settings) polledAge() time.Duration { return s.pollInterval + 5*time.Second }

// back is how soon all has to be streaming again after a fault. The waits between two
// attempts, 30 s where connections are refused and client-go's minute otherwise, are not
// shortened.
func (s settings) back() time.Duration { return time.Minute }

// flags are the ones that the controller at hand has: one from before it could hear
// is shown as it was.
func (s settings) flags(ctx context.Context, binary string) ([]string, error) {
	help, err := exec.CommandContext(ctx, binary, "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", binary, err)
	}
	var flags []string
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"watch-probe-after", s.probeAfter}, {"watch-audit-interval", s.auditInterval}, {"watch-poll-interval", s.pollInterval},
		{"watch-canary-interval", s.canaryInterval}, {"watch-canary-fail-after", s.canaryFailAfter},
	} {
		if strings.Contains(string(help), "--"+f.name) {
			flags = append(flags, fmt.Sprintf("--%s=%s", f.name, f.value))
		}
	}
	return flags, nil
}
