package informer

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// What is fetched for polling is delivered later. Until then nobody may wait for the
// store to show it, or the round stands still until the wait is given up; and an
// object that is set aside makes no event, whatever a watch would send in its place.
func TestFeedDeliversNothing(t *testing.T) {
	item := ""
	lw := boundTo(t, gadgetClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"GadgetList","apiVersion":"test.steadwatch.dev/v1","metadata":{"resourceVersion":"300"},"items":[`+item+`]}`)
	}), heldGadget("x", "u", "70"), heldGadget("y", "old", "71"), heldGadget("z", "u", "72"))
	lw.quarantine.setDelivered("200")
	for _, test := range []struct {
		reason, item string
		want         []string
	}{
		{"good", wire("x", "u", "210", fits), []string{"MODIFIED x u 210 new"}},
		{"bad", wire("x", "u", "220", unfit), nil},
		{"bad and another object than the cached one", wire("y", "new", "230", unfit), []string{"DELETED y old 230 held"}},
	} {
		item = test.item
		var got []string
		next, err := lw.feed(t.Context(), metav1.ListOptions{}, func(cache.ObjectName) bool { return true },
			func(e watch.Event) { got = append(got, show(e)) })
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil || next != "" {
			t.Errorf("%s: %v, next %q (-want +got):\n%s", test.reason, err, next, diff)
		}
	}
	e := lw.gone(t.Context(), cache.NewObjectName("ns", "z"), mark{uid: "u"}, "240")
	if got, want := show(e), "DELETED z u 240 held"; got != want {
		t.Errorf("gone: %s, want %s", got, want)
	}
	e = lw.gone(t.Context(), cache.NewObjectName("ns", "x"), mark{uid: "u"}, "250")
	if got, want := show(e), "DELETED x u 250 held"; got != want {
		t.Errorf("gone while set aside: %s, want %s", got, want)
	}
	if got := lw.quarantine.delivered; got != "200" {
		t.Errorf("counts as delivered up to %s, and nothing was", got)
	}
}
