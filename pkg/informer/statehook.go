package informer

import (
	"context"
	"slices"
)

// OnState registers f, before Run. It is called after the State or the Reason of
// the copy, or whether it has been filled (HasSynced), has changed, in any of the
// namespaces; not for events, retries or what else a Snapshot tells. Whoever cannot
// work without this kind enqueues there what waits for it.
//
// Changes that follow one another faster than f is called are one call, and what
// was taken back meanwhile is none: f looks at what holds now. The last change is
// never left out. f is called by one goroutine, outside of all locks, so that it may
// ask for a Snapshot. What it takes long for delays the next call and nothing else.
// If it panics that is counted and logged as of a handler.
func (i *Informer[T]) OnState(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.onState = append(i.onState, f)
}

// standing is what OnState is about, of one namespace.
type standing struct {
	state  State
	reason Reason
	filled bool
}

func (p *part[T]) standing() standing {
	var s Snapshot
	filled := p.informer.HasSynced()
	p.listWatch.condition.describe(&s, filled)
	p.listWatch.ear.describe(&s)
	return standing{s.State, s.Reason, filled}
}

func (i *Informer[T]) standings() []standing {
	all := make([]standing, len(i.parts))
	for n, p := range i.parts {
		all[n] = p.standing()
	}
	return all
}

// stateNews wakes whoever calls the functions of OnState. It says that something
// may have changed, not what: that is found by comparing.
type stateNews chan struct{}

func (n stateNews) tell() {
	select {
	case n <- struct{}{}:
	default: // it is awake already, or there is nobody (a nil channel)
	}
}

// tellState calls the functions of OnState until ctx ends. last is how things
// stood before Run started anything.
func (i *Informer[T]) tellState(ctx context.Context, last []standing, all []func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.stateNews:
		}
		now := i.standings()
		if slices.Equal(last, now) {
			continue
		}
		last = now
		for _, f := range all {
			func() {
				defer i.containment.handled("state", "", "")
				f()
			}()
		}
	}
}

// tellFilled wakes tellState once p's copy has been filled.
func (i *Informer[T]) tellFilled(ctx context.Context, p *part[T]) {
	select {
	case <-p.informer.HasSyncedChecker().Done():
		i.stateNews.tell()
	case <-ctx.Done():
	}
}
