package informer

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

const (
	// beginMargin is how much longer than a list a WatchList of the same may take.
	beginMargin = time.Second
	// nobody is a name that no object has. If one has, nothing is wrong with it.
	nobody = "steadwatch-asks-for-nobody"
)

// begins asks whether WatchLists begin where lists are answered: both are asked for
// at once, over one connection, of an object that there is not. They wait for the same,
// such as for a cache to be as new as etcd, have nothing to send, and have to say that
// at once. It takes a second, 15 at most.
//
//	quiet        the WatchList has begun
//	mute         the list was answered, and twice as long after it was asked for, a
//	             second at least, the WatchList has said nothing
//	refused      the API server has answered with an error, which says nothing
//	unreachable  no answer to the list either
//
// Mute says nothing about watches: it may be that they work and do not end their initial
// events.
func (a *asker) begins(ctx context.Context) answer {
	for range 2 {
		if err := a.hearing.limiter.Wait(ctx); err != nil {
			return answer{kind: unreachable, err: err}
		}
	}
	l := a.hearing.current()
	ctx, cancel := context.WithTimeout(ctx, goneAfter)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	began, listed, begun := time.Now(), make(chan error, 1), make(chan answer, 1)
	asking.Go(func() {
		listed <- a.request(l, &metav1.ListOptions{FieldSelector: "metadata.name=" + nobody}, "PartialObjectMetadataList").Do(ctx).Error()
	})
	asking.Go(func() { begun <- a.firstWord(ctx, l) })
	var silent <-chan time.Time
	for {
		select {
		case got := <-begun:
			if ctx.Err() != nil { // it was not the API server who has ended it
				got = answer{kind: unreachable, err: errNoAnswer}
			}
			return got
		case err := <-listed:
			if err != nil {
				got, noAnswer := failed(err)
				if noAnswer != nil {
					got = answer{kind: unreachable, err: noAnswer}
				}
				return got
			}
			silent = time.After(max(beginMargin, time.Since(began)))
		case <-silent:
			return answer{kind: mute, err: fmt.Errorf("%w of a WatchList where a list has one", errNoAnswer)}
		}
	}
}

// firstWord waits for what a WatchList says first.
func (a *asker) firstWord(ctx context.Context, l *link) answer {
	unknown := func(err error) answer {
		got, noAnswer := failed(err)
		if noAnswer != nil {
			return answer{kind: refused, err: noAnswer}
		}
		return got
	}
	w, err := a.request(l, &metav1.ListOptions{
		Watch: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(int64(goneAfter.Seconds())), FieldSelector: "metadata.name=" + nobody,
	}, "PartialObjectMetadata").Watch(ctx)
	if err != nil {
		return unknown(err)
	}
	defer w.Stop()
	switch event, told := <-w.ResultChan(); {
	case !told:
		return unknown(errNoAnswer)
	case event.Type == watch.Error:
		return unknown(apierrors.FromObject(event.Object))
	}
	return answer{kind: quiet}
}
