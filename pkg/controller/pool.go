package controller

import (
	"fmt"
	"sync"
	"time"
)

// pool keeps the wanted number of workers able to work. A worker whose pass does
// not come back long after its deadline is wedged: it is replaced, so that one
// call that never returns costs one key. Replacements are bounded by the number
// of workers; should a wedged pass come back after all, the worker too many goes.
type pool struct {
	// loop is one worker's life: until the queue is shut down or surplus says that
	// there is a worker too many.
	loop func()
	size int

	mu      sync.Mutex
	running int // goroutines
	wedged  int // of them, not expected back
	leaving int // of them, told that they are surplus
	closing bool
	joined  chan struct{} // closed when closing and none is running
}

func newPool(size int, loop func()) *pool {
	return &pool{loop: loop, size: size, joined: make(chan struct{})}
}

func (p *pool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.size {
		p.spawn()
	}
}

// spawn starts a worker. p.mu is held.
func (p *pool) spawn() {
	p.running++
	go func() {
		returned := false
		defer func() { p.left(returned) }()
		p.loop()
		returned = true
	}()
}

// left records that a worker's goroutine ends. One that ends without returning
// was taken down by runtime.Goexit in a pass, and is made up for.
func (p *pool) left(returned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if returned && p.leaving > 0 {
		p.leaving-- // or another one is on its way to do so: they are alike
	}
	if !returned && !p.closing && p.able() < p.size {
		p.spawn()
	}
	if p.closing && p.running == 0 {
		close(p.joined)
	}
}

// able is the number of workers that can take a key, now or soon. p.mu is held.
func (p *pool) able() int { return p.running - p.wedged - p.leaving }

// surplus tells a worker between two passes whether it is one too many, because a
// wedged one has come back. If so it must leave.
func (p *pool) surplus() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || p.able() <= p.size {
		return false
	}
	p.leaving++
	return true
}

// watched is one pass under the eye of the pool.
type watched struct {
	pool         *pool
	timer        *time.Timer
	wedged, over bool // under pool.mu
}

// watch expects the pass that begins now to be over within limit. If it is not,
// its worker is wedged and mark is called, under the pool's lock and never after
// end, and then tell, without the lock.
func (p *pool) watch(limit time.Duration, mark func(), tell func(replaced bool)) *watched {
	w := &watched{pool: p}
	w.timer = time.AfterFunc(limit, func() {
		p.mu.Lock()
		if w.over {
			p.mu.Unlock()
			return
		}
		w.wedged = true
		p.wedged++
		replaced := !p.closing && p.running < 2*p.size
		if replaced {
			p.spawn()
		}
		mark()
		p.mu.Unlock()
		tell(replaced)
	})
	return w
}

// end reports the pass over.
func (w *watched) end() {
	w.timer.Stop()
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	w.over = true
	if w.wedged {
		w.pool.wedged--
	}
}

// close ends the replacing of workers; joined is closed once none is left.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	if p.running == 0 {
		close(p.joined)
	}
}

// await waits until every worker has left, for d at most.
func (p *pool) await(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.joined:
		return true
	case <-timer.C:
		return p.empty()
	}
}

func (p *pool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running == 0
}

func (p *pool) counts() (running, wedged int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, p.wedged
}

// check fails when no worker, replacements included, is left to take a key.
func (p *pool) check() error {
	running, wedged := p.counts()
	if running > 0 && wedged == running {
		return fmt.Errorf("all %d workers, replacements included, are stuck in passes past their deadline", running)
	}
	return nil
}
