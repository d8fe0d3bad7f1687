package canary

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// DefaultName is the name of the Lease where Config.Name is empty.
	DefaultName      = "steadwatch-canary"
	defaultInterval  = time.Minute
	defaultFailAfter = 5 * time.Minute

	// A request to the API server gets half an interval, within these bounds.
	minCallTimeout, maxCallTimeout = 2 * time.Second, 10 * time.Second
)

// Config is what a Canary needs. The first three are required.
type Config struct {
	// Client is how to reach the API server. The canary copies it twice, for its
	// writes and for its watch, and gives each copy connections and a limiter of
	// its own, so that neither waits behind anybody else; wrappers of the transport
	// are kept, and Dial is dialled through.
	Client *rest.Config
	// Namespace is where the Lease is.
	Namespace string
	// Identity names this process among all others, a restarted one included.
	Identity string

	// Name is the name of the Lease. "": DefaultName.
	Name string
	// Interval is the time between two writes. 0: one minute.
	Interval time.Duration
	// FailAfter is how long a write that is not seen again makes Deaf. 0: five
	// minutes. It is at least Interval.
	FailAfter time.Duration

	// RoundTrip is told how long each write took to be seen, from before it was
	// sent. May be nil.
	RoundTrip func(time.Duration)
	// Late is called once when a write is late, before anybody can know why.
	// Rewound is called when the Lease's revision has gone down. Both must return
	// soon: nothing is written and nothing judged meanwhile. May be nil.
	Late, Rewound func()
}

// Canary writes the Lease and waits to see it again. It is one for a process and
// runs for each term in which the process leads.
type Canary struct {
	cfg Config

	leases  leases // for GET, create and update
	watched leases // for the Reflector alone
	// cutLeases and cutWatched close the connections of each.
	cutLeases, cutWatched func()

	callTimeout time.Duration
	tick        time.Duration // between two looks at the clock
	askFor      time.Duration // how long liveness fails for one ask
	refillAfter time.Duration // of hearing

	kick chan struct{} // has room for one: something is to be looked at

	mu sync.Mutex
	status
}

// New checks cfg and makes the clients. It sends nothing.
func New(cfg Config) (*Canary, error) {
	switch {
	case cfg.Client == nil:
		return nil, errors.New("canary: Config.Client is nil: say how to reach the API server")
	case cfg.Namespace == "":
		return nil, errors.New("canary: Config.Namespace is empty: name the namespace of the Lease")
	}
	leases, cutLeases, err := connect(cfg.Client, cfg.Namespace)
	if err != nil {
		return nil, fmt.Errorf("canary: build the client that writes: %w", err)
	}
	watched, cutWatched, err := connect(cfg.Client, cfg.Namespace)
	if err != nil {
		return nil, fmt.Errorf("canary: build the client that watches: %w", err)
	}
	return newCanary(cfg, leases, watched, cutLeases, cutWatched)
}

func newCanary(cfg Config, leases, watched leases, cutLeases, cutWatched func()) (*Canary, error) {
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.FailAfter == 0 {
		cfg.FailAfter = defaultFailAfter
	}
	switch {
	case cfg.Identity == "":
		return nil, errors.New("canary: Config.Identity is empty: give each process a name of its own")
	case cfg.Interval < 0:
		return nil, fmt.Errorf("canary: Config.Interval is %s: it must be positive, or 0 for %s", cfg.Interval, defaultInterval)
	case cfg.FailAfter < cfg.Interval:
		return nil, fmt.Errorf("canary: Config.FailAfter is %s: it must not be below Interval, %s", cfg.FailAfter, cfg.Interval)
	}
	if cfg.RoundTrip == nil {
		cfg.RoundTrip = func(time.Duration) {}
	}
	if cfg.Late == nil {
		cfg.Late = func() {}
	}
	if cfg.Rewound == nil {
		cfg.Rewound = func() {}
	}
	c := &Canary{
		cfg: cfg, leases: leases, watched: watched, cutLeases: cutLeases, cutWatched: cutWatched,
		callTimeout: min(max(cfg.Interval/2, minCallTimeout), maxCallTimeout),
		tick:        max(cfg.Interval/20, 5*time.Millisecond),
		askFor:      askFor,
		refillAfter: refillAfter,
		kick:        make(chan struct{}, 1),
	}
	c.state, c.since, c.writes = Standby, time.Now(), map[Result]int64{}
	return c, nil
}

// Run writes and watches until ctx ends; then it returns nil, and nothing that it
// started runs any more. Before and after, the canary is on Standby and knows of no
// write. It may be run again, but not twice at a time.
func (c *Canary) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errors.New("canary: Run is running already")
	}
	now := time.Now()
	c.term = term{running: true, chanceSince: now, lookedAt: now}
	c.refreshLocked(now)
	c.mu.Unlock()
	watching := c.startWatching(ctx)
	defer func() {
		watching.stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.term = term{}
		c.refreshLocked(time.Now())
	}()
	logger := klog.FromContext(ctx).WithValues("lease", klog.KRef(c.cfg.Namespace, c.cfg.Name))
	ctx = klog.NewContext(ctx, logger)
	ticker := time.NewTicker(c.tick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if c.due() {
			c.write(ctx, false)
		}
		if c.takeRewound() {
			watching.stop()
			watching = c.startWatching(ctx)
			c.cfg.Rewound()
		}
		c.look()
		c.judge(ctx)
		c.report(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-c.kick:
		}
	}
	return nil
}

// wake makes Run look now.
func (c *Canary) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// look notes that the process runs. If it has not for a while (stopped, or starved
// of CPU), what the API server has sent meanwhile is still unread, and the
// connection gets a new chance.
func (c *Canary) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.lookedAt) > c.cfg.Interval {
		c.chanceSince = now
	}
	c.lookedAt = now
}

// due says whether to write now: when the interval is over, a quarter of it after
// a failure (but never before the API server wants to be asked again), and once more as soon as a list has made the last write's event moot.
func (c *Canary) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wait := time.Now(), c.cfg.Interval
	if c.failure != nil {
		wait /= 4
	}
	if now.Before(c.writeAfter) {
		return false
	}
	if c.wroteAt.IsZero() || now.Sub(c.wroteAt) >= wait {
		c.moot = false
		return true
	}
	if c.moot && c.failure == nil && c.refusal == nil && now.Sub(c.mootAt) >= c.cfg.Interval/4 {
		c.moot, c.mootAt = false, now
		return true
	}
	return false
}
