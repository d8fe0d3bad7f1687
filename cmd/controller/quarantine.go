package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

// quarantineSource is an informer of any type.
type quarantineSource interface {
	Snapshot() informer.Snapshot
	QuarantineList(limit int, after cache.ObjectName) ([]informer.Quarantined, bool)
}

// quarantinePage is what is shown of one resource.
type quarantinePage struct {
	// Resource in the form resource.group. Objects is the number of all.
	Resource string              `json:"resource"`
	Objects  int                 `json:"objects"`
	Items    []quarantinedObject `json:"items"`
	// More is set where the next page begins after the last item.
	More bool `json:"more,omitempty"`
}

type quarantinedObject struct {
	// Object in the form namespace/name.
	Object string `json:"object"`
	informer.Quarantined
	// Key is Object, which reads better.
	Key any `json:"key,omitempty"`
}

// quarantineHandler shows which objects cannot be decoded, why, and how to mend
// them: as JSON, or as text with ?format=text or where only text is accepted.
//
//	GET /debug/quarantine[?resource=resource.group][&limit=][&after=namespace/name][&format=text]
func quarantineHandler(sources []quarantineSource) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit, after, err := paging(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, err := wantsText(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		pages := []quarantinePage{}
		for _, source := range sources {
			s := source.Snapshot()
			if want := r.FormValue("resource"); want != "" && want != s.Resource {
				continue
			}
			page := quarantinePage{Resource: s.Resource, Objects: s.Quarantined, Items: []quarantinedObject{}}
			records, more := source.QuarantineList(limit, after)
			page.More = more
			for _, record := range records {
				page.Items = append(page.Items, quarantinedObject{Object: record.Key.String(), Quarantined: record})
			}
			pages = append(pages, page)
		}
		if text {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			writeQuarantineText(w, pages)
			return
		}
		writeJSON(w, pages)
	}
}

// paging reads limit and after.
func paging(r *http.Request) (limit int, after cache.ObjectName, err error) {
	limit = 100
	if text := r.FormValue("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit <= 0 {
			return 0, after, errors.New("limit must be a positive number")
		}
	}
	if text := r.FormValue("after"); text != "" {
		if after, err = cache.ParseObjectName(text); err != nil {
			return 0, after, errors.New("after must be namespace/name")
		}
	}
	return limit, after, nil
}

// writeQuarantineText writes a line for each bad field, then the commands, which
// are too long for a column and have to be copied as they are.
func writeQuarantineText(w http.ResponseWriter, pages []quarantinePage) {
	pages = slices.DeleteFunc(pages, func(p quarantinePage) bool { return p.Objects == 0 && len(p.Items) == 0 })
	if len(pages) == 0 {
		fmt.Fprintln(w, "Every object can be decoded.")
		return
	}
	for n, page := range pages {
		if n > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %d cannot be decoded\n\n", page.Resource, page.Objects)
		table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, "OBJECT\tFIELD\tVALUE\tREASON\tSINCE")
		for _, item := range page.Items {
			object := item.Object
			for _, f := range item.Fields {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", object, printable(f.Path), printable(f.Value), printable(f.Reason), item.FirstSeen.UTC().Format("2006-01-02T15:04:05Z"))
				object = ""
			}
		}
		_ = table.Flush()
		fmt.Fprintf(w, "\nTo mend them, with each <placeholder> replaced:\n\n")
		for _, item := range page.Items {
			if len(item.Fix) == 0 {
				fmt.Fprintf(w, "# %s: by kubectl edit\n", item.Object)
			}
			for _, command := range item.Fix {
				fmt.Fprintln(w, command)
			}
		}
		if page.More {
			fmt.Fprintf(w, "\nMore with ?format=text&resource=%s&after=%s\n", page.Resource, page.Items[len(page.Items)-1].Object)
		}
	}
}

// printable keeps what others have written from forging lines and columns.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
}
