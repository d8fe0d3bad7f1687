package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Tolerant makes Config.ListerWatcher from the REST client of a generated
// clientset, as in
//
//	informer.Tolerant(clients.PlatformV1alpha1().RESTClient())
//
// It decodes every object on its own. One that does not fit its Go type is set
// aside (see Informer.Quarantined) and all others go on, in LIST, in every page
// of one, in a WatchList's initial events and in WATCH. Objects that fit are
// those that the typed client makes, without TypeMeta.
//
// It asks for JSON, so it is meant for custom resources; ListWatch keeps the
// protobuf of built-in kinds. Bad values are quoted in the record and in the log:
// not for types that hold secrets. Fake clientsets have no REST client: use
// ListWatch with them.
//
// What is returned works only as the ListerWatcher of an Informer, which knows
// the type and has the cache that a set-aside object's last good version is in.
func Tolerant(client rest.Interface) func(namespace string) cache.ListerWatcherWithContext {
	return func(namespace string) cache.ListerWatcherWithContext {
		return &tolerant{client: client, namespace: namespace}
	}
}

// tolerant lists and watches one namespace of one resource; "" is all.
type tolerant struct {
	client    rest.Interface
	namespace string

	// Set by bind.
	resource   schema.GroupVersionResource
	decoder    *decoder
	quarantine *quarantine

	mu   sync.Mutex
	list *stage // of the list whose pages are being read
}

// bind makes t one of an Informer's.
func (t *tolerant) bind(resource schema.GroupVersionResource, d *decoder, q *quarantine) error {
	if v := reflect.ValueOf(t.client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("informer.Tolerant was given no REST client (a fake clientset has none): use informer.ListWatch")
	}
	if got := t.client.APIVersion(); got != resource.GroupVersion() {
		return fmt.Errorf("informer.Tolerant was given a REST client for %s: use that of %s", got, resource.GroupVersion())
	}
	t.resource, t.decoder, t.quarantine = resource, d, q
	return nil
}

var errUnbound = errors.New("what informer.Tolerant returns works only as the ListerWatcher of an informer.Config, not wrapped in another")

// listOptions encodes metav1.ListOptions as every typed client does, whatever
// the group and version of the resource.
var (
	listOptions        = runtime.NewParameterCodec(listOptionsScheme())
	listOptionsVersion = schema.GroupVersion{Version: "v1"}
)

func listOptionsScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

// request is the typed client's (client-go/gentype), but for asking for JSON.
func (t *tolerant) request(opts metav1.ListOptions) *rest.Request {
	var timeout time.Duration
	if opts.TimeoutSeconds != nil {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	return t.client.Get().
		SetHeader("Accept", "application/json").
		NamespaceIfScoped(t.namespace, t.namespace != "").
		Resource(t.resource.Resource).
		SpecificallyVersionedParams(&opts, listOptions, listOptionsVersion).
		Timeout(timeout)
}

// ListWithContext returns one page. The quarantine follows once the last page
// has been read to its end: a list that fails half way changes nothing.
func (t *tolerant) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if t.quarantine == nil {
		return nil, errUnbound
	}
	request := ctx
	if opts.TimeoutSeconds != nil {
		var cancel context.CancelFunc
		request, cancel = context.WithTimeout(ctx, time.Duration(*opts.TimeoutSeconds)*time.Second)
		defer cancel()
	}
	page := t.page(ctx, opts)
	body, err := t.request(opts).Stream(request)
	if err != nil {
		return nil, err
	}
	list := &internalversion.List{} // takes pointers: nothing is copied
	list.ListMeta, err = t.decoder.list(request, body, func(i item) error {
		if object := page.resolve(i); object != nil {
			list.Items = append(list.Items, object)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if list.Continue == "" {
		page.commit(ctx, list.ResourceVersion)
	}
	return list, nil
}

// withInforming makes ctx one of which informing returns outer, which ends with the
// Reflector: what a watch has found out outlives that watch.
func withInforming(ctx, outer context.Context) context.Context {
	return context.WithValue(ctx, informingKey{}, outer)
}

func informing(ctx context.Context) context.Context {
	if outer, ok := ctx.Value(informingKey{}).(context.Context); ok {
		return outer
	}
	return ctx
}

type informingKey struct{}

// page returns the stage of the list that a page belongs to.
func (t *tolerant) page(ctx context.Context, opts metav1.ListOptions) *stage {
	t.mu.Lock()
	defer t.mu.Unlock()
	if opts.Continue == "" || t.list == nil {
		t.list = t.quarantine.stage(ctx, t.namespace, opts.ResourceVersion)
	}
	return t.list
}

// WatchWithContext opens a watch or a WatchList.
func (t *tolerant) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if t.quarantine == nil {
		return nil, errUnbound
	}
	w := &tolerantWatch{
		tolerant: t, informing: informing(ctx), events: make(chan watch.Event),
		initial: sendsInitialEvents(opts),
	}
	if w.initial {
		w.stage = t.quarantine.stage(ctx, t.namespace, opts.ResourceVersion)
	} else {
		w.ordered = opts.ResourceVersion != "" && opts.ResourceVersion != "0"
		t.quarantine.setDelivered(opts.ResourceVersion)
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	body, err := t.open(w.ctx, opts)
	if err != nil || body == nil {
		w.cancel()
		if err != nil {
			return nil, err
		}
		return watch.NewEmptyWatch(), nil
	}
	go w.run(body)
	return w, nil
}

const (
	openRetries    = 10
	openRetryAfter = time.Second
)

// open is rest.Request.Watch up to the body: not rate-limited, retried while the
// connection breaks, and nil (a watch without events) if that does not help.
func (t *tolerant) open(ctx context.Context, opts metav1.ListOptions) (io.ReadCloser, error) {
	opts.Watch = true
	for try := 0; ; try++ {
		body, err := t.request(opts).Throttle(nil).Stream(ctx)
		if err == nil {
			return body, nil
		}
		if ctx.Err() != nil || !utilnet.IsProbableEOF(err) && !utilnet.IsTimeout(err) {
			return nil, err
		}
		if try == openRetries {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(openRetryAfter):
		}
	}
}
