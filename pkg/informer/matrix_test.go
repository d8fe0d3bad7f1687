package informer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// transition is what happens to the object x between two good ones, a and z.
type transition struct {
	// before are the specs that x has had when it begins, all of them seen by an
	// open watch.
	before []string
	// change is what happens: nothing where it is nil.
	change func(s *rawServer)
	// fresh: a process has been started in between, which has never seen x good.
	fresh bool
	// occasion is how a process learns of it.
	occasion occasion

	events   []string // what a handler is told of x, as in "update v3"
	cached   string   // image of x in the local copy, "" if it is not there
	bad      string   // what of x is bad, "" if nothing is
	children []string // what has been made for x, one after the other
}

type occasion int

const (
	byNews    occasion = iota // by an event, or by the list that an expired watch leads to
	watchCut                  // the connection broke, and nothing was answered for a while
	restarted                 // another process takes over
	relisted                  // by a list that was needed for other reasons
)

const otherBadSpec = `{"image":"v2","replicas":"two"}`

func putX(spec string) func(*rawServer) { return func(s *rawServer) { s.put("x", spec, "") } }

// transitions are all there are. The specs that are bad have the image v2: it must
// never show anywhere.
var transitions = map[string]transition{
	"created bad":                  {change: putX(badSpec), bad: "spec.drainTimeout"},
	"good→bad":                     {before: []string{goodSpec}, change: putX(badSpec), cached: "v1", bad: "spec.drainTimeout", children: []string{"v1"}},
	"bad→good, never good before":  {before: []string{badSpec}, change: putX(`{"image":"v3"}`), events: []string{"add v3"}, cached: "v3", children: []string{"v3"}},
	"bad→good":                     {before: []string{goodSpec, badSpec}, change: putX(`{"image":"v3"}`), events: []string{"update v3"}, cached: "v3", children: []string{"v1", "v3"}},
	"bad→good, after a restart":    {before: []string{goodSpec, badSpec}, fresh: true, change: putX(`{"image":"v3"}`), events: []string{"add v3"}, cached: "v3", children: []string{"v1", "v3"}},
	"bad→other bad":                {before: []string{goodSpec, badSpec}, change: putX(otherBadSpec), cached: "v1", bad: "spec.replicas", children: []string{"v1"}},
	"bad→deleted, never good":      {before: []string{badSpec}, change: func(s *rawServer) { s.remove("x", true) }, events: []string{"delete"}},
	"bad→deleted":                  {before: []string{goodSpec, badSpec}, change: func(s *rawServer) { s.remove("x", true) }, events: []string{"delete v1"}, children: []string{"v1", "none"}},
	"bad→deleted, after a restart": {before: []string{goodSpec, badSpec}, fresh: true, change: func(s *rawServer) { s.remove("x", true) }, events: []string{"delete"}, children: []string{"v1", "none"}},
	"deleted and recreated bad": {before: []string{goodSpec}, change: func(s *rawServer) {
		s.remove("x", true)
		s.put("x", badSpec, "")
	}, events: []string{"delete v1"}, bad: "spec.drainTimeout", children: []string{"v1"}},
	"deleted and recreated bad, while bad": {before: []string{badSpec}, change: func(s *rawServer) {
		s.remove("x", true)
		s.put("x", otherBadSpec, "")
	}, events: []string{"delete"}, bad: "spec.replicas"},
	"restart while bad":           {before: []string{goodSpec, badSpec}, occasion: restarted, bad: "spec.drainTimeout", children: []string{"v1"}},
	"relist while bad":            {before: []string{goodSpec, badSpec}, occasion: relisted, cached: "v1", bad: "spec.drainTimeout", children: []string{"v1"}},
	"bad while the watch is down": {before: []string{goodSpec}, change: putX(badSpec), occasion: watchCut, cached: "v1", bad: "spec.drainTimeout", children: []string{"v1"}},
}

