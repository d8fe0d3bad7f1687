package canary

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watching is a Reflector that runs. It is client-go's, as under any informer, on
// purpose without what this project puts around the others: it has to be able to
// fail as they would.
type watching struct{ stop func() }

func (c *Canary) startWatching(ctx context.Context) watching {
	c.mu.Lock()
	c.watch++
	n := c.watch
	c.refusal, c.heardVersion, c.heardAt, c.listedVersion = nil, "", time.Time{}, ""
	c.mu.Unlock()
	var done, streams sync.WaitGroup
	reflector := cache.NewReflectorWithOptions(&listWatch{c: c, n: n, streams: &streams}, &coordinationv1.Lease{}, &store{c: c, n: n}, cache.ReflectorOptions{
		Name: "watch-canary",
		// client-go's own with the default interval, and in proportion to shorter ones.
		Backoff: &wait.Backoff{
			Duration: min(800*time.Millisecond, c.cfg.Interval/20), Factor: 2, Jitter: 1, Steps: 10,
			Cap: min(30*time.Second, c.cfg.Interval/2),
		},
	})
	// What goes wrong is told by the state, once, and not by each retry.
	logger := klog.FromContext(ctx).V(4)
	if !logger.Enabled() {
		logger = logr.Discard()
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	done.Go(func() { reflector.RunWithContext(ctx) })
	return watching{stop: func() {
		cancel()
		done.Wait()
		streams.Wait()
	}}
}

// listWatch lists and watches the one Lease, by a field selector: that is what a
// Role which names the Lease allows.
type listWatch struct {
	c       *Canary
	n       int
	streams *sync.WaitGroup
}

func (l *listWatch) options(o metav1.ListOptions) metav1.ListOptions {
	o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, l.c.cfg.Name).String()
	return o
}

// await waits for as long as the API server has asked for: the Reflector's own
// backoff does not know of it.
func (l *listWatch) await(ctx context.Context) error {
	l.c.mu.Lock()
	wait := time.Until(l.c.watchAfter)
	l.c.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := l.await(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.c.callTimeout)
	defer cancel()
	// Always the newest state: it is one object, and a revision that the API server
	// does not know (yet, or any more) would be waited for.
	o.ResourceVersion, o.ResourceVersionMatch, o.Limit, o.Continue = "", "", 0, ""
	list, err := l.c.watched.List(ctx, l.options(o))
	l.c.refused(l.n, "list", err)
	return list, err
}

func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := l.await(ctx); err != nil {
		return nil, err
	}
	w, err := l.c.watched.Watch(ctx, l.options(o))
	l.c.refused(l.n, "watch", err)
	if err != nil {
		return nil, err
	}
	return l.overhear(ctx, w), nil
}

// overhear passes a watch on and notes an end that is an answer: an ERROR frame, or
// an end before any event within Interval. Neither is silence, and whoever does that
// to each new connection does it to those of the next process as well.
func (l *listWatch) overhear(ctx context.Context, w watch.Interface) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	opened := time.Now()
	l.streams.Go(func() {
		defer close(events)
		defer w.Stop()
		silent := true
		for {
			select {
			case <-proxy.StopChan():
				return
			case event, ok := <-w.ResultChan():
				switch {
				case ok && event.Type == watch.Error:
					l.c.ended(l.n, fmt.Sprintf("watch the Lease: ended with an error: %v", apierrors.FromObject(event.Object)))
				case !ok && silent && ctx.Err() == nil && time.Since(opened) < l.c.cfg.Interval:
					l.c.ended(l.n, fmt.Sprintf("watch the Lease: ended after %s without an event", time.Since(opened).Round(time.Millisecond)))
				}
				if !ok {
					return
				}
				silent = false
				select {
				case <-proxy.StopChan():
					return
				case events <- event:
				}
			}
		}
	})
	return proxy
}

func (l *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

func (l *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// IsWatchListSemanticsUnSupported makes the Reflector list. A WatchList whose end
// never comes (kubernetes/kubernetes#140890) would keep events from it that do come.
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// refused notes how the API server answers the Reflector. Only an answer counts:
// where none comes, silence is what the canary is there to find.
func (c *Canary) refused(n int, verb string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || n != c.watch {
		return
	}
	switch f := c.classify(verb, err); {
	case f != nil && f.answered:
		c.refusal, c.watchAfter = f, time.Now().Add(f.retryAfter)
	case err == nil && verb == "watch" && c.refusal != nil:
		c.refusal, c.chanceSince = nil, time.Now()
	}
	c.refreshLocked(time.Now())
	c.wake()
}

// ended notes that the API server, or whoever stands in front of it, has ended a
// watch in a way that is an answer. The next one that is opened gets its chance.
func (c *Canary) ended(n int, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || n != c.watch {
		return
	}
	c.refusal = &failure{
		answered: true, message: message,
		remedy: "find what ends watches between here and the API server, such as a load balancer or a proxy, or the API server itself; restarting this process does not help",
	}
	c.refreshLocked(time.Now())
	c.wake()
}

// store is where the Reflector puts what it hears. Nothing is kept.
type store struct {
	c *Canary
	n int
}

func (s *store) heard(o any) error {
	if lease, ok := o.(*coordinationv1.Lease); ok {
		s.c.observe(s.n, lease)
	}
	return nil
}

func (s *store) Add(o any) error    { return s.heard(o) }
func (s *store) Update(o any) error { return s.heard(o) }
func (s *store) Delete(o any) error { return s.heard(o) }
func (s *store) Resync() error      { return nil }

func (s *store) Replace(items []any, version string) error {
	s.c.relisted(s.n, version, items)
	return nil
}
