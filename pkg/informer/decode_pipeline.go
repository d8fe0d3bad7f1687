package informer

import (
	"context"
	"io"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"
)

// lookAheadBytes bounds the segments that have been read and not yet handed on.
// It is what a slow consumer costs in memory, and enough to keep the decoders of
// any machine busy.
const lookAheadBytes = 4 << 20

var segments = sync.Pool{New: func() any { b := make([]byte, 0, segmentBytes); return &b }}

func freshSegment() []byte { return (*segments.Get().(*[]byte))[:0] }

func releaseSegment(b []byte) {
	if cap(b) == segmentBytes {
		segments.Put(&b)
	}
}

// batch is a segment on its way: read, then decoded, then handed on.
type batch[O any] struct {
	segment []byte
	values  []span
	weight  int64

	decoded chan struct{} // closed when the two below are set
	out     []O
	err     error
}

// decodeValues reads body to its end and closes it. scan finds the values in
// it, decode turns each into an O on one of GOMAXPROCS goroutines, and yield
// gets them in the order of the body, on the caller's goroutine.
//
// decode owns the bytes it is given, but only until it returns. An error of
// scan, decode or yield, or the end of ctx, ends everything and is returned;
// what has been yielded by then is the caller's to discard. Every goroutine has
// returned when decodeValues does, provided that body.Close unblocks a Read.
func decodeValues[O any](ctx context.Context, body io.ReadCloser, eager bool,
	scan func(*source) error, decode func(raw []byte) (O, error), yield func(O) error,
) error {
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	closeBody := sync.OnceFunc(func() { _ = body.Close() })
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	defer closeBody()
	defer cancel()
	stop := context.AfterFunc(ctx, closeBody)
	defer stop()

	// A batch is never lighter than a segment, so these hold all there can be.
	const batches = lookAheadBytes/segmentBytes + 1
	work := make(chan *batch[O], batches)
	ordered := make(chan *batch[O], batches)
	room := semaphore.NewWeighted(lookAheadBytes)

	var scanErr error // set before ordered is closed
	goroutines.Go(func() {
		defer close(ordered)
		defer close(work)
		s := &source{r: body, eager: eager, fresh: freshSegment}
		s.handOver = func(segment []byte, values []span) error {
			b := &batch[O]{segment: segment, values: values, decoded: make(chan struct{})}
			b.weight = min(int64(cap(segment)), lookAheadBytes)
			if err := room.Acquire(ctx, b.weight); err != nil {
				return err
			}
			ordered <- b
			work <- b
			return nil
		}
		if scanErr = scan(s); scanErr == nil {
			scanErr = s.flush()
		} else {
			// What was complete before the fault still counts on a watch.
			_ = s.flush()
		}
	})
	for range runtime.GOMAXPROCS(0) {
		goroutines.Go(func() {
			for b := range work {
				b.decode(ctx, decode)
			}
		})
	}

	for b := range ordered {
		<-b.decoded
		for _, o := range b.out {
			if err := parent.Err(); err != nil {
				return context.Cause(parent)
			}
			if err := yield(o); err != nil {
				return err
			}
		}
		if b.err != nil {
			return b.err
		}
		room.Release(b.weight)
	}
	if parent.Err() != nil {
		return context.Cause(parent)
	}
	return scanErr
}

func (b *batch[O]) decode(ctx context.Context, decode func(raw []byte) (O, error)) {
	defer close(b.decoded)
	b.out = make([]O, 0, len(b.values))
	for _, v := range b.values {
		if b.err = ctx.Err(); b.err != nil {
			return
		}
		o, err := decode(b.segment[v.start:v.end:v.end])
		if err != nil {
			b.err = err
			return
		}
		b.out = append(b.out, o)
	}
	releaseSegment(b.segment)
	b.segment = nil
}
