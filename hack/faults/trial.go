package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// installation is the product in a namespace of its own, with a Lease of its own,
// behind a proxy.
type installation struct {
	lab          *lab
	plane        *plane
	proxy        *faultproxy.Proxy
	work, leases string // namespaces
	replicas     []*replica
	// args are given to the controller on top of the settings.
	args []string

	running sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context // of everything that runs for it
}

// install makes the namespaces. change may take rights on Leases away.
func (l *lab) install(ctx context.Context, p *plane, proxy *faultproxy.Proxy, change func(*rbacv1.Role)) (i *installation, err error) {
	i = &installation{lab: l, plane: p, proxy: proxy}
	if i.work, err = p.namespace(ctx, "work-"); err != nil {
		return nil, err
	}
	if i.leases, err = p.namespace(ctx, "lease-"); err != nil {
		return nil, err
	}
	if err := p.allowLeases(ctx, i.leases, change); err != nil {
		return nil, err
	}
	i.ctx, i.stop = context.WithCancel(ctx)
	return i, nil
}

// end stops all that runs.
func (i *installation) end() {
	i.stop()
	i.running.Wait()
}

func (i *installation) background(f func(context.Context)) {
	i.running.Go(func() { f(i.ctx) })
}

// replica starts one more, with arguments of its own.
func (i *installation) replica(ctx context.Context, o *observer, args ...string) (*replica, error) {
	kubeconfig, err := i.kubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	r := &replica{i: i, name: fmt.Sprintf("%s-%d", i.work, len(i.replicas)), kubeconfig: kubeconfig}
	r.args = append([]string{
		"--kubeconfig=" + kubeconfig, "--namespaces=" + i.work, "--leader-election-namespace=" + i.leases,
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0", "--debug-bind-address=127.0.0.1:0",
	}, i.lab.flags...)
	r.args = append(append(r.args, i.args...), args...)
	i.replicas = append(i.replicas, r)
	r.start(o, i.lab.look)
	return r, nil
}

// trial is one run of a scenario.
type trial struct {
	*installation
	scenario *scenario
	book     *book
	writer   *writer
	observer *observer
	result   *result
	// plainSynced is of the informer beside the product; nil: there is none.
	plainSynced func() bool
	every       time.Duration // between changes
	// witnessed replaces the direct watches by which it is measured what the product
	// has done.
	witnessed func(context.Context)
}

// options of prepare.
type options struct {
	replicas int // 0: 1
	// noPlain leaves client-go's informer out: it would be a load on the machine.
	noPlain bool
	// under is called before anything is started, so that all starts under the fault,
	// which is then not awaited.
	under func()
	// every is the time between changes; 0: settings.tick.
	every time.Duration
}

// prepare starts the product and waits until it works.
func (t *trial) prepare(ctx context.Context, o options) error {
	if err := take(ctx, t.lab.starting); err != nil {
		return err
	}
	defer func() { <-t.lab.starting }()
	if o.under != nil {
		o.under()
		t.begin()
	}
	if t.witnessed == nil {
		t.witnessed = func(ctx context.Context) { t.witness(ctx, t.book) }
	}
	t.background(t.witnessed)
	if err := t.writer.begin(ctx); err != nil {
		return err
	}
	for range max(o.replicas, 1) {
		if _, err := t.replica(ctx, t.observer); err != nil {
			return err
		}
	}
	if !o.noPlain {
		synced, err := t.plainInformer(t.ctx, t.book, t.plane.Config())
		if err != nil {
			return err
		}
		t.plainSynced = synced
	}
	if o.under == nil {
		if err := t.await(ctx, t.lab.patience, "the product to work", func() bool { return t.book.unseen(product) == 0 }); err != nil {
			return err
		}
	}
	if t.every = o.every; t.every == 0 {
		t.every = t.lab.tick
	}
	if t.every > 0 {
		t.background(func(ctx context.Context) { t.writer.run(ctx, t.every) })
	}
	// A watch younger than a second is a story of its own, and so is a leader that has
	// not yet seen its canary.
	if o.under == nil && !sleep(ctx, t.lab.of(10*time.Second, 3*time.Second)) {
		return context.Cause(ctx)
	}
	return nil
}

func (t *trial) await(ctx context.Context, within time.Duration, what string, f func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("waited %s for %s", within, what))
	defer cancel()
	for !f() {
		if !sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// begin and lift mark when the fault is there. What is measured lies between.
func (t *trial) begin() { t.result.began = time.Now() }
func (t *trial) lift()  { t.result.lifted = time.Now() }

// during runs a span of the fault.
func (t *trial) during(ctx context.Context, d time.Duration) error {
	if !sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// finish goes on with changes until they are acted on promptly again, then counts what
// was never acted on.
func (t *trial) finish(ctx context.Context) error {
	if t.result.lifted.IsZero() {
		t.lift()
	}
	if err := t.during(ctx, t.lab.recovery); err != nil {
		return err
	}
	_ = t.await(ctx, 2*t.lab.back(), "changes to be acted on promptly", func() bool {
		now := time.Now()
		after, ok := t.book.prompt(product, t.result.lifted, promptly+t.lab.slack(t.result.lifted, now))
		return ok && now.Sub(t.result.lifted.Add(after)) > 4*t.every
	})
	t.writer.pause(true)
	err := t.await(ctx, t.lab.patience, "the last changes", func() bool { return t.book.unseen(product) == 0 })
	if ctx.Err() != nil {
		return err
	}
	t.sum()
	return nil
}

func take(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run runs a scenario. Its error says that nothing was learned.
func (l *lab) run(ctx context.Context, s *scenario) (*result, error) {
	if err := take(ctx, l.running); err != nil {
		return nil, err
	}
	defer func() { <-l.running }()
	p, err := l.sharedPlane()
	if s.alone {
		if err := take(ctx, l.alone); err != nil {
			return nil, err
		}
		defer func() { <-l.alone }()
		p, err = l.newPlane(ctx)
		if err == nil {
			defer p.Stop()
		}
	}
	if err != nil {
		return nil, err
	}
	cfg := s.proxy
	cfg.Upstream = p.Config()
	proxy, err := faultproxy.Start(cfg)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	i, err := l.install(ctx, p, proxy, s.rights)
	if err != nil {
		return nil, err
	}
	defer i.end()
	t := &trial{installation: i, scenario: s, book: &book{}, observer: &observer{}, result: &result{scenario: s}}
	t.writer = &writer{i: i, book: t.book}
	if err := s.run(ctx, t); err != nil {
		for _, r := range i.replicas {
			if ctx.Err() != nil {
				break // by whoever started this; there is nothing to explain
			}
			err = errors.Join(err, fmt.Errorf("log of %s:\n%s", r.name, r.log()))
		}
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if s.check != nil {
		t.result.problems = append(t.result.problems, s.check(t.result, l.settings)...)
	}
	return t.result, nil
}
