package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// readiness is what /readyz asks. It is met once every informer that can sync has
// synced, on a standby too, stays met until shutdown, and is never met again
// after: nothing that happens to the API server makes a process unready, since
// another replica would fare no better.
type readiness struct {
	informers []metrics.Informer

	mu       sync.Mutex
	met      bool
	shutdown bool
}

func (r *readiness) shutDown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shutdown = true
}

func (r *readiness) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shutdown {
		return errors.New("shutting down")
	}
	if r.met {
		return nil
	}
	if waiting := unsettled(r.informers); len(waiting) > 0 {
		return fmt.Errorf("not synced: %s", strings.Join(waiting, ", "))
	}
	r.met = true
	return nil
}

// unsettled names the informers that have not synced although they can: nothing
// stands in their way, or what does concerns every kind alike. One kind that
// cannot be listed (its CRD is missing, a permission, a conversion) holds up no
// other.
func unsettled(informers []metrics.Informer) []string {
	var names []string
	for _, i := range informers {
		s := i.Snapshot()
		switch s.State {
		case informer.StateHearing, informer.StateDelayed, informer.StateDeaf, informer.StatePolling:
		case informer.StateUnlistable:
			switch s.Reason {
			case informer.Unreachable, informer.Unauthorized, informer.Throttled:
				names = append(names, fmt.Sprintf("%s (%s)", s.Resource, s.Reason))
			}
		default:
			names = append(names, s.Resource)
		}
	}
	return names
}

// unsynced names every informer that has not synced, with the reason where there
// is one.
func unsynced(informers []metrics.Informer) []string {
	var names []string
	for _, i := range informers {
		switch s := i.Snapshot(); s.State {
		case informer.StateHearing, informer.StateDelayed, informer.StateDeaf, informer.StatePolling:
		case informer.StateUnlistable:
			names = append(names, fmt.Sprintf("%s (%s)", s.Resource, s.Reason))
		default:
			names = append(names, s.Resource)
		}
	}
	return names
}
