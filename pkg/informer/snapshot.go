package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Snapshot is what an Informer knows about itself at one moment.
type Snapshot struct {
	// Resource in the form resource.group, such as "deployments.apps".
	Resource string `json:"resource"`
	// Namespace is set in entries of Namespaces only.
	Namespace string `json:"namespace,omitempty"`
	State     State  `json:"state"`
	// Reason if StateUnlistable, with the server's words cut to 512 bytes. Message
	// without a Reason says why if StateDelayed, StateDeaf or StatePolling, and which
	// questions, audits or rounds of polling fail, whatever the state.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Suspect is the stored object that keeps the API server from listing, where
	// that is known: its namespace and name, several of them with commas between,
	// or in words after which one it comes. For people only.
	Suspect string `json:"suspect,omitempty"`
	// Since when it has been in State for that Reason. Zero before Run.
	Since time.Time `json:"since,omitzero"`
	// Objects in the local copy.
	Objects int `json:"objects"`
	// Lists and Watches are requests made, failed ones included; pages of one
	// list are one. A filling by WatchList is a watch and no list.
	Lists   uint64 `json:"lists"`
	Watches uint64 `json:"watches"`
	// Events received, by type; those of a WatchList's initial state too. The
	// change of an object that is set aside counts as the BOOKMARK that stands
	// for it.
	Events map[watch.EventType]uint64 `json:"events,omitempty"`
	// Restarts counts the watches that were ended on this side, by what was wrong
	// with them; every reason there is has an entry. See docs/metrics.md.
	Restarts map[string]uint64 `json:"restarts,omitempty"`
	// LastHeard is when the API server last sent an event or a list, polled ones
	// too: a lower bound of how far the copy can be trusted. Zero: never.
	LastHeard time.Time `json:"lastHeard,omitzero"`
	// ResourceVersion is how far the watch has got. Empty if unknown, and for
	// several namespaces, whose revisions differ.
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// Quarantined objects are there and cannot be decoded now; QuarantinedTotal
	// counts how often one has become so. Unreadable counts how often an object
	// arrived of which not even the name could be read.
	Quarantined      int    `json:"quarantined"`
	QuarantinedTotal uint64 `json:"quarantinedTotal"`
	Unreadable       uint64 `json:"unreadable"`

	// HandlerPanics are events lost to a handler that panicked on them.
	HandlerPanics uint64 `json:"handlerPanics,omitempty"`
	// IndexFailures name the objects that an index leaves out.
	IndexFailures []IndexFailure `json:"indexFailures,omitempty"`
	// Namespaces, if the informer is limited to more than one, each on its
	// own. The fields above then hold the sums, and the worst state with its
	// reason and the least recent LastHeard.
	Namespaces []Snapshot `json:"namespaces,omitempty"`
}

// Snapshot describes i as it is now.
func (i *Informer[T]) Snapshot() Snapshot {
	parts := make([]Snapshot, len(i.parts))
	for n, p := range i.parts {
		s := &parts[n]
		s.Resource, s.Namespace = i.resource.GroupResource().String(), p.namespace
		s.Objects = len(p.informer.GetStore().ListKeys())
		p.listWatch.condition.describe(s, p.informer.HasSynced())
		p.listWatch.describe(s)
		p.listWatch.ear.describe(s)
		p.quarantine.describe(s)
	}
	whole := parts[0]
	whole.Namespace = ""
	if len(parts) > 1 {
		whole = aggregate(parts)
	}
	whole.HandlerPanics = i.containment.panics()
	whole.IndexFailures = i.containment.indexFailures(func(key string) bool {
		_, exists, err := i.indexer.GetByKey(key)
		return exists && err == nil
	})
	return whole
}

// badness orders states for aggregate.
var badness = map[State]int{StateHearing: 0, StateDelayed: 1, StateStarting: 2, StatePolling: 3, StateDeaf: 4, StateUnlistable: 5}

func aggregate(parts []Snapshot) Snapshot {
	whole := Snapshot{Resource: parts[0].Resource, State: StateHearing, LastHeard: parts[0].LastHeard, Events: map[watch.EventType]uint64{}, Restarts: map[string]uint64{}, Namespaces: parts}
	for _, p := range parts {
		worse := badness[p.State] - badness[whole.State]
		if worse > 0 || worse == 0 && (whole.Since.IsZero() || p.Since.Before(whole.Since)) {
			whole.State, whole.Reason, whole.Message, whole.Suspect, whole.Since = p.State, p.Reason, p.Message, p.Suspect, p.Since
		}
		whole.Objects += p.Objects
		whole.Lists += p.Lists
		whole.Watches += p.Watches
		whole.Quarantined += p.Quarantined
		whole.QuarantinedTotal += p.QuarantinedTotal
		whole.Unreadable += p.Unreadable
		for t, n := range p.Events {
			whole.Events[t] += n
		}
		for reason, n := range p.Restarts {
			whole.Restarts[reason] += n
		}
		if p.LastHeard.Before(whole.LastHeard) {
			whole.LastHeard = p.LastHeard
		}
	}
	return whole
}