// Every transition, learned in every way. For each: what handlers are told, what is
// cached, what is set aside, that the watch has got past it, so that nothing is told
// again when it is opened anew, and what a worker makes of it that asks, as the
// controller's gate does, whether the object is set aside. Run it with -v for a table.
func TestMatrix(t *testing.T) {
	var mu sync.Mutex
	table := map[string]string{}
	t.Run("cells", func(t *testing.T) {
		for name, tr := range transitions {
			for _, mode := range []string{"LIST", "WatchList", "paged", "WATCH"} {
				t.Run(name+"/"+mode, func(t *testing.T) {
					t.Parallel()
					row := tr.run(t, mode)
					mu.Lock()
					defer mu.Unlock()
					table[name+"\t"+mode] = row
				})
			}
		}
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "transition\tlearned by\tevents\tcached\tset aside\tchildren\twatch from")
	for _, key := range slices.Sorted(maps.Keys(table)) {
		fmt.Fprintf(w, "%s\t%s\n", key, table[key])
	}
	w.Flush()
	t.Logf("\n%s", b.String())
	if len(table) != 4*len(transitions) {
		t.Errorf("%d cells of %d", len(table), 4*len(transitions))
	}
}

func (tr transition) run(t *testing.T, mode string) string {
	s := newRawServer(t)
	if mode != "WATCH" {
		modes[mode](s)
	}
	byList := mode != "WATCH"
	s.put("a", goodSpec, "")
	s.put("z", goodSpec, "")
	var made children
	p := startProcess(t, s, &made)
	beat := 0
	// pulse changes a good object and waits until a handler has it: whatever was
	// sent before has arrived then.
	pulse := func() string {
		t.Helper()
		beat++
		image := "beat" + strconv.Itoa(beat)
		rv := s.put("z", `{"image":"`+image+`"}`, "")
		eventually(t, patience, "z is "+image, func() (bool, any) {
			_, events := p.split()
			return slices.Contains(events, "update z "+image), events
		})
		return rv
	}
	for _, spec := range tr.before {
		s.put("x", spec, "")
		pulse()
		p.rest(t)
	}
	if n := len(tr.before); n > 0 && tr.before[n-1] != goodSpec != p.isBad() {
		t.Fatalf("before: bad is %v after %q", p.isBad(), tr.before)
	}
	if tr.fresh {
		p.stop()
		p = startProcess(t, s, &made)
		pulse()
		p.rest(t)
	}
	p.forget()

	change := func() {
		if tr.change != nil {
			tr.change(s)
		}
	}
	lists, from := s.lists(), s.at()
	switch {
	case tr.occasion == restarted:
		p.stop()
		p = startProcess(t, s, &made)
	case tr.occasion == relisted:
		s.expire(change)
		p.listed(t, s, lists)
	case tr.occasion == watchCut && byList:
		s.relist(change)
		p.listed(t, s, lists)
	case tr.occasion == watchCut:
		s.away(change)
	case byList:
		s.expire(change)
		p.listed(t, s, lists)
	default:
		change()
	}
	if !byList && tr.change == nil {
		putX(badSpec)(s) // written again: the event is what this column is about
	}
	past := s.at()
	eventually(t, patience, "the outcome", func() (bool, any) {
		bad := ""
		if q, ok := p.Quarantined(x); ok {
			bad = q.Fields[0].Path
			if q.ResourceVersion != s.of("x") {
				bad = "an older version"
			}
		}
		return bad == tr.bad && p.cachedX() == tr.cached, fmt.Sprintf("set aside %q, cached %q", bad, p.cachedX())
	})

	// What has been read is past it, and so is where the watch goes on from.
	eventually(t, patience, "the watch to get past it", func() (bool, any) {
		rv := p.Snapshot().ResourceVersion
		return number(rv) >= number(past), rv + ", want " + past
	})
	if byList {
		eventually(t, patience, "a watch from there", func() (bool, any) { return number(s.position()) >= number(past), s.position() })
	}
	record, _ := p.Quarantined(x)
	if !byList {
		rewatch(t, s, p.apps)
	}
	resumed := s.position()
	if number(resumed) < number(past) {
		t.Errorf("watched again from %s: what is bad is sent once more (it is of %s, before it was %s)", resumed, past, from)
	}
	pulse()
	p.rest(t)
	if again, _ := p.Quarantined(x); again.LastSeen != record.LastSeen || again.ResourceVersion != record.ResourceVersion {
		t.Errorf("seen again: %+v, before %+v", again, record)
	}

	events, _ := p.split()
	want := tr.events
	if slices.Equal(want, []string{"delete"}) && byList {
		want = nil // client-go has never heard of it
	}
	if !slices.Equal(events, want) {
		t.Errorf("a handler was told %q of x, want %q", events, want)
	}
	if got := p.cachedX(); got != tr.cached {
		t.Errorf("cached %q, want %q", got, tr.cached)
	}
	got := made.all()
	if !slices.Equal(got, tr.children) && (tr.bad == "" || !slices.Equal(got, append(slices.Clone(tr.children), "none")) || tr.cached != "" || tr.occasion == restarted) {
		t.Errorf("made for x: %q, want %q", got, tr.children)
	}
	if q := p.Snapshot(); q.Quarantined != map[bool]int{true: 1}[tr.bad != ""] || q.Unreadable != 0 {
		t.Errorf("%+v", q)
	}
	or := func(s, empty string) string {
		if s == "" {
			return empty
		}
		return s
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s ≥ %s", or(strings.Join(events, ", "), "–"), or(p.cachedX(), "–"), or(tr.bad, "–"), or(strings.Join(got, "→"), "–"), resumed, past)
}

var x = cache.NewObjectName("default", "x")

// process is one that runs until stop, with a worker that looks at x without pause.
type process struct {
	*apps
	stop  func()
	looks atomic.Int64
}

func startProcess(t *testing.T, s *rawServer, made *children) *process {
	t.Helper()
	a, registration := newApps(t, s.client(t))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	p := &process{apps: a, stop: sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})}
	t.Cleanup(p.stop)
	waitSynced(t, registration, a.HasSyncedChecker())
	running.Go(func() {
		for ctx.Err() == nil {
			// The gate first, the copy then: as a worker does.
			if !p.isBad() {
				made.make(p.cachedX())
			}
			p.looks.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Microsecond):
			}
		}
	})
	return p
}

