package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestLeaseReport(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	forbidden := apierrors.NewForbidden(leases, leaseName, errors.New("no rule"))
	missing := apierrors.NewNotFound(leases, leaseName)
	conflict := apierrors.NewConflict(leases, leaseName, errors.New("changed"))
	type request struct {
		write bool
		err   error
		after time.Duration
	}
	const tick = 2 * time.Second
	repeat := func(n int, round ...request) []request {
		var all []request
		for range n {
			all = append(all, round...)
		}
		return all
	}
	read, write := request{after: tick}, request{write: true, after: tick}
	refused := request{write: true, err: forbidden}
	away := request{err: errUnreachable, after: tick}
	join := func(parts ...[]request) []request {
		var all []request
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}

	const failed, healed = "Cannot get or renew the lease", "Can get and renew the lease again"
	for name, c := range map[string]struct {
		reason   string
		requests []request
		want     []string
	}{
		"well": {
			reason:   "a first campaign finds no lease, a later one may be overtaken",
			requests: []request{{err: missing}, write, read, {write: true, err: conflict}, read},
		},
		"writes refused for a minute": {
			reason:   "the read of each attempt succeeds, and heals nothing",
			requests: repeat(30, read, refused),
			want:     []string{failed + " forbidden"},
		},
		"writes refused for 25 minutes": {
			reason:   "a reminder every ten minutes",
			requests: repeat(750, read, refused),
			want:     []string{failed + " forbidden", failed + " forbidden", failed + " forbidden"},
		},
		"a standby's outage": {
			reason:   "two reads in a row are a standby that is well",
			requests: join(repeat(10, away), repeat(3, read)),
			want:     []string{failed + " unreachable", healed},
		},
		"a leader's outage": {
			reason:   "a write that succeeds is enough",
			requests: join(repeat(10, away), repeat(1, write)),
			want:     []string{failed + " unreachable", healed},
		},
		"flapping": {
			reason:   "the same within a minute of health is no news",
			requests: repeat(5, away, write),
			want:     []string{failed + " unreachable", healed},
		},
		"another reason": {
			reason:   "said at once: it has another way out",
			requests: []request{away, refused, away, refused},
			want:     []string{failed + " unreachable", failed + " forbidden"},
		},
		"no namespace": {
			reason:   "a create that finds nothing lacks its namespace",
			requests: []request{{err: missing}, {write: true, err: missing}},
			want:     []string{failed + " not found"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
				r := leaseReport{namespace: "system"}
				ctx := quietly(klog.NewContext(t.Context(), logger))
				for _, q := range c.requests {
					r.note(ctx, q.write, q.err)
					<-time.After(q.after)
				}
				var got []string
				for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
					line := entry.Message
					for i, kv := range entry.ParameterKVList {
						if kv == "reason" {
							line += " " + entry.ParameterKVList[i+1].(string)
						}
					}
					got = append(got, line)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.reason, diff)
				}
			})
		})
	}
}

// The elector's line for each failed attempt goes to V(4), a panic's does not.
func TestQuietly(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx := quietly(klog.NewContext(context.Background(), logger))
	quiet := klog.LoggerWithName(klog.LoggerWithValues(klog.FromContext(ctx), "lock", "l"), "elector").WithCallDepth(1)
	quiet.Error(errUnreachable, "attempt failed")
	quiet.Error(nil, "panic")
	quiet.Info("acquired")
	text := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if strings.Contains(text, "attempt failed") || !strings.Contains(text, "panic") || !strings.Contains(text, "acquired") {
		t.Errorf("logged:\n%s", text)
	}
}
