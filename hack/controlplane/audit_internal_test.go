package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUnfinishedRequests(t *testing.T) {
	const marker = markerPath + "1"
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	event := func(id, stage, verb, uri string) AuditEvent {
		return AuditEvent{Server: "a", AuditID: id, Stage: stage, Verb: verb, RequestURI: uri, RequestReceived: began.Add(time.Second)}
	}
	markerBegins := event("m", StageRequestReceived, "get", marker)
	markerEnds := event("m", StageResponseComplete, "get", marker)
	elsewhere := event("x", StageRequestReceived, "get", "/x")
	elsewhere.Server = "b"
	cutOff := event("y", StageRequestReceived, "get", "/y")
	cutOff.RequestReceived = began.Add(-time.Second)

	for name, test := range map[string]struct {
		reason string
		events []AuditEvent
		want   string
	}{
		"no marker yet":     {"the log has not been read far enough", nil, marker},
		"marker half there": {"its end is the newest line there has to be", []AuditEvent{markerBegins}, marker},
		"all there":         {"nothing to wait for", []AuditEvent{markerBegins, markerEnds}, ""},
		"request before it has not ended": {"its answer may have arrived already",
			[]AuditEvent{event("r", StageRequestReceived, "get", "/r"), markerBegins, markerEnds}, "get /r"},
		"request after it": {"not answered before the call",
			[]AuditEvent{markerBegins, event("r", StageRequestReceived, "get", "/r"), markerEnds}, ""},
		"watch":        {"it may never end", []AuditEvent{event("w", StageRequestReceived, "watch", "/w"), markerBegins, markerEnds}, ""},
		"other server": {"it has a marker of its own", []AuditEvent{elsewhere, markerBegins, markerEnds}, ""},
		"request of the last process": {"a killed server logs no end",
			[]AuditEvent{cutOff, markerBegins, markerEnds}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &auditReader{events: test.events}
			if diff := cmp.Diff(test.want, r.unfinished("a", marker, began)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

// recorder is a test that is not ended by what happens to it.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Skipf(format string, args ...any) { r.skipped = fmt.Sprintf(format, args...) }
func (r *recorder) Fatal(args ...any)                { r.failed = fmt.Sprint(args...) }

func TestMissingBinariesSkipLocallyAndFailInCI(t *testing.T) {
	missing := fmt.Errorf("controlplane: %w", ErrNoBinaries)
	for ci, failed := range map[string]bool{"true": true, "": false} {
		t.Setenv("CI", ci)
		r := &recorder{TB: t}
		orSkip(r, missing)
		if (r.failed != "") != failed || (r.skipped != "") == failed || !strings.Contains(r.failed+r.skipped, ErrNoBinaries.Error()) {
			t.Errorf("CI=%q: skipped %q, failed %q", ci, r.skipped, r.failed)
		}
	}
}
