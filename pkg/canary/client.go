package canary

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// leases is the part of client-go's typed client that is needed.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
	List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// connect builds a client that shares nothing, and a func that closes its
// connections. Deadlines are set for each call: Timeout would end watches.
func connect(config *rest.Config, namespace string) (leases, func(), error) {
	config = rest.CopyConfig(config)
	rest.AddUserAgent(config, "watch-canary")
	config.RateLimiter, config.QPS, config.Burst, config.Timeout = nil, 5, 10, 0
	dial := connrotation.DialFunc(config.Dial)
	if dial == nil {
		dial = (&net.Dialer{Timeout: maxCallTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	dialer := connrotation.NewDialer(dial)
	config.Dial = dialer.DialContext
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retryAfterTransport{next} })
	client, err := typedcoordinationv1.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	return &restLeases{client: client.RESTClient(), namespace: namespace}, dialer.CloseAll, nil
}

// restLeases asks once. client-go's typed client repeats what is answered with
// Retry-After up to ten times, longer than a call may take here; its caller would
// learn of a timeout, and neither of the answer nor of how long to wait.
type restLeases struct {
	client    rest.Interface
	namespace string
}

// retryAfterTransport hands the header Retry-After to ask: client-go drops it where
// the answer has a Status for a body.
type retryAfterTransport struct{ next http.RoundTripper }

type retryAfterKey struct{}

func (t *retryAfterTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if seconds, ok := req.Context().Value(retryAfterKey{}).(*int32); ok && err == nil {
		if n, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 32); err == nil && n > 0 {
			*seconds = int32(n)
		}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go reach the transport below.
func (t *retryAfterTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// ask makes one request. An error says how long the API server wants to be left
// alone, if it does; see apierrors.SuggestsClientDelay.
func ask(ctx context.Context, do func(context.Context) error) error {
	var seconds int32
	err := do(context.WithValue(ctx, retryAfterKey{}, &seconds))
	var status *apierrors.StatusError
	if seconds > 0 && errors.As(err, &status) {
		if status.ErrStatus.Details == nil {
			status.ErrStatus.Details = &metav1.StatusDetails{}
		}
		status.ErrStatus.Details.RetryAfterSeconds = max(status.ErrStatus.Details.RetryAfterSeconds, seconds)
	}
	return err
}

func (l *restLeases) request(verb string) *rest.Request {
	return l.client.Verb(verb).UseProtobufAsDefault().Namespace(l.namespace).Resource("leases").MaxRetries(0)
}

func (l *restLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, ask(ctx, func(ctx context.Context) error {
		return l.request("GET").Name(name).VersionedParams(&o, scheme.ParameterCodec).Do(ctx).Into(lease)
	})
}

func (l *restLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	created := &coordinationv1.Lease{}
	return created, ask(ctx, func(ctx context.Context) error {
		return l.request("POST").VersionedParams(&o, scheme.ParameterCodec).Body(lease).Do(ctx).Into(created)
	})
}

func (l *restLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	updated := &coordinationv1.Lease{}
	return updated, ask(ctx, func(ctx context.Context) error {
		return l.request("PUT").Name(lease.Name).VersionedParams(&o, scheme.ParameterCodec).Body(lease).Do(ctx).Into(updated)
	})
}

func (l *restLeases) List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list := &coordinationv1.LeaseList{}
	return list, ask(ctx, func(ctx context.Context) error {
		return l.request("GET").VersionedParams(&o, scheme.ParameterCodec).Do(ctx).Into(list)
	})
}

func (l *restLeases) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	var timeout time.Duration
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	o.Watch = true
	var w watch.Interface
	err := ask(ctx, func(ctx context.Context) (err error) {
		w, err = l.request("GET").VersionedParams(&o, scheme.ParameterCodec).Timeout(timeout).Watch(ctx)
		return err
	})
	return w, err
}
