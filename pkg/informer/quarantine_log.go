package informer

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

const (
	// maxLogged is the number of objects of a resource up to which each is
	// logged on its own.
	maxLogged = 20
	// logEvery is how often one more line about a single object may be written
	// once maxLogged have been, however often objects change.
	logEvery = 30 * time.Second
)

// quarantineLog says what is set aside: once when it is, again every
// remindAfter while it lasts, and when it is over. One for all namespaces of a
// resource.
type quarantineLog struct {
	resource string

	mu       sync.Mutex
	logger   klog.Logger
	counts   map[*quarantine]int
	bads     flowcontrol.PassiveRateLimiter
	lefts    flowcontrol.PassiveRateLimiter
	unreads  flowcontrol.PassiveRateLimiter
	manyAt   time.Time // of the last line for the whole resource
	manySaid bool      // and none yet that it is over
}

func newQuarantineLog(resource schema.GroupResource) *quarantineLog {
	limiter := func() flowcontrol.PassiveRateLimiter {
		return flowcontrol.NewTokenBucketPassiveRateLimiter(float32(1/logEvery.Seconds()), maxLogged)
	}
	return &quarantineLog{resource: resource.String(), logger: klog.Background(), counts: map[*quarantine]int{}, bads: limiter(), lefts: limiter(), unreads: limiter()}
}

func (l *quarantineLog) logTo(logger klog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logger = logger
}

// count notes how many objects q holds.
func (l *quarantineLog) count(q *quarantine, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[q] = n
	if l.sum() == 0 && l.manySaid {
		l.manySaid = false
		l.logger.Info("All objects can be decoded", "resource", l.resource)
	}
}

func (l *quarantineLog) sum() (n int) {
	for _, c := range l.counts {
		n += c
	}
	return n
}

// bad logs an object that was set aside or is bad in another way than before.
func (l *quarantineLog) bad(r *Quarantined) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.sum(); n > maxLogged || !l.bads.TryAccept() {
		l.many(n, r, false)
		return
	}
	l.object(r)
}

func (l *quarantineLog) object(r *Quarantined) {
	l.logger.Error(nil, "Object cannot be decoded, it is set aside", append(l.describe(r), "badFields", len(r.Fields), "since", r.FirstSeen)...)
}

func (l *quarantineLog) describe(r *Quarantined) []any {
	fix := ""
	if len(r.Fix) > 0 {
		fix = r.Fix[0]
	}
	f := r.Fields[0]
	return []any{"resource", l.resource, "object", klog.KRef(r.Key.Namespace, r.Key.Name), "field", f.Path, "value", f.Value, "reason", f.Reason, "fix", fix}
}

// many is the one line for the whole resource.
func (l *quarantineLog) many(n int, example *Quarantined, remind bool) {
	if now := time.Now(); remind || now.Sub(l.manyAt) >= remindAfter {
		l.manyAt, l.manySaid = now, true
		l.logger.Error(nil, "Objects cannot be decoded, they are set aside; this is one of them", append(l.describe(example), "objects", n)...)
	}
}

// left logs that an object is no longer set aside; there is a good version of
// it or it is gone.
func (l *quarantineLog) left(r *Quarantined, good bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum() >= maxLogged || !l.lefts.TryAccept() {
		return
	}
	message := "Object that could not be decoded is gone"
	if good {
		message = "Object can be decoded again"
	}
	l.logger.Info(message, "resource", l.resource, "object", klog.KRef(r.Key.Namespace, r.Key.Name), "after", time.Since(r.FirstSeen).Round(time.Second))
}

func (l *quarantineLog) unreadable(b *badItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unreads.TryAccept() {
		l.logger.Error(nil, "Object cannot be decoded and its name cannot be read, it is left out", "resource", l.resource, "err", cut(b.err.Error()))
	}
}

// remind repeats what lasts until ctx ends.
func (l *quarantineLog) remind(ctx context.Context, all func() []*Quarantined) {
	tick := time.NewTicker(remindAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		records := all()
		l.mu.Lock()
		switch {
		case len(records) > maxLogged:
			l.many(len(records), records[0], true)
		default:
			for _, r := range records {
				l.object(r)
			}
		}
		l.mu.Unlock()
	}
}