func (p *process) isBad() bool {
	_, bad := p.Quarantined(x)
	return bad
}

func (p *process) cachedX() string {
	o, ok, _ := p.Indexer().GetByKey(x.String())
	if !ok {
		return ""
	}
	return o.(*platformv1alpha1.WebApp).Spec.Image
}

// split returns the events of x, without its name and uid, and those of others.
func (p *process) split() (ofX, others []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		words := strings.Fields(e)
		if words[1] != "x" {
			others = append(others, e)
			continue
		}
		if words[0] == "delete" {
			words = words[:len(words)-1]
		}
		ofX = append(ofX, strings.Join(slices.Delete(words, 1, 2), " "))
	}
	return ofX, others
}

func number(resourceVersion string) int {
	n, _ := strconv.Atoi(resourceVersion)
	return n
}

// rest waits until the worker has looked at x as it is now.
func (p *process) rest(t *testing.T) {
	t.Helper()
	before := p.looks.Load()
	eventually(t, patience, "the worker", func() (bool, any) { return p.looks.Load() > before+1, nil })
}

func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events, p.apps.told = nil, nil
}

// listed waits until the process has read the list that it was made to ask for.
func (p *process) listed(t *testing.T, s *rawServer, before int) {
	t.Helper()
	eventually(t, patience, "a list", func() (bool, any) { return s.lists() > before, s.lists() })
}

// children are what was made for x; they outlive processes.
type children struct {
	mu  sync.Mutex
	log []string
}

func (c *children) make(image string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if image == "" {
		if len(c.log) == 0 {
			return
		}
		image = "none"
	}
	if len(c.log) == 0 || c.log[len(c.log)-1] != image {
		c.log = append(c.log, image)
	}
}

func (c *children) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

func (s *rawServer) lists() int { return len(s.asked("list")) + len(s.asked("watchlist")) }

// at is the newest revision, of name that of the object.
func (s *rawServer) at() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.revision)
}

func (s *rawServer) of(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, rest, _ := strings.Cut(s.objects[name].json, `"resourceVersion":"`)
	rv, _, _ := strings.Cut(rest, `"`)
	return rv
}

// position is where the newest watch began: after its initial events if it had any.
func (s *rawServer) position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Backward(s.requests) {
		switch r.Get("verb") {
		case "watch":
			return r.Get("resourceVersion")
		case "watchlist":
			if s.refuse == nil { // else it was refused
				return r.Get("began")
			}
		}
	}
	return ""
}
