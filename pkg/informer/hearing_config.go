package informer

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	defaultProbeAfter    = 30 * time.Second
	defaultAuditInterval = 5 * time.Minute
	defaultPollInterval  = 15 * time.Second

	// hearingUserAgent is that of questions and audits if none is given.
	hearingUserAgent = "steadwatch-hearing"
	// hearingQPS and hearingBurst are what questions and pages of audits of one
	// process may send together, however much its other clients have to wait.
	hearingQPS, hearingBurst = 10, 20
	// auditedPerSecond is how many objects all audits of one process may list in
	// the long run. The interval is stretched to keep to it.
	auditedPerSecond = 200
)

// HearingConfig says how often the Informers of one process make sure that they
// are still being told what happens.
type HearingConfig struct {
	// Config is how to reach the API server. Required. It is copied: questions and
	// audits have a connection, and a rate limit, of their own, so that they queue
	// behind nothing. QPS, Burst, RateLimiter and Timeout do not count, each request
	// has its own deadline. UserAgent "" becomes steadwatch-hearing.
	Config *rest.Config

	// ProbeAfter is how long a watch may be silent before the API server is asked,
	// by a watch for metadata that takes 3 s, whether it has anything to tell.
	// 0: 30 s. Negative: never.
	ProbeAfter time.Duration
	// AuditInterval is how often what was delivered is compared with a list of
	// metadata. Jittered by 10 %, and stretched where the audits of this process
	// would list more than 200 objects a second. 0: 5 min. Negative: never, not by
	// AuditNow either.
	AuditInterval time.Duration
	// PollInterval is how often a resource is listed while no watch of it works.
	// 0: 15 s. Negative: never.
	PollInterval time.Duration
}

// Hearing is what the Informers of one process share to find out whether their
// watches still tell them everything: settings and one connection for questions
// and audits. Safe for concurrent use.
type Hearing struct {
	probeAfter, auditInterval, pollInterval time.Duration // 0: off

	config  *rest.Config
	limiter flowcontrol.RateLimiter

	mu          sync.Mutex
	link        *link          // replaced when it turns out to be dead
	sizes       map[*asker]int // objects in the last audit
	subscribers map[*byte]func(reason string)
}

// NewHearing makes a Hearing. It starts nothing and sends no request.
func NewHearing(c HearingConfig) (*Hearing, error) {
	if c.Config == nil {
		return nil, errors.New("informer: HearingConfig.Config is nil: set the rest.Config that reaches the API server")
	}
	if c.Config.Transport != nil {
		return nil, errors.New("informer: HearingConfig.Config has a " + ownTransport)
	}
	h := &Hearing{
		config:      rest.CopyConfig(c.Config),
		limiter:     flowcontrol.NewTokenBucketRateLimiter(hearingQPS, hearingBurst),
		sizes:       map[*asker]int{},
		subscribers: map[*byte]func(string){},
	}
	for _, d := range []struct {
		name          string
		got, standard time.Duration
		setting       *time.Duration
	}{
		{"ProbeAfter", c.ProbeAfter, defaultProbeAfter, &h.probeAfter},
		{"AuditInterval", c.AuditInterval, defaultAuditInterval, &h.auditInterval},
		{"PollInterval", c.PollInterval, defaultPollInterval, &h.pollInterval},
	} {
		if d.got > 0 && d.got < time.Second {
			return nil, fmt.Errorf("informer: HearingConfig.%s is %s: use a second or more, 0 for %s, or a negative value to switch it off", d.name, d.got, d.standard)
		}
		*d.setting = max(d.got, 0)
		if d.got == 0 {
			*d.setting = d.standard
		}
	}
	h.config.Timeout, h.config.RateLimiter, h.config.QPS = 0, nil, -1
	if h.config.UserAgent == "" {
		h.config.UserAgent = hearingUserAgent
	}
	l, err := newLink(h.config)
	if err != nil {
		return nil, fmt.Errorf("informer: use HearingConfig.Config: %w", err)
	}
	h.link = l
	return h, nil
}

// AuditNow makes every Informer compare what it was told with what the API server
// holds, now and not when its interval is over. To be called when something else
// says that changes do not arrive; reason says what, for the log. However often it is
// called, each namespace of an Informer makes one audit at a time, and one more after
// it, 5 s later, for the calls that came meanwhile.
func (h *Hearing) AuditNow(reason string) {
	h.mu.Lock()
	wakes := slices.Collect(maps.Values(h.subscribers))
	h.mu.Unlock()
	for _, wake := range wakes {
		wake(reason)
	}
}

// subscribe has wake called by AuditNow until cancel. wake must not block, and may
// be called once more while cancel is.
func (h *Hearing) subscribe(wake func(reason string)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := new(byte)
	h.subscribers[key] = wake
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers, key)
	}
}

// auditAfter is how long to wait before the next audit: the interval, or longer
// where that of all audits together would be too much, give or take 10 %.
func (h *Hearing) auditAfter() time.Duration {
	h.mu.Lock()
	objects := 0
	for _, n := range h.sizes {
		objects += n
	}
	h.mu.Unlock()
	interval := max(h.auditInterval, time.Duration(objects)*time.Second/auditedPerSecond)
	return time.Duration(float64(interval) * (0.9 + 0.2*rand.Float64()))
}

// sized notes how many objects a has listed.
func (h *Hearing) sized(a *asker, objects int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sizes[a] = objects
}

// forget drops what is known about a, which asks no more.
func (h *Hearing) forget(a *asker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sizes, a)
}
