package canary

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"
)

// Snapshot is what the canary knows. Times are this machine's.
type Snapshot struct {
	Lease string    `json:"lease"` // namespace/name
	State State     `json:"state"`
	Since time.Time `json:"since"` // of this state
	// Message says what is wrong and Remedy what to do; empty while nothing is.
	Message string `json:"message,omitempty"`
	Remedy  string `json:"remedy,omitempty"`

	LastWrite        time.Time `json:"lastWrite,omitzero"` // acknowledged
	LastHeard        time.Time `json:"lastHeard,omitzero"` // an event of the Lease, anybody's
	RoundTripSeconds float64   `json:"roundTripSeconds"`   // of the last write seen again
	// WaitingSeconds is how long ago the oldest write that was not seen yet was
	// acknowledged, without the time in which nothing could be written. 0: none.
	WaitingSeconds float64 `json:"waitingSeconds"`

	// AsksSpent of AsksAllowed restarts have been asked for, by whichever process;
	// as read from the Lease last. Asking says that liveness fails now, AskedFor why.
	AsksSpent   int    `json:"asksSpent"`
	AsksAllowed int    `json:"asksAllowed"`
	Asking      bool   `json:"asking"`
	AskedFor    string `json:"askedFor,omitempty"`

	Writes     map[Result]int64 `json:"writes"`
	Reconnects int64            `json:"reconnects"` // connections of the watch closed by the canary
	// Rewound is set when the Lease's revision has gone down, until it has been
	// heard of for ten minutes; Rewinds counts.
	Rewound bool  `json:"rewound"`
	Rewinds int64 `json:"rewinds"`
	// Rival is another process that writes the Lease in turn with this one, although
	// only the leader may.
	Rival string `json:"rival,omitempty"`
}

// Snapshot returns what the canary knows.
func (c *Canary) Snapshot() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.refreshLocked(now)
	s := Snapshot{
		Lease: c.cfg.Namespace + "/" + c.cfg.Name, State: c.state, Since: c.since,
		LastWrite: c.lastWrite, LastHeard: c.lastHeard, RoundTripSeconds: c.roundTrip.Seconds(),
		WaitingSeconds: c.waitingLocked(now).Seconds(),
		AsksSpent:      c.spent, AsksAllowed: maxAsks, Asking: c.running && c.askingLocked(now),
		Writes: maps.Clone(c.writes), Reconnects: c.reconnects,
		Rewound: c.rewound, Rewinds: c.rewinds, Rival: c.rival,
	}
	if s.Asking {
		s.AskedFor = c.askedFor
	}
	s.Message, s.Remedy = c.explainLocked(now)
	return s
}

func (c *Canary) explainLocked(now time.Time) (message, remedy string) {
	waiting := c.waitingLocked(now).Round(time.Second)
	switch c.state {
	case Forbidden, Unwritable:
		if c.failure != nil {
			return c.failure.message, c.failure.remedy
		}
		return c.refusal.message, c.refusal.remedy
	case Late:
		if c.refusal != nil {
			return c.refusal.message, c.refusal.remedy
		}
		return fmt.Sprintf("a write acknowledged %s ago has not come back by the watch, or took longer than %s", waiting, c.cfg.Interval),
			"none needed yet: the connection of the watch has been opened anew"
	case Deaf:
		return fmt.Sprintf("writes and reads work, but nothing that was written in the last %s has come back by the watch", waiting),
			"none needed yet: the kubelet restarts this process where liveness is probed"
	case Unrecoverable:
		if c.rewindUnheard {
			return "etcd was set back, and the API server sends no events since", rewoundRemedy
		}
		return fmt.Sprintf("nothing that was written in the last %s has come back by the watch, and %d restarts have not helped", waiting, maxAsks),
			fmt.Sprintf("look for the cause between here and etcd: the API server's watch cache, a proxy, the datastore. Other clients are most likely deaf too. To have this process restarted again: kubectl -n %s annotate lease %s %s-", c.cfg.Namespace, c.cfg.Name, annotationAsks)
	}
	if c.rewound {
		return "the Lease's revision has gone down: etcd was set back", rewoundRemedy
	}
	return "", ""
}

const rewoundRemedy = "restart every kube-apiserver if that was not done after etcd was restored; clients that still show what is gone have to be restarted after that"

// remindAfter is how often a state that wants somebody is logged again.
const remindAfter = 10 * time.Minute

// report logs changes of state, and reminds of those that need somebody.
func (c *Canary) report(ctx context.Context) {
	logger := klog.FromContext(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.refreshLocked(now)
	if c.rival != "" && !c.rivalNamed {
		c.rivalNamed = true
		logger.Error(nil, "Another process writes the canary's Lease as well", "rival", c.rival, "identity", c.cfg.Identity,
			"remedy", "run one leader per namespace: two installations need two namespaces, and more than one replica needs --leader-elect")
	}
	if c.state == c.reported && now.Sub(c.reportedAt) < remindAfter {
		return
	}
	message, remedy := c.explainLocked(now)
	switch c.state {
	case Unwritable:
		if c.failures < 2 { // the first one may be a restart of the API server, or the end of the term
			return
		}
		logger.Error(nil, "Cannot write the canary's Lease", "message", message, "remedy", remedy, "since", c.since)
	case Forbidden:
		logger.Error(nil, "The canary lacks a permission", "message", message, "remedy", remedy, "since", c.since)
	case Deaf, Unrecoverable:
		logger.Error(nil, "Watches deliver nothing", "state", c.state, "message", message, "remedy", remedy, "since", c.since)
	case Late:
		if c.refusal != nil {
			logger.Error(nil, "Lists or watches of the canary's Lease are refused or cut short", "message", message, "remedy", remedy, "since", c.since)
		} else if c.state != c.reported {
			logger.Info("A write is late to come back by the watch", "message", message, "remedy", remedy)
		}
	case Hearing:
		if c.reported == Pending || c.reported == "" || c.reported == Hearing {
			logger.V(4).Info("What is written comes back by the watch", "roundTrip", c.roundTrip)
		} else {
			logger.Info("What is written comes back by the watch again", "roundTrip", c.roundTrip)
		}
	}
	c.reported, c.reportedAt = c.state, now
}
