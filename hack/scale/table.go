package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// print writes Markdown.
func (r *results) print(w io.Writer, o options) {
	flags := "default flags"
	if f := o.flags(); len(f) > 0 {
		flags = "`" + strings.Join(f, " ") + "`"
	}
	fmt.Fprintf(w, "%d WebApps in %d namespaces, ConfigMaps of %d bytes, %s; %s, %d CPUs.\n\n",
		o.n, o.namespaces, o.configBytes, flags, runtime.Version(), runtime.NumCPU())
	n := float64(o.n)
	row := func(name string, first, next string) { fmt.Fprintf(w, "| %s | %s | %s |\n", name, first, next) }
	row("", "from nothing", "restart, nothing changed")
	row("---", "---", "---")
	row("all created / all observed", fmt.Sprintf("%s / %s", round(r.created), round(r.first.wall)), "– / "+round(r.next.wall))
	row("passes an object", passes(r.first, n), passes(r.next, n))
	row("CPU of the controller", cpu(r.first, n), cpu(r.next, n))
	row("ready in the queue", latency(r.first.queueMean, r.first.queueP99), latency(r.next.queueMean, r.next.queueP99))
	row("a pass", latency(r.first.passMean, r.first.passP99), latency(r.next.passMean, r.next.passP99))
	row("RSS at rest", memory(r.first.rss, r.empty.rss, n), memory(r.next.rss, r.empty.rss, n))
	row("heap at rest, collected", memory(r.first.heap, r.empty.heap, n), memory(r.next.heap, r.empty.heap, n))
	fmt.Fprintf(w, "\nEmpty, the process takes %s RSS, %s heap. A WebApp with its children is %d bytes of JSON, %d of them managedFields, which are not kept.\n",
		megabytes(r.empty.rss), megabytes(r.empty.heap), r.whole, r.managedFields)

	fmt.Fprintf(w, "\nRequests by the audit log, Leases and watches apart. Most writes for one object, Events apart: %d.\n\n", r.mostOfAll)
	fmt.Fprint(w, "| request | from nothing | an object | most for one | restart |\n| --- | --- | --- | --- | --- |\n")
	for _, kind := range slices.SortedFunc(maps.Keys(r.kinds()), func(a, b request) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.resource, b.resource))
	}) {
		most := "–"
		if kind.writes() {
			most = fmt.Sprint(r.most[kind])
		}
		fmt.Fprintf(w, "| %s %s | %d | %.2f | %s | %d |\n", kind.verb, kind.resource, r.first.requests[kind],
			float64(r.first.requests[kind])/n, most, r.next.requests[kind])
	}
}

func passes(p phase, n float64) string {
	total := 0.0
	var classes []string
	for _, class := range slices.Sorted(maps.Keys(p.passes)) {
		if count := p.passes[class]; count > 0 {
			total += count
			classes = append(classes, fmt.Sprintf("%s %.2f", class, count/n))
		}
	}
	return fmt.Sprintf("%.2f (%s)", total/n, strings.Join(classes, ", "))
}

func cpu(p phase, n float64) string {
	return fmt.Sprintf("%.1f s, %.2f ms an object", p.cpu, 1000*p.cpu/n)
}

func latency(mean, p99 float64) string {
	return fmt.Sprintf("%s in the mean, 99 %% within %s", seconds(mean), seconds(p99))
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d > time.Second {
		return round(d)
	}
	return d.Round(100 * time.Microsecond).String()
}

func memory(now, empty, n float64) string {
	return fmt.Sprintf("%s, %.1f KiB an object", megabytes(now), (now-empty)/n/1024)
}

func megabytes(b float64) string { return fmt.Sprintf("%.1f MiB", b/(1<<20)) }

func round(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
