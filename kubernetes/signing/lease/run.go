package lease

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// grace is how long calls in flight may take to notice that their term is over.
const grace = time.Second

// Run calls lead in each term, one after the other, until ctx ends. The context of lead ends
// when the Lease is lost or ctx ends; the next term begins when lead has returned. If lead
// returns earlier, the Lease is given up. Run may be called once.
//
// When ctx ends, the Lease is kept until lead has returned and no guarded call is in flight.
// Then it is released, so that another replica leads at its next look.
func (l *Lease) Run(ctx context.Context, lead func(ctx context.Context)) {
	for ctx.Err() == nil {
		l.run(ctx, lead)
		select {
		case <-time.After(3 * l.retry()): // the others look every 1 to 2.2 of it, and may fare better
		case <-ctx.Done():
		}
	}
}

// run is one term, and the wait for it.
func (l *Lease) run(ctx context.Context, lead func(ctx context.Context)) {
	t := newTerm(l.cfg)
	elect, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.Logger{}))
	began, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		defer t.end()
		leaderelection.RunOrDie(elect, l.elector(t, func() { close(began) }))
	}()
	select {
	case <-began:
		l.lead(ctx, t, lead)
	case <-over:
	case <-ctx.Done():
	}
	t.settle(grace)
	stop()
	<-over
}

// elector returns settings that the checks of New make valid.
func (l *Lease) elector(t *term, began func()) leaderelection.LeaderElectionConfig {
	renew := l.cfg.Duration * 2 / 3
	return leaderelection.LeaderElectionConfig{
		Lock:          &lock{Interface: l.lock, lease: l, term: t, timeout: renew / 2},
		LeaseDuration: l.cfg.Duration, RenewDeadline: renew, RetryPeriod: l.retry(), ReleaseOnCancel: true, Name: l.name(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { began() },
			OnStoppedLeading: func() {},
		},
	}
}

func (l *Lease) lead(ctx context.Context, t *term, lead func(ctx context.Context)) {
	leading, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.over, cancel)()
	l.term.Store(t)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer t.end()
	watch.Go(t.watch)
	l.cfg.Log.Info("this replica leads", "lease", l.name(), "identity", l.cfg.Identity)
	lead(leading)
	if ctx.Err() == nil {
		l.cfg.Log.Warn("this replica no longer leads", "lease", l.name())
	}
}

func (l *Lease) retry() time.Duration { return l.cfg.Duration / 5 }
