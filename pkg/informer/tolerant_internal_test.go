package informer

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/fake"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/scheme"
)

var gadgetResource = gadgetVersion.WithResource("gadgets")

// boundTo returns what Tolerant makes, bound to a store with these objects.
func boundTo(t testing.TB, client rest.Interface, held ...object) *tolerant {
	t.Helper()
	lw := Tolerant(client)("ns").(*tolerant)
	q := newQuarantine(gadgetResource, newQuarantineLog(gadgetResource.GroupResource()), &quarantineListeners{})
	q.store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, o := range held {
		if err := q.store.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	if len(held) > 0 {
		q.store.Bookmark("200") // adding has made it say where it is
	}
	d, err := newDecoder(reflect.TypeFor[*gadget](), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := lw.bind(gadgetResource, d, q); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		q.store.Bookmark("1000000") // or what leaves would be waited for
		q.routines.Wait()
	})
	return lw
}

// wire is a gadget as the API server sends it.
func wire(name, uid, rv, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"test.steadwatch.dev/v1","kind":"Gadget","metadata":{"name":%q,"namespace":"ns","uid":%q,"resourceVersion":%q,"finalizers":["f"]},"spec":%s}`, name, uid, rv, spec)
}

func heldGadget(name, uid, rv string) *gadget {
	g := &gadget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: rv, Labels: map[string]string{"l": "l"}}}
	g.Spec.Image = "held"
	return g
}

// show is an event as "TYPE name uid rv image", with "end" for the bookmark that
// ends the initial events.
func show(e watch.Event) string {
	if e.Type == watch.Error {
		status := apierrors.FromObject(e.Object).(apierrors.APIStatus).Status()
		return fmt.Sprintf("ERROR %d %s", status.Code, status.Reason)
	}
	g := e.Object.(*gadget)
	words := []string{string(e.Type), g.Name, string(g.UID), g.ResourceVersion, g.Spec.Image}
	if g.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		words = append(words, "end")
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

const (
	fits  = `{"image":"new"}`
	fits2 = `{"image":"newer"}`
	unfit = `{"interval":"360d"}`
)

var initialEnd = frameOf("BOOKMARK", `{"apiVersion":"test.steadwatch.dev/v1","kind":"Gadget","metadata":{"resourceVersion":"200","annotations":{"k8s.io/initial-events-end":"true"}}}`)

// What the Reflector is given, event by event.
func TestTolerantWatch(t *testing.T) {
	for name, test := range map[string]struct {
		reason    string
		watchList bool
		from      string // resourceVersion, "100" if empty
		held      []object
		aside     []string // set aside before the watch, by name
		body      string
		want      []string
		bad       []string
	}{
		"R11 BadAdded":    {reason: "a bookmark in its place", body: frameOf("ADDED", wire("x", "u", "101", unfit)), want: []string{"BOOKMARK 101"}, bad: []string{"x"}},
		"R11 BadModified": {reason: "the cache keeps what it has", held: []object{heldGadget("x", "u", "90")}, body: frameOf("MODIFIED", wire("x", "u", "101", unfit)), want: []string{"BOOKMARK 101"}, bad: []string{"x"}},
		"BadOtherUID":     {reason: "the cached one is gone; its delete carries the new revision", held: []object{heldGadget("x", "old", "90")}, body: frameOf("ADDED", wire("x", "u", "101", unfit)), want: []string{"DELETED x old 101 held"}, bad: []string{"x"}},
		"BadDeleted":      {reason: "metadata alone", aside: []string{"x"}, body: frameOf("DELETED", wire("x", "u", "101", unfit)), want: []string{"DELETED x u 101"}},
		"BadDeletedHeld":  {reason: "the last good version under the frame's metadata", aside: []string{"x"}, held: []object{heldGadget("x", "u", "90")}, body: frameOf("DELETED", wire("x", "u", "101", unfit)), want: []string{"DELETED x u 101 held"}},
		"BadDeletedOther": {reason: "the version held is another object's", aside: []string{"x"}, held: []object{heldGadget("x", "old", "90")}, body: frameOf("DELETED", wire("x", "u", "101", unfit)), want: []string{"DELETED x u 101"}},
		"GoodDeleted":     {reason: "mended and deleted at once", aside: []string{"x"}, body: frameOf("DELETED", wire("x", "u", "101", fits)), want: []string{"DELETED x u 101 new"}},
		"GoodAgain":       {reason: "cleared", aside: []string{"x", "y"}, body: frameOf("MODIFIED", wire("x", "u", "101", fits)), want: []string{"MODIFIED x u 101 new"}, bad: []string{"y"}},
		"BadAgain":        {reason: "every change moves on", aside: []string{"x"}, body: frameOf("MODIFIED", wire("x", "u", "101", unfit)) + frameOf("MODIFIED", wire("x", "u", "102", unfit)), want: []string{"BOOKMARK 101", "BOOKMARK 102"}, bad: []string{"x"}},
		"NoName":          {reason: "counted, moved on", body: frameOf("ADDED", `{"metadata":{"name":7,"resourceVersion":"101"},"spec":{}}`) + frameOf("ADDED", wire("y", "u", "102", fits)), want: []string{"BOOKMARK 101", "ADDED y u 102 new"}},
		"NoRevision":      {reason: "no bookmark without a revision", body: frameOf("ADDED", `{"metadata":{"name":"x","resourceVersion":7},"spec":{}}`), bad: []string{"x"}},
		"FromAnyRevision": {reason: "the events before the first that is not ADDED are in no order", from: "0", body: frameOf("ADDED", wire("x", "u", "90", unfit)) + frameOf("ADDED", wire("y", "u", "80", fits)) + frameOf("MODIFIED", wire("x", "u", "101", unfit)), want: []string{"ADDED y u 80 new", "BOOKMARK 101"}, bad: []string{"x"}},
		"ServerBookmark":  {reason: "passed on", body: frameOf("BOOKMARK", `{"metadata":{"resourceVersion":"150"},"spec":{"interval":""}}`), want: []string{"BOOKMARK 150"}},
		"InitialBad":      {reason: "left out, and no bookmark before the end", watchList: true, body: frameOf("ADDED", wire("x", "u", "90", unfit)) + frameOf("ADDED", wire("y", "u", "80", fits)) + initialEnd + frameOf("MODIFIED", wire("y", "u", "201", unfit)), want: []string{"ADDED y u 80 new", "BOOKMARK 200 end", "BOOKMARK 201"}, bad: []string{"x", "y"}},
		"InitialBadHeld":  {reason: "the good version stands in, so that no delete is reported", watchList: true, held: []object{heldGadget("x", "u", "70")}, body: frameOf("ADDED", wire("x", "u", "90", unfit)) + initialEnd, want: []string{"ADDED x u 70 held", "BOOKMARK 200 end"}, bad: []string{"x"}},
		"InitialOtherUID": {reason: "the good version is of an object that is gone", watchList: true, held: []object{heldGadget("x", "old", "70")}, body: frameOf("ADDED", wire("x", "u", "90", unfit)) + initialEnd, want: []string{"BOOKMARK 200 end"}, bad: []string{"x"}},
		"InitialWithout":  {reason: "what a complete WatchList lacks is gone", watchList: true, aside: []string{"x"}, body: initialEnd, want: []string{"BOOKMARK 200 end"}},
		"InitialMended":   {reason: "cleared at the end", watchList: true, aside: []string{"x"}, body: frameOf("ADDED", wire("x", "u", "90", fits)) + initialEnd, want: []string{"ADDED x u 90 new", "BOOKMARK 200 end"}},
		"InitialCutShort": {reason: "nothing is known to be gone before the end, nor to be bad", watchList: true, aside: []string{"x"}, body: frameOf("ADDED", wire("y", "u", "90", unfit)), bad: []string{"x"}},
		"InitialDeleted":  {reason: "bad, then gone, before the end", watchList: true, body: frameOf("ADDED", wire("x", "u", "90", unfit)) + frameOf("DELETED", wire("x", "u", "95", unfit)) + initialEnd, want: []string{"DELETED x u 95", "BOOKMARK 200 end"}},
		"R23 StatusIn200": {reason: "an error of the API, not a bad object", aside: []string{"x"}, body: "{\n \"kind\": \"Status\",\n \"apiVersion\": \"v1\",\n \"status\": \"Failure\",\n \"reason\": \"Forbidden\",\n \"code\": 403\n}", want: []string{"ERROR 403 Forbidden"}, bad: []string{"x"}},
		"R37 ErrorFrame":  {reason: "passed on", aside: []string{"x"}, body: frameOf("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`), want: []string{"ERROR 410 Expired"}, bad: []string{"x"}},
		"EndsWithinFrame": {reason: "as client-go: watched again", body: frameOf("ADDED", wire("y", "u", "101", fits)) + `{"type":"ADD`, want: []string{"ADDED y u 101 new"}},
		"Malformed":       {reason: "as client-go: an error, listed again", body: frameOf("ADDED", wire("y", "u", "101", fits)) + `{"type":nonsense}`, want: []string{"ADDED y u 101 new", "ERROR 500 InternalError"}},
		"R05 BadQuantity": {reason: "a field that decodes itself, in a map", body: frameOf("ADDED", wire("x", "u", "101", `{"limits":{"cpu":""}}`)), want: []string{"BOOKMARK 101"}, bad: []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			var query url.Values
			lw := boundTo(t, gadgetClient(t, func(w http.ResponseWriter, r *http.Request) {
				query = r.URL.Query()
				fmt.Fprint(w, test.body)
			}), test.held...)
			for _, name := range test.aside {
				lw.quarantine.enter(badGadget(t, lw.decoder, wire(name, "u", "95", unfit)))
			}
			opts := metav1.ListOptions{ResourceVersion: test.from, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](60)}
			if test.from == "" {
				opts.ResourceVersion = "100"
			}
			if test.watchList {
				opts.SendInitialEvents, opts.ResourceVersionMatch = ptr.To(true), metav1.ResourceVersionMatchNotOlderThan
			}
			w, err := lw.WatchWithContext(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for e := range w.ResultChan() {
				got = append(got, show(e))
			}
			w.Stop()
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
			var bad []string
			for _, r := range lw.quarantine.all() {
				bad = append(bad, r.Key.Name)
			}
			slices.Sort(bad)
			if diff := cmp.Diff(test.bad, bad); diff != "" {
				t.Errorf("%s: set aside (-want +got):\n%s", test.reason, diff)
			}
			if name == "NoName" && lw.quarantine.unread != 1 {
				t.Errorf("%d unreadable, want 1", lw.quarantine.unread)
			}
			want := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {opts.ResourceVersion}, "timeoutSeconds": {"60"}, "timeout": {"1m0s"}}
			if test.watchList {
				want.Set("sendInitialEvents", "true")
				want.Set("resourceVersionMatch", "NotOlderThan")
			}
			if diff := cmp.Diff(want, query); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
		})
	}
}

