package faultproxy

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

type frame struct {
	data []byte
	at   time.Time // of arrival
}

// queue is what the API server has sent of a watch and the client has not got.
type queue struct {
	mu     sync.Mutex
	frames []frame
	err    error         // io.EOF: a clean end; nil: not ended
	news   chan struct{} // has room for one
}

func (q *queue) put(f []byte, err error) {
	q.mu.Lock()
	if len(f) > 0 && err == nil {
		q.frames = append(q.frames, frame{f, time.Now()})
	}
	q.err = err
	q.mu.Unlock()
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// head is the next frame, if there is one, and the end if it has come.
func (q *queue) head() (f frame, ok bool, end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) == 0 {
		return frame{}, false, q.err
	}
	return q.frames[0], true, q.err
}

func (q *queue) pop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames[0] = frame{}
	q.frames = q.frames[1:]
}

// stream hands the frames of a watch on. One goroutine reads, so that what the
// API server sends is seen whatever the client's side does; it is joined.
func (p *Proxy) stream(ctx context.Context, x *exchange, w http.ResponseWriter, resp *http.Response) {
	s := &pump{
		x: x, w: w, ctx: ctx, opaque: p.opaque(x.request),
		format: formatOf(resp.Header.Get("Content-Type")),
		queue:  &queue{news: make(chan struct{}, 1)},
		active: time.Now(),
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		in := bufio.NewReader(resp.Body)
		for {
			f, err := s.format.read(in)
			s.queue.put(f, err)
			if err != nil {
				return
			}
		}
	})
	defer reader.Wait()
	defer resp.Body.Close() // ends the reader
	_ = http.NewResponseController(w).Flush()
	s.run()
}

// pump is the client's side of a watch.
type pump struct {
	x      *exchange
	w      http.ResponseWriter
	ctx    context.Context
	opaque bool
	format format
	queue  *queue

	active time.Time // when bytes were last delivered
	held   []byte    // by a buffering rule
	since  time.Time // the first of them came
}

// run returns when the stream has ended cleanly; any other end is a panic with
// http.ErrAbortHandler.
func (s *pump) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if s.ctx.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		wait, ended := s.step()
		if ended {
			return
		}
		if wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-s.ctx.Done():
		case <-s.x.changed:
		case <-s.queue.news:
		case <-timer.C:
		}
	}
}

// step does one thing that is due, and returns how long nothing more will be.
func (s *pump) step() (wait time.Duration, ended bool) {
	now := time.Now()
	wait = time.Hour
	faults := s.x.faults()

	for _, b := range faults {
		if b.rule.Close == NoClose && b.rule.InjectError == nil || b.rule.DropResponse {
			continue
		}
		due := s.x.request.Time.Add(b.rule.After)
		if idle := s.active.Add(b.rule.AfterIdle); b.rule.AfterIdle > 0 && idle.After(due) {
			due = idle
		}
		switch {
		case b.frames < b.rule.AfterFrames:
		case due.After(now):
			wait = min(wait, due.Sub(now))
		default:
			if b.rule.InjectError != nil {
				s.flush()
				s.send(s.format.errorFrame(b.rule.InjectError))
			}
			s.x.close(b.rule.Close)
			return 0, true
		}
	}

	head, ok, end := s.queue.head()
	for _, b := range faults {
		if b.rule.Freeze == FreezeStream {
			if b.rule.PassEnd && end != nil {
				return 0, s.end(end)
			}
			return wait, false
		}
	}

	var delay time.Duration
	for _, b := range faults {
		delay = max(delay, b.rule.DelayFrames)
	}
	switch {
	case !ok && end != nil:
		s.flush()
		return 0, s.end(end)
	case ok && head.at.Add(delay).After(now):
		wait = min(wait, head.at.Add(delay).Sub(now))
	case ok:
		s.queue.pop()
		if !s.stripped(faults, head.data) {
			s.hold(head.data, now)
			for _, b := range faults {
				b.frames++
			}
			s.x.note(func(r *Request) { r.Frames++ })
		}
		wait = 0
	}

	if len(s.held) > 0 {
		due := s.bufferDue(faults)
		if !due.After(now) {
			s.flush()
		} else {
			wait = min(wait, due.Sub(now))
		}
	}
	return wait, false
}

// end ends the stream as the API server did.
func (s *pump) end(err error) bool {
	if err != io.EOF {
		panic(http.ErrAbortHandler)
	}
	return true
}

func (s *pump) stripped(faults []*binding, f []byte) bool {
	if !slices.ContainsFunc(faults, func(b *binding) bool {
		return b.rule.StripBookmarks || b.rule.StripInitialEventsEnd
	}) {
		return false
	}
	bookmark, initialEnd := s.format.bookmark(f)
	return slices.ContainsFunc(faults, func(b *binding) bool {
		return b.rule.StripBookmarks && bookmark || b.rule.StripInitialEventsEnd && initialEnd
	})
}

func (s *pump) hold(f []byte, now time.Time) {
	if s.opaque {
		f = hideVersions(f)
	}
	if len(s.held) == 0 {
		s.since = now
	}
	s.held = append(s.held, f...)
}

// bufferDue is when the held bytes have to go: the latest that a rule says.
func (s *pump) bufferDue(faults []*binding) time.Time {
	due := s.since
	for _, b := range faults {
		if !b.rule.buffers() || b.rule.BufferBytes > 0 && len(s.held) >= b.rule.BufferBytes {
			continue
		}
		d := b.rule.BufferFor
		if d == 0 {
			d = 1000 * time.Hour // until the bytes are there
		}
		if t := s.since.Add(d); t.After(due) {
			due = t
		}
	}
	return due
}

func (s *pump) flush() {
	if len(s.held) > 0 {
		s.send(s.held)
		s.held = s.held[:0]
	}
}

func (s *pump) send(b []byte) {
	_, err := s.w.Write(b)
	if err == nil {
		err = http.NewResponseController(s.w).Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.active = time.Now()
}
