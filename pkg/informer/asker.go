package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// askSeconds is the timeoutSeconds of a question. The API server sends a
	// bookmark before a watch ends if it lasts 3 s or more (1.37; 1 and 2 get none).
	askSeconds = 3
	// askMargin is how much longer to wait for the answer.
	askMargin = 2 * time.Second
	// answerTimeout is how soon a plain request is answered by a server that answers
	// everything but watches, and goneAfter how late by one that is merely slow.
	answerTimeout = 3 * time.Second
	goneAfter     = 15 * time.Second
)

// answerKind says how a question was answered.
type answerKind string

const (
	// quiet: nothing has happened since the revision asked about.
	quiet answerKind = "quiet"
	// news: something has.
	news answerKind = "news"
	// mute: watches stay silent for longer than the API server would let them, on a
	// fresh connection too, on which a plain request is answered.
	mute answerKind = "mute"
	// expired: the revision asked about is too old for the API server.
	expired answerKind = "expired"
	// refused: the API server has answered with an error, or only just.
	refused answerKind = "refused"
	// unreachable: no answer, not on a fresh connection and not to a plain request.
	unreachable answerKind = "unreachable"
)

// answer is what a question has come to.
type answer struct {
	kind answerKind
	// key and resourceVersion are of the first event (news). For quiet,
	// resourceVersion is how far there is nothing to tell, "" if the API server did
	// not say.
	key             cache.ObjectName
	resourceVersion string
	// rewound: the API server tells of a revision below the one asked about, which
	// it cannot unless it was set back.
	rewound bool
	// err says more about mute, expired, refused and unreachable.
	err error
}

// asker asks the API server about one namespace of one resource, over the
// process's own connection. Its methods are not to be called concurrently.
type asker struct {
	hearing   *Hearing
	resource  schema.GroupVersionResource
	namespace string

	// from is what the last question was about, and quietTo up to where it was
	// answered with quiet: the next one starts there, since the API server forgets
	// the past within 80 to 100 s where there is churn.
	from, quietTo string
}

// newAsker returns an asker for a namespace, all of them if that is "".
func (h *Hearing) newAsker(resource schema.GroupVersionResource, namespace string) *asker {
	return &asker{hearing: h, resource: resource, namespace: namespace}
}

// ask asks whether anything has happened since from, the revision heard. It takes
// up to 3 s, or 25 s if nobody answers. If ctx ends first the answer is unreachable
// with its error.
//
// What was ruled out before is not asked again: while from stays the same, each
// question starts where the last one came to.
func (a *asker) ask(ctx context.Context, from string) answer {
	return a.answer(ctx, from, false)
}

// askBoth is ask, on both connections at once: it takes 8 s if watches alone are silent,
// and one more connection if they are not.
func (a *asker) askBoth(ctx context.Context, from string) answer {
	return a.answer(ctx, from, true)
}

func (a *asker) answer(ctx context.Context, from string, both bool) answer {
	if from == "" || from == "0" {
		return answer{kind: refused, err: errors.New("no revision to ask from")}
	}
	if from != a.from {
		a.from, a.quietTo = from, from
	}
	got := a.question(ctx, a.quietTo, both)
	switch {
	case got.kind == quiet && got.resourceVersion != "" && !got.rewound:
		a.quietTo = got.resourceVersion
	case got.kind == expired, got.rewound:
		a.quietTo = a.from
	}
	return got
}

// errNoAnswer stands for a connection on which nothing came back.
var errNoAnswer = errors.New("no answer")

// tried is what try has returned.
type tried struct {
	got answer
	err error
}

func (a *asker) tried(ctx context.Context, l *link, from string) tried {
	got, err := a.try(ctx, l, from)
	return tried{got, err}
}

// question asks on the process's connection, and on a fresh one if that is dead, or
// without waiting for that.
func (a *asker) question(ctx context.Context, from string, both bool) answer {
	old := a.hearing.current()
	first := make(chan tried, 1)
	if both {
		go func() { first <- a.tried(ctx, old, from) }()
	} else {
		t := a.tried(ctx, old, from)
		if t.err == nil {
			return t.got
		}
		first <- t
	}
	fresh, linkErr := newLink(a.hearing.config)
	if linkErr != nil {
		<-first
		return answer{kind: unreachable, err: linkErr}
	}
	got, err := a.try(ctx, fresh, from)
	if t := <-first; t.err == nil {
		fresh.close()
		return t.got
	}
	if err == nil {
		a.hearing.replace(old, fresh)
		return got
	}
	if ctx.Err() != nil {
		fresh.close()
		return answer{kind: unreachable, err: ctx.Err()}
	}
	alive := make(chan bool, 1)
	go func() { alive <- old.answers(ctx, answerTimeout) == nil }()
	began := time.Now()
	plain := fresh.answers(ctx, goneAfter)
	took := time.Since(began)
	if oldAlive := <-alive; !oldAlive && plain == nil {
		// Only one of them is good for the audit that follows. One that lives is not cut:
		// others use it.
		a.hearing.replace(old, fresh)
	} else {
		fresh.close()
	}
	switch {
	case plain != nil:
		return answer{kind: unreachable, err: fmt.Errorf("%w; a plain request: %w", err, plain)}
	case took > answerTimeout:
		return answer{kind: refused, err: fmt.Errorf("the API server takes %s to answer a plain request", took.Round(100*time.Millisecond))}
	}
	return answer{kind: mute, err: err}
}