func badGadget(t testing.TB, d *decoder, raw string) *badItem {
	t.Helper()
	i, err := d.item([]byte(raw))
	if err != nil || i.bad == nil {
		t.Fatalf("%s: %v, want it bad", raw, err)
	}
	return i.bad
}

// Pages change the quarantine when the last one has been read, and not before.
func TestTolerantListPages(t *testing.T) {
	var pages []string
	status := 0
	lw := boundTo(t, gadgetClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if status != 0 {
			w.WriteHeader(status)
			fmt.Fprintf(w, "{\n \"kind\": \"Status\",\n \"apiVersion\": \"v1\",\n \"status\": \"Failure\",\n \"code\": %d,\n \"details\": {\"retryAfterSeconds\": 7}\n}", status)
			return
		}
		n := 0
		if c := r.URL.Query().Get("continue"); c != "" {
			_, _ = fmt.Sscan(c, &n)
		}
		fmt.Fprint(w, pages[n])
	}), heldGadget("x", "u", "70"), heldGadget("y", "old", "71"))
	page := func(more string, items ...string) string {
		return `{"kind":"GadgetList","apiVersion":"test.steadwatch.dev/v1","metadata":{"resourceVersion":"200","continue":"` + more + `"},"items":[` + strings.Join(items, ",") + `]}`
	}
	pages = []string{
		page("1", wire("a", "u", "1", fits), wire("x", "u", "2", unfit), wire("y", "u", "3", unfit)),
		page("", wire("b", "u", "4", fits2), wire("z", "u", "5", unfit)),
	}
	lw.quarantine.enter(badGadget(t, lw.decoder, wire("gone", "u", "95", unfit)))
	list := func(token string) (string, error) {
		l, err := lw.ListWithContext(t.Context(), metav1.ListOptions{Continue: token, Limit: 3})
		if err != nil {
			return "", err
		}
		m, err := meta.ListAccessor(l)
		if err != nil || m.GetResourceVersion() != "200" {
			t.Errorf("list %+v, %v", m, err)
		}
		items, err := meta.ExtractListWithAlloc(l)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, i := range items {
			g := i.(*gadget)
			found = append(found, g.Name+" "+g.Spec.Image)
		}
		return strings.Join(found, ","), nil
	}
	aside := func() string {
		var found []string
		for _, r := range lw.quarantine.all() {
			found = append(found, r.Key.Name)
		}
		slices.Sort(found)
		return strings.Join(found, ",")
	}
	for _, step := range []struct{ token, want, aside string }{
		{"", "a new,x held", "gone"}, // y in the cache is of another UID
		{"1", "b newer", "x,y,z"},
		{"", "a new,x held", "x,y,z"}, // a list that is given up after its first page
		{"", "a new,x held", "x,y,z"},
	} {
		got, err := list(step.token)
		if err != nil || got != step.want || aside() != step.aside {
			t.Errorf("continue %q: %s, %v, set aside %s; want %+v", step.token, got, err, aside(), step)
		}
	}
	for what, body := range map[string]string{
		"R23 a Status in place of a list": `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden"}`,
		"a list that ends early":          `{"kind":"GadgetList","metadata":{"resourceVersion":"9"},"items":[` + wire("z", "u", "9", unfit),
		"no list at all":                  `{}`,
	} {
		pages = []string{body}
		if got, err := list(""); err == nil || aside() != "x,y,z" {
			t.Errorf("%s: %s, %v, set aside %s", what, got, err, aside())
		}
	}
	status = http.StatusTooManyRequests
	_, err := list("")
	if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || after == 0 || aside() != "x,y,z" {
		t.Errorf("R23 429: %v, retry after %v %v", err, after, ok)
	}
	if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "200"}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("R23 429 of a watch: %v", err)
	}
	status = http.StatusForbidden
	if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "200"}); !apierrors.IsForbidden(err) {
		t.Errorf("R23 403 of a watch: %v", err)
	}
	pages, status = []string{page("", wire("a", "u", "1", fits))}, 0
	if got, err := list(""); err != nil || got != "a new" || aside() != "" {
		t.Errorf("relist without bad ones: %s, %v, set aside %s", got, err, aside())
	}
}

