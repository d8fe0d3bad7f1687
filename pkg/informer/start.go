package informer

import (
	"context"
	"sync"

	"k8s.io/klog/v2"
)

// Runner is an Informer of whatever type.
type Runner interface{ Run(context.Context) error }

// Start runs informers until stop is called, which returns when all of them have ended.
// They have to outlive the controllers that read them: give it a ctx that does not end
// with theirs, and call stop after them.
//
//	stop := informer.Start(context.WithoutCancel(ctx), webApps, deployments)
//	defer stop()
//	return c.Run(ctx)
func Start(ctx context.Context, informers ...Runner) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, i := range informers {
		running.Go(func() {
			if err := i.Run(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Informer ended")
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}
