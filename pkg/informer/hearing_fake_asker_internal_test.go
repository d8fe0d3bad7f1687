package informer

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// What follows is an asker of a fakeAPI.

func (a *fakeAPI) ask(ctx context.Context, from string) answer {
	return a.answer(ctx, from, 13*time.Second)
}

func (a *fakeAPI) askBoth(ctx context.Context, from string) answer {
	return a.answer(ctx, from, 8*time.Second)
}

func (a *fakeAPI) begins(ctx context.Context) answer {
	a.mu.Lock()
	a.seen["begins"]++
	kind, err, wait := quiet, error(nil), a.delay
	switch {
	case a.down, a.hole:
		kind, err, wait = unreachable, errNoAnswer, goneAfter
	case a.refuseQuestions != nil:
		kind, err, wait = refused, a.refuseQuestions, 0
	case a.mute, a.noEnd:
		kind, err, wait = mute, errNoAnswer, max(beginMargin, 2*a.delay)
	}
	a.mu.Unlock()
	select {
	case <-ctx.Done():
		return answer{kind: unreachable, err: ctx.Err()}
	case <-time.After(wait):
		return answer{kind: kind, err: err}
	}
}

func (a *fakeAPI) answer(ctx context.Context, from string, silence time.Duration) answer {
	a.mu.Lock()
	a.seen["question"]++
	silent, down, no := a.mute, a.down || a.hole, a.refuseQuestions
	a.mu.Unlock()
	wait := time.Second
	if no != nil {
		return answer{kind: refused, err: no}
	}
	switch {
	case down:
		wait = 25 * time.Second
	case silent:
		wait = silence
	}
	select {
	case <-ctx.Done():
		return answer{kind: unreachable, err: ctx.Err()}
	case <-time.After(wait):
	}
	switch {
	case down:
		return answer{kind: unreachable, err: context.DeadlineExceeded}
	case silent:
		return answer{kind: mute, err: errNoAnswer}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.history {
		if c.revision > a.number(from) {
			o := c.event.Object.(metav1.Object)
			return answer{kind: news, key: cache.MetaObjectToName(o), resourceVersion: o.GetResourceVersion()}
		}
	}
	return answer{kind: quiet, resourceVersion: a.rv(max(a.revision, a.number(from)))}
}

func (a *fakeAPI) reach(ctx context.Context) error {
	a.mu.Lock()
	away := a.down || a.hole
	a.mu.Unlock()
	if !away {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(answerTimeout + goneAfter):
		return errNoAnswer
	}
}

func (a *fakeAPI) list(ctx context.Context) (*listing, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*pageTimeout)
	defer cancel()
	if err := a.admit(ctx, "audit"); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &listing{resourceVersion: a.rv(a.revision), objects: map[cache.ObjectName]mark{}}
	for _, cm := range a.objects {
		l.objects[cache.MetaObjectToName(cm)] = markOf(cm)
	}
	return l, nil
}
