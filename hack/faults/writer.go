package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// steadyApps WebApps are changed in turn. In between others come and go, so that
// every type of event is among those that can be lost.
const steadyApps = 3

// writer changes WebApps as a user would, past every proxy.
type writer struct {
	i    *installation
	book *book
	// steadyOnly leaves out the WebApps that come and go.
	steadyOnly bool

	mu      sync.Mutex
	paused  bool
	visitor string // the WebApp that is there for a while
	turn    int
}

// create makes a WebApp. Its child shows the change that made it. It has the product's
// finalizer from the start, so that it cannot go without the product.
func (w *writer) create(ctx context.Context, name string) error {
	n, cancel := w.book.open(name)
	_, err := w.i.plane.platform.PlatformV1alpha1().WebApps(w.i.work).Create(ctx, &v1alpha1.WebApp{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.WebAppSpec{Image: image(n), DrainTimeout: &metav1.Duration{}},
	}, metav1.CreateOptions{})
	if err != nil {
		cancel()
	}
	return err
}

func (w *writer) change(ctx context.Context, name string) error {
	n, cancel := w.book.open(name)
	_, err := w.i.plane.platform.PlatformV1alpha1().WebApps(w.i.work).Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"image":%q}}`, image(n)), metav1.PatchOptions{})
	if err != nil {
		cancel()
	}
	return err
}

func (w *writer) remove(ctx context.Context, name string) error {
	_, cancel := w.book.open(name)
	err := w.i.plane.platform.PlatformV1alpha1().WebApps(w.i.work).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil {
		cancel()
	}
	return err
}

func steady(k int) string { return fmt.Sprintf("app-%d", k%steadyApps) }

// begin makes the WebApps.
func (w *writer) begin(ctx context.Context) error {
	for k := range steadyApps {
		if err := w.create(ctx, steady(k)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create a WebApp: %w", err)
		}
	}
	return nil
}

// run writes until ctx ends. An API server that is away is no error: the turn comes
// again.
func (w *writer) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Not within the span of a tick's bound, or a slow API server would make the
		// writer give up what has been written.
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		_ = w.step(bounded)
		cancel()
	}
}

func (w *writer) step(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused {
		return nil
	}
	var err error
	switch turn := w.turn % 10; {
	case turn == 3 && w.visitor == "" && !w.steadyOnly:
		name := fmt.Sprintf("visitor-%d", w.turn)
		// One whose answer was lost is there all the same.
		if err = w.create(ctx, name); err == nil || apierrors.IsAlreadyExists(err) {
			w.visitor, err = name, nil
		}
	case turn == 8 && w.visitor != "":
		if err = w.remove(ctx, w.visitor); err == nil || apierrors.IsNotFound(err) {
			w.visitor, err = "", nil
		}
	default:
		err = w.change(ctx, steady(w.turn))
	}
	if err == nil {
		w.turn++
	}
	return err
}

// pause returns once no write is under way.
func (w *writer) pause(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = paused
}