// reach returns nil if the API server answers a plain request, on the process's
// connection or on a fresh one. It may be called at any time.
func (a *asker) reach(ctx context.Context) error {
	if a.hearing.current().answers(ctx, answerTimeout) == nil {
		return nil
	}
	fresh, err := newLink(a.hearing.config)
	if err != nil {
		return err
	}
	defer fresh.close()
	if err := fresh.answers(ctx, goneAfter); err != nil {
		return fmt.Errorf("%w to a plain request: %w", errNoAnswer, err)
	}
	return nil
}

// try asks once. An error means that there was no answer.
func (a *asker) try(ctx context.Context, l *link, from string) (answer, error) {
	if err := a.hearing.limiter.Wait(ctx); err != nil {
		return answer{}, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, askSeconds*time.Second+askMargin)
	defer cancel()
	seconds := int64(askSeconds)
	w, err := a.request(l, &metav1.ListOptions{
		Watch: true, ResourceVersion: from, TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
	}, "PartialObjectMetadata").Watch(ctx)
	if err != nil {
		return failed(err)
	}
	defer w.Stop()
	var event watch.Event
	told := false
	select {
	case event, told = <-w.ResultChan():
	case <-ctx.Done():
	}
	switch {
	case told && event.Type != watch.Error:
		return tell(event, from)
	case ctx.Err() != nil:
		return answer{}, fmt.Errorf("%w within %s", errNoAnswer, askSeconds*time.Second+askMargin)
	case told:
		return failed(apierrors.FromObject(event.Object))
	case time.Since(began) < askSeconds*time.Second:
		// client-go ends the watch alike whether the server has ended it or the
		// connection broke. A server that works does not before its time.
		return answer{}, fmt.Errorf("%w: the watch ended before its time", errNoAnswer)
	}
	return answer{kind: quiet}, nil
}

// tell makes an answer of the first event of a watch.
func tell(event watch.Event, from string) (answer, error) {
	o, ok := event.Object.(metav1.Object)
	if !ok {
		return answer{kind: refused, err: fmt.Errorf("answered by a %T, not by metadata", event.Object)}, nil
	}
	got := answer{kind: news, key: cache.MetaObjectToName(o), resourceVersion: o.GetResourceVersion()}
	if event.Type == watch.Bookmark {
		got.kind, got.key = quiet, cache.ObjectName{}
	}
	got.rewound = below(got.resourceVersion, from)
	return got, nil
}

// brokenWatch is the cause of the Status that client-go makes of a watch that it
// cannot read on (rest.Request, newStreamWatcher).
const brokenWatch metav1.CauseType = "ClientWatchDecoding"

// failed makes an answer of an error if it is the API server's.
func failed(err error) (answer, error) {
	status := apierrors.APIStatus(nil)
	switch {
	case apierrors.HasStatusCause(err, brokenWatch):
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return answer{kind: expired, err: err}, nil
	case errors.As(err, &status):
		return answer{kind: refused, err: err}, nil
	}
	return answer{}, fmt.Errorf("%w: %w", errNoAnswer, err)
}

// request is one for metadata alone. client-go is not to repeat it: a 429 is an
// answer, and whoever asked has a deadline.
func (a *asker) request(l *link, opts *metav1.ListOptions, as string) *rest.Request {
	path := []string{"apis", a.resource.Group, a.resource.Version}
	if a.resource.Group == "" {
		path = []string{"api", a.resource.Version}
	}
	if a.namespace != "" {
		path = append(path, "namespaces", a.namespace)
	}
	const form = ";as=%s;g=meta.k8s.io;v=v1"
	as = fmt.Sprintf(form, as)
	return l.client.Get().
		AbsPath(append(path, a.resource.Resource)...).
		SetHeader("Accept", runtime.ContentTypeProtobuf+as+","+runtime.ContentTypeJSON+as).
		SpecificallyVersionedParams(opts, listOptions, listOptionsVersion).
		MaxRetries(0)
}

// link is a client with connections of its own.
type link struct {
	client     *rest.RESTClient
	connection *Connection
}

// newLink makes a link; it dials when it is used.
func newLink(config *rest.Config) (*link, error) {
	connection := NewConnection(config)
	c := metadata.ConfigFor(connection.Config())
	if c.Proxy == nil {
		// client-go's default. Said aloud it keeps the transport out of its cache,
		// which would hold it for longer than the link lives.
		c.Proxy = http.ProxyFromEnvironment
	}
	c.GroupVersion, c.APIPath = &schema.GroupVersion{}, "/"
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return &link{client: client, connection: connection}, nil
}

// close cuts every connection. The next request would dial anew.
func (l *link) close() { l.connection.Close() }

// answers returns nil if the API server answers a plain request in time, with whatever.
func (l *link) answers(ctx context.Context, in time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, in)
	defer cancel()
	err := l.client.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return nil
	}
	return err
}

func (h *Hearing) current() *link {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.link
}

// replace makes fresh the process's connection in place of old, which is dead and
// is cut. If somebody else was faster fresh is cut.
func (h *Hearing) replace(old, fresh *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link != old {
		fresh.close()
		return
	}
	h.link = fresh
	old.close()
}
