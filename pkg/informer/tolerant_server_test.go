package informer_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

// rawServer speaks list, watch and watch-list for WebApps whose spec may be any
// JSON, as an API server does whose schema is loose.
type rawServer struct {
	url      string
	pageSize int // 0: one page

	mu        sync.Mutex
	revision  int
	oldest    int // no watch begins before it
	objects   map[string]rawObject
	history   []rawChange
	news, cut chan struct{} // closed and replaced, as in apiServer
	refuse    func(verb string, w http.ResponseWriter) bool
	requests  []url.Values // with "verb" added
	hold      bool         // no request is answered
	mute      bool         // watches are told nothing
}

type rawObject struct {
	name, uid, json string
}

type rawChange struct {
	revision int
	frame    string
}

func newRawServer(t *testing.T) *rawServer {
	s := &rawServer{revision: 100, objects: map[string]rawObject{}, news: make(chan struct{}), cut: make(chan struct{})}
	server := httptest.NewServer(s)
	s.url = server.URL
	t.Cleanup(func() {
		s.endWatches()
		server.Close()
	})
	return s
}

func (s *rawServer) client(t *testing.T) versioned.Interface {
	t.Helper()
	clients, err := versioned.NewForConfig(&rest.Config{Host: s.url, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// put creates or updates default/name; metadata is put beside the rest of it, as
// in `,"finalizers":["x"]`. It returns the revision.
func (s *rawServer) put(name, spec, metadata string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	o, event := s.objects[name], "MODIFIED"
	if o.name == "" {
		o, event = rawObject{name: name, uid: fmt.Sprintf("uid-%d", s.revision)}, "ADDED"
	}
	o.json = fmt.Sprintf(`{"apiVersion":"platform.tejo.dev/v1alpha1","kind":"WebApp","metadata":{"name":%q,"namespace":"default","uid":%q,"resourceVersion":"%d"%s},"spec":%s}`,
		name, o.uid, s.revision, metadata, spec)
	s.objects[name] = o
	s.changed(event, o.json)
	return strconv.Itoa(s.revision)
}

// remove deletes default/name; watches are told only if tell is set.
func (s *rawServer) remove(name string, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[name]
	delete(s.objects, name)
	s.revision++
	if tell {
		head, rest, _ := strings.Cut(o.json, `"resourceVersion":"`)
		_, rest, _ = strings.Cut(rest, `"`)
		s.changed("DELETED", head+`"resourceVersion":"`+strconv.Itoa(s.revision)+`"`+rest)
	}
}

func (s *rawServer) changed(event, object string) {
	if s.mute {
		return
	}
	s.history = append(s.history, rawChange{s.revision, `{"type":"` + event + `","object":` + object + "}\n"})
	close(s.news)
	s.news = make(chan struct{})
}

func (s *rawServer) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// relist makes the reflector list again, after during has happened unseen.
func (s *rawServer) relist(during func()) {
	s.away(func() {
		during()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.revision++
		s.oldest = s.revision
	})
}

// away cuts all watches and answers no request while during happens. Watches go on
// from where they were, and are told then.
func (s *rawServer) away(during func()) {
	s.mu.Lock()
	s.hold = true
	s.mu.Unlock()
	s.endWatches()
	during()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = false
	close(s.news)
	s.news = make(chan struct{})
}

// expire makes the reflector list again by an ERROR 410 in its open watch, after
// during has happened unseen.
func (s *rawServer) expire(during func()) {
	s.mu.Lock()
	s.mute = true
	s.mu.Unlock()
	during()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = false
	s.revision++
	s.oldest = s.revision
	s.history = append(s.history, rawChange{s.revision, expiredFrame + "\n"})
	close(s.news)
	s.news = make(chan struct{})
}

const expiredFrame = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}}`

// asked returns the requests of a verb: list, watch or watchlist.
func (s *rawServer) asked(verb string) (found []url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.Get("verb") == verb {
			found = append(found, r)
		}
	}
	return found
}

func (s *rawServer) setRefuse(refuse func(verb string, w http.ResponseWriter) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func answer(w http.ResponseWriter, code int, reason, body string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if body == "" {
		body = fmt.Sprintf("{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"status\": \"Failure\",\n  \"message\": \"no\",\n  \"reason\": %q,\n  \"code\": %d\n}\n", reason, code)
	}
	fmt.Fprint(w, body)
	return true
}

func noWatchList(verb string, w http.ResponseWriter) bool {
	return verb == "watchlist" && answer(w, http.StatusUnprocessableEntity, "Invalid", "")
}

func (s *rawServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
		if query.Get("sendInitialEvents") == "true" {
			verb = "watchlist"
		}
	}
	query.Set("verb", verb)
	query.Set("accept", r.Header.Get("Accept"))
	s.mu.Lock()
	for s.hold {
		news := s.news
		s.mu.Unlock()
		<-news
		s.mu.Lock()
	}
	query.Set("began", strconv.Itoa(s.revision))
	s.requests = append(s.requests, query)
	refuse, revision, cut, oldest := s.refuse, s.revision, s.cut, s.oldest
	var objects []string
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		objects = append(objects, s.objects[name].json)
	}
	s.mu.Unlock()
	if refuse != nil && refuse(verb, w) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if verb == "list" {
		start, _ := strconv.Atoi(query.Get("continue"))
		end, token := len(objects), ""
		if s.pageSize > 0 && start+s.pageSize < end {
			end = start + s.pageSize
			token = strconv.Itoa(end)
		}
		fmt.Fprintf(w, `{"apiVersion":"platform.tejo.dev/v1alpha1","items":[%s],"kind":"WebAppList","metadata":{"resourceVersion":"%d","continue":%q}}`,
			strings.Join(objects[start:end], ","), revision, token)
		return
	}
	flush := w.(http.Flusher).Flush
	flush()
	bookmark := func(revision int, annotations string) {
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"WebApp","apiVersion":"platform.tejo.dev/v1alpha1","metadata":{"resourceVersion":"%d","annotations":%s},"spec":{}}}`+"\n", revision, annotations)
	}
	from := revision
	if verb == "watchlist" {
		for _, o := range objects {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", o)
		}
		bookmark(revision, `{"k8s.io/initial-events-end":"true"}`)
	} else if from, _ = strconv.Atoi(query.Get("resourceVersion")); from < oldest {
		fmt.Fprintln(w, expiredFrame)
		return
	}
	for {
		s.mu.Lock()
		news, history := s.news, s.history
		s.mu.Unlock()
		select {
		case <-cut:
			return
		default:
		}
		for _, c := range history {
			if c.revision > from {
				fmt.Fprint(w, c.frame)
				from = c.revision
			}
		}
		flush()
		select {
		case <-news:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// lastRV is where the last of the requests began.
func lastRV(requests []url.Values) string {
	if len(requests) == 0 {
		return ""
	}
	return requests[len(requests)-1].Get("resourceVersion")
}