// A stopped watch ends, whatever it waits for.
func TestTolerantWatchStops(t *testing.T) {
	lw := boundTo(t, gadgetClient(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat(frameOf("ADDED", wire("y", "u", "101", fits)), 3))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	for _, taken := range []int{0, 1, 3} {
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "100"})
		if err != nil {
			t.Fatal(err)
		}
		for range taken {
			<-w.ResultChan()
		}
		w.Stop()
		w.Stop()
		for range w.ResultChan() {
		}
	}
}

func TestTolerantBadInput(t *testing.T) {
	client := gadgetClientNone(t)
	for name, test := range map[string]struct {
		client rest.Interface
		want   string
	}{
		"Nil":          {nil, "use informer.ListWatch"},
		"Fake":         {fake.NewClientset().PlatformV1alpha1().RESTClient(), "use informer.ListWatch"},
		"OtherVersion": {client, "was given a REST client for test.steadwatch.dev/v1: use that of x.dev/v2"},
	} {
		_, err := New(Config[*gadget]{Resource: gadgetResource, ListerWatcher: Tolerant(test.client)})
		if name == "OtherVersion" {
			other := gadgetResource
			other.Group, other.Version = "x.dev", "v2"
			_, err = New(Config[*gadget]{Resource: other, ListerWatcher: Tolerant(test.client)})
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	lw := Tolerant(client)("")
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("listed without an informer")
	}
	if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("watched without an informer")
	}
}

func gadgetClientNone(t testing.TB) rest.Interface {
	t.Helper()
	client, err := rest.RESTClientFor(&rest.Config{Host: "http://127.0.0.1:1", APIPath: "/apis", ContentConfig: rest.ContentConfig{GroupVersion: &gadgetVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
