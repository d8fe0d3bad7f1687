package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// maxPage bounds an answer: the ledger is locked while a page is drawn up.
const maxPage = 10_000

// queuePage is what is shown of one controller.
type queuePage struct {
	controller.Snapshot
	Keys []controller.KeyState `json:"keys"`
	// More is set where the next page begins after the last key.
	More bool `json:"more,omitempty"`
}

// queueHandler shows what every key of every controller is doing: as JSON, sorted by
// key and paged by the last one; or, with ?format=text or where only text is
// accepted, as a table with what a person wants to see first, paged by a number,
// since that order changes all the time.
//
//	GET /debug/queue[?controller=][&limit=][&after=namespace/name]
//	GET /debug/queue?format=text[&controller=][&limit=][&skip=]
func queueHandler(controllers map[string]*controller.Controller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit, after, err := paging(r)
		limit = min(limit, maxPage)
		text, textErr := wantsText(r)
		skip, skipErr := skipping(r)
		if err := cmp.Or(err, textErr, skipErr); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		pages := []queuePage{}
		for _, name := range slices.Sorted(maps.Keys(controllers)) {
			if want := r.FormValue("controller"); want != "" && want != name {
				continue
			}
			c := controllers[name]
			page := queuePage{Snapshot: c.Snapshot()}
			if text {
				page.Keys, page.More = c.Notable(limit, skip)
			} else {
				page.Keys, page.More = c.Keys(limit, after)
			}
			if page.Keys == nil {
				page.Keys = []controller.KeyState{}
			}
			pages = append(pages, page)
		}
		if !text {
			writeJSON(w, pages)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		for n, page := range pages {
			if n > 0 {
				fmt.Fprintln(w)
			}
			writeQueueText(w, page, skip, time.Now())
		}
	}
}

// wantsText reports whether text is asked for, and not JSON.
func wantsText(r *http.Request) (bool, error) {
	switch format := r.FormValue("format"); format {
	case "text":
		return true, nil
	case "json":
		return false, nil
	case "":
		return strings.HasPrefix(r.Header.Get("Accept"), "text/plain"), nil
	}
	return false, errors.New("format must be json or text")
}

func skipping(r *http.Request) (int, error) {
	text := r.FormValue("skip")
	if text == "" {
		return 0, nil
	}
	skip, err := strconv.Atoi(text)
	if err != nil || skip < 0 {
		return 0, errors.New("skip must be a number, 0 or more")
	}
	return skip, nil
}

// writeQueueText writes totals and then a line for each key.
func writeQueueText(w io.Writer, p queuePage, skip int, now time.Time) {
	if !p.Running && len(p.Keys) == 0 {
		fmt.Fprintf(w, "%s: not running: a standby has no queue\n", p.Controller)
		return
	}
	running := "running"
	if !p.Running {
		running = "stopped, but passes are still running"
	}
	fmt.Fprintf(w, "%s: %s\n\n", p.Controller, running)
	totals := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(totals, "Workers\t%d, %d running, %d wedged\n", p.Workers.Size, p.Workers.Running, p.Workers.Wedged)
	fmt.Fprintf(totals, "Processing\t%d\n", p.Processing)
	fmt.Fprintf(totals, "Ready\t%d urgent, %d normal, %d background; the oldest is due since %s\n",
		p.Ready.Urgent, p.Ready.Normal, p.Ready.Background, span(seconds(p.OldestDueSeconds)))
	fmt.Fprintf(totals, "Waiting\t%d\n", p.Waiting)
	fmt.Fprintf(totals, "Failing\t%d, and %d in conflicts; the oldest since %s\n", p.Failing, p.Conflicting, span(seconds(p.OldestFailingSeconds)))
	fmt.Fprintf(totals, "Frozen\t%d\n", p.Frozen)
	fmt.Fprintf(totals, "Timers\t%d early, %d left over\n", p.Wakeups.Early, p.Wakeups.LeftOver)
	for _, panics := range p.Panics {
		fmt.Fprintf(totals, "Panics\t%d in %s, last %s ago for %s: %s\n", panics.Count, panics.Origin, span(now.Sub(panics.LastTime)), panics.LastKey, brief(panics.Last))
	}
	_ = totals.Flush()
	if len(p.Keys) == 0 {
		fmt.Fprintln(w, "\nNo keys.")
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tSTATE\tFOR\tNEXT\tLAST RUN\tCLASS\tTRIES\tFAILING\tWHY")
	for _, k := range p.Keys {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Key, queueState(k), span(now.Sub(k.Since)), next(k, now),
			ago(k.LastRun, now), cmp.Or(string(k.Class), "-"), tries(k), ago(k.FailingSince, now), why(k))
	}
	_ = table.Flush()
	if p.More {
		fmt.Fprintf(w, "\nMore with ?format=text&controller=%s&skip=%d\n", p.Controller, skip+len(p.Keys))
	}
	if p.Waiting > 0 {
		fmt.Fprintf(w, "\nTo run a waiting key now: POST /debug/queue/retry?key=namespace/name\n")
	}
}

func queueState(k controller.KeyState) string {
	switch {
	case k.Wedged:
		return "Wedged"
	case k.Lane != "":
		return k.State + " (" + k.Lane + ")"
	}
	return k.State
}

// next is when a waiting key runs, and whether an event may run it sooner.
func next(k controller.KeyState, now time.Time) string {
	switch {
	case k.HeldUntil.After(now):
		return "in " + span(k.NotBefore.Sub(now)) + " (Retry-After)"
	case k.NotBefore.IsZero():
		return "-"
	}
	return "in " + span(k.NotBefore.Sub(now))
}

// tries are the failures in a row, and the conflicts.
func tries(k controller.KeyState) string {
	if k.Conflicts > 0 {
		return fmt.Sprintf("%d+%d", k.Attempts, k.Conflicts)
	}
	return strconv.Itoa(k.Attempts)
}

func why(k controller.KeyState) string {
	if k.Error != "" && k.Reason != "" {
		return brief(k.Reason + ": " + k.Error)
	}
	return brief(cmp.Or(k.Error, k.Reason, "-"))
}

// brief cuts a text to what fits in a line.
func brief(s string) string {
	const length = 160
	s = printable(s)
	if r := []rune(s); len(r) > length {
		s = string(r[:length]) + "…"
	}
	return s
}

func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(now.Sub(t))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// span is d with the precision that people want.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// retryHandler runs a waiting key now, whatever it waits for.
//
//	POST /debug/queue/retry?key=namespace/name[&controller=]
func retryHandler(controllers map[string]*controller.Controller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := cache.ParseObjectName(r.FormValue("key"))
		if err != nil || key.Name == "" {
			http.Error(w, "key must be namespace/name", http.StatusBadRequest)
			return
		}
		retried := []string{}
		for name, c := range controllers {
			if want := r.FormValue("controller"); (want == "" || want == name) && c.RetryNow(key) {
				retried = append(retried, name)
			}
		}
		if len(retried) == 0 {
			http.Error(w, key.String()+" is not waiting in any queue here: on a standby none is", http.StatusNotFound)
			return
		}
		slices.Sort(retried)
		writeJSON(w, map[string]any{"key": key.String(), "retried": retried})
	}
}

// wedgedNote names, under /healthz?verbose, the keys whose workers have been given
// up and replaced: their controller is healthy, they are not.
func wedgedNote(c *controller.Controller) func() string {
	return func() string {
		wedged := c.Snapshot().Wedged
		if len(wedged) == 0 {
			return ""
		}
		return fmt.Sprintf("%d wedged: %s", len(wedged), strings.Join(wedged, ", "))
	}
}
