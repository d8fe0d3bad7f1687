package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// print writes the report as Markdown.
func report(w io.Writer, results []*result, s settings, took time.Duration) {
	length := "full lengths"
	if s.short {
		length = "-short"
	}
	fmt.Fprintf(w, "Intervals: silence %s, audit %s, poll %s, canary %s, given up after %s (%s). %s, %d CPUs, %s in all.\n\n",
		s.probeAfter, s.auditInterval, s.pollInterval, s.canaryInterval, s.canaryFailAfter, length, runtime.Version(), runtime.NumCPU(), round(took))
	fmt.Fprintln(w, "| fault | for | what the product says, and when | changes acted on after: median / most | of those after the fault has been found, most | client-go's informer alone: median / most | LIST / WatchList / WATCH / questions / audits | process restarts (failed liveness probes) | changes lost | streaming again after |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range results {
		fmt.Fprintf(w, "| %s (`%s`) | %s | %s | %s | %s | %s | %s | %d (%d)%s | %d | %s |\n",
			r.scenario.fault, r.scenario.name, round(r.lifted.Sub(r.began)), heard(r.sights, r.began),
			r.ours, most(r.settled), peer(r), r.requests, len(r.restarts), r.failed, reasons(r.restarts), r.lost, streaming(r))
	}
	fmt.Fprintln(w)
	for _, r := range results {
		for _, note := range r.notes {
			fmt.Fprintf(w, "- `%s`: %s\n", r.scenario.name, note)
		}
	}
	failed := 0
	for _, r := range results {
		for _, p := range r.problems {
			if failed++; failed == 1 {
				fmt.Fprint(w, "\nWhat does not hold:\n\n")
			}
			fmt.Fprintf(w, "- `%s`: %s\n", r.scenario.name, p)
		}
	}
	if failed == 0 {
		fmt.Fprint(w, "\nAll that has to hold does.\n")
	}
}

func (d delays) String() string {
	if d.changes == 0 {
		return "–"
	}
	if d.unseen == d.changes {
		return fmt.Sprintf("never (%d)", d.changes)
	}
	text := fmt.Sprintf("%s / %s", round(d.median), round(d.max))
	if d.unseen > 0 {
		text += fmt.Sprintf(", %d of %d never", d.unseen, d.changes)
	}
	return text
}

func most(d delays) string {
	if d.changes == 0 {
		return "–"
	}
	return round(d.max).String()
}

func peer(r *result) string {
	switch {
	case !r.hasPeer:
		return "–"
	case !r.peerSynced:
		return "never synced"
	}
	return fmt.Sprintf("%s (%s)", r.peer, r.peerRequests)
}

func reasons(restarts []restart) string {
	if len(restarts) == 0 {
		return ""
	}
	return ": " + strings.ReplaceAll(whys(restarts), "|", "/")
}

func streaming(r *result) string {
	switch {
	case r.ours.changes == 0:
		return "–"
	case !r.streams:
		return "not seen"
	}
	return round(r.streaming).String()
}
