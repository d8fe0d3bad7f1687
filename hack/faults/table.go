package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"strings"
)

// entry is what the report says of one scenario, in lines of Markdown.
type entry struct {
	row             string
	notes, problems []string
}

func newEntry(r *result) entry {
	e := entry{row: fmt.Sprintf("| %s (`%s`) | %s | %s | %s | %s | %s | %s | %d (%d)%s | %d | %s |",
		r.scenario.fault, r.scenario.name, round(r.lifted.Sub(r.began)), heard(r.sights, r.began),
		r.ours, most(r.settled), peer(r), r.requests, len(r.restarts), r.failed, reasons(r.restarts), r.lost, streaming(r))}
	for _, note := range r.notes {
		e.notes = append(e.notes, fmt.Sprintf("- `%s`: %s", r.scenario.name, note))
	}
	for _, p := range r.problems {
		e.problems = append(e.problems, fmt.Sprintf("- `%s`: %s", r.scenario.name, p))
	}
	return e
}

const (
	header = `| fault | for | what the product says, and when | changes acted on after: median / most | of those after the fault has been found, most | client-go's informer alone: median / most | LIST / WatchList / WATCH / questions / audits | process restarts (failed liveness probes) | changes lost | streaming again after |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |`
	problemsTitle = "What does not hold:"
	noProblems    = "All that has to hold does."
)

// report writes the entries in the order of the catalogue.
func report(w io.Writer, entries map[string]entry, s settings) {
	length := "full lengths"
	if s.short {
		length = "-short"
	}
	fmt.Fprintf(w, "Intervals: silence %s, audit %s, poll %s, canary %s, given up after %s (%s). %s, %d CPUs.\n\n",
		s.probeAfter, s.auditInterval, s.pollInterval, s.canaryInterval, s.canaryFailAfter, length, runtime.Version(), runtime.NumCPU())
	var notes, problems []string
	fmt.Fprintln(w, header)
	for _, scenario := range append(catalogue(), &scenario{name: controlName}) {
		e, ok := entries[scenario.name]
		if !ok {
			continue
		}
		fmt.Fprintln(w, e.row)
		notes = append(notes, e.notes...)
		problems = append(problems, e.problems...)
	}
	if len(notes) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	}
	if len(problems) == 0 {
		fmt.Fprintf(w, "\n%s\n", noProblems)
		return
	}
	fmt.Fprintf(w, "\n%s\n\n%s\n", problemsTitle, strings.Join(problems, "\n"))
}

var entryName = regexp.MustCompile("^(?:\\| .* \\(`([a-z0-9.-]+)`\\) \\||- `([a-z0-9.-]+)`: )")

// entriesOf reads a report.
func entriesOf(text string) map[string]entry {
	entries := map[string]entry{}
	problems := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		problems = problems || line == problemsTitle
		m := entryName.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		e := entries[m[1]+m[2]]
		switch {
		case m[1] != "":
			e.row = line
		case problems:
			e.problems = append(e.problems, line)
		default:
			e.notes = append(e.notes, line)
		}
		entries[m[1]+m[2]] = e
	}
	return entries
}

// Markers around the report in a file that has more to say.
const (
	reportBegin = "<!-- begin: written by make faults -->\n"
	reportEnd   = "<!-- end -->\n"
)

// updateReport replaces what a file says of the scenarios that have run.
func updateReport(file string, entries map[string]entry, s settings) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), reportBegin)
	middle, after, closed := strings.Cut(rest, reportEnd)
	if !ok || !closed {
		return fmt.Errorf("%s: no lines %q and %q to put the report between", file, reportBegin, reportEnd)
	}
	all := entriesOf(middle)
	maps.Copy(all, entries)
	var b strings.Builder
	b.WriteString(before + reportBegin)
	report(&b, all, s)
	b.WriteString(reportEnd + after)
	return os.WriteFile(file, []byte(b.String()), 0o644)
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
