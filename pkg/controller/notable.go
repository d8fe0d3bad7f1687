package controller

import (
	"cmp"
	"slices"
)

// Notable returns the states of limit keys after the first skip ones, those that a
// person wants to see first, and whether there are more: wedged keys, those being
// processed and those failing, each the longest first; frozen and ready ones, the
// same; those waiting, the next first; and idle ones, the last to run first.
func (c *Controller) Notable(limit, skip int) (page []KeyState, more bool) {
	t := c.current()
	if t == nil {
		return nil, false
	}
	type ranked struct {
		record *record
		rank   int
		at     moment
	}
	var all []ranked
	l := t.ledger
	l.mu.Lock()
	l.all(func(r *record) {
		rank, at := r.notability()
		all = append(all, ranked{r, rank, at})
	})
	l.mu.Unlock() // sorting takes longer than anyone should be held up
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.at, b.at), compareKeys(a.record.key, b.record.key))
	})
	all = all[min(max(skip, 0), len(all)):]
	if limit < len(all) {
		all, more = all[:max(limit, 0)], true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range all {
		page = append(page, l.shown(a.record))
	}
	return page, more
}

// notability is the group and the place in it. The ledger's lock is held.
func (r *record) notability() (rank int, at moment) {
	switch said := r.said(); {
	case r.wedged:
		return 0, r.since
	case r.state == processing:
		return 1, r.since
	case said.failingSince != never:
		return 2, said.failingSince
	case said.class == ClassFrozen:
		return 3, r.since
	case r.state == ready:
		return 4, r.since
	case r.state == waiting:
		return 5, r.notBefore
	}
	return 6, -r.lastRun
}
