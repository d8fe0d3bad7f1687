package canary

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
)

const (
	// maxAsks is how many restarts may be asked for without ten minutes of hearing
	// in between. One helps if this process is what is broken; a second is for the
	// case that the first replica to take over was broken too.
	maxAsks = 2
	// askFor is how long liveness fails for one ask. It takes less with the usual
	// probes; where nobody restarts the process, it is live again after that.
	askFor = 3 * time.Minute
	// refillAfter is how long a process has to hear before asks are given back.
	refillAfter = 10 * time.Minute
)

// annotationAsks holds how many asks have been spent. It is a count, and no time:
// the next process to read it may run on another machine with another clock. All
// durations are measured by the one process that lives through them.
const annotationAsks = "steadwatch.tejo.dev/restarts-asked"

// budget is what this process knows of the asks, which are kept in the Lease so
// that they survive the restart they lead to.
type budget struct {
	spent    int       // as read from the Lease last
	askedAt  time.Time // by this process
	askedFor string
	// wanted is why a check of this process would like to ask; wantedAt is when it
	// was tried last.
	wanted   string
	wantedAt time.Time
	deniedAt time.Time // when it was logged last that nothing is left
}

// Check is for liveness: an error while the state is Deaf and an ask lasts. All
// other states leave it nil, since a restart mends none of them.
func (c *Canary) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.refreshLocked(now)
	if c.state != Deaf || !c.askingLocked(now) {
		return nil
	}
	message, _ := c.explainLocked(now)
	return errors.New(message)
}

// WithinBudget returns check with failures that cost: it fails only when check does
// and an ask was granted, out of the same budget that the canary's own Check draws
// on. The first failure asks and is let pass; those after it are shown once the ask
// is written into the Lease. Where it cannot be written, where the budget is spent
// and on standby, nothing is shown: the caller has other means to tell people.
func (c *Canary) WithinBudget(check func() error) func() error {
	return func() error {
		err := check()
		if err == nil {
			return nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch now := time.Now(); {
		case !c.running:
			return nil
		case c.askingLocked(now):
			return err
		case c.wanted == "" && now.Sub(c.wantedAt) >= c.cfg.Interval:
			c.wanted, c.wantedAt = err.Error(), now
			c.wake()
		}
		return nil
	}
}

// askingLocked says whether an ask of this process lasts.
func (c *Canary) askingLocked(now time.Time) bool {
	return !c.askedAt.IsZero() && now.Sub(c.askedAt) < c.askFor
}

// askIfWanted spends an ask where there is cause for one: once it is written into
// the Lease, liveness fails. Several causes share one.
func (c *Canary) askIfWanted(ctx context.Context) {
	c.mu.Lock()
	now := time.Now()
	c.refreshLocked(now)
	cause := c.wanted
	if c.state == Deaf && cause == "" {
		cause, _ = c.explainLocked(now)
	}
	wanted := cause != "" && c.failure == nil && !c.askingLocked(now)
	if c.wanted != "" && c.failure != nil {
		c.wanted = "" // asked for again by the next probe
	}
	c.mu.Unlock()
	if !wanted {
		return
	}
	granted := c.write(ctx, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = ""
	if granted {
		c.askedAt, c.askedFor = time.Now(), cause
		klog.FromContext(ctx).Error(nil, "Liveness fails, asking to be restarted", "cause", cause, "ask", c.spent, "of", maxAsks, "for", c.askFor)
	} else if c.spent >= maxAsks && c.failure == nil && time.Since(c.deniedAt) >= remindAfter {
		c.deniedAt = time.Now()
		klog.FromContext(ctx).Error(nil, "No restart left to ask for", "cause", cause, "asked", c.spent)
	}
	c.refreshLocked(time.Now())
}

// readAsks is the count in a Lease. Anything but a number counts as spent: a budget
// that cannot be read must not grow.
func readAsks(lease *coordinationv1.Lease) int {
	written, ok := lease.Annotations[annotationAsks]
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(written)
	if err != nil || n < 0 {
		return maxAsks
	}
	return n
}

// refillLocked says whether asks are to be given back.
func (c *Canary) refillLocked(now time.Time) bool {
	return c.state == Hearing && !c.hearingSince.IsZero() && now.Sub(c.hearingSince) >= c.refillAfter && !c.askingLocked(now)
}

// errSpent says that no ask is left.
var errSpent = fmt.Errorf("%d restarts have been asked for", maxAsks)
