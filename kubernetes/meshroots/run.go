package meshroots

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

const (
	// perSecond bounds the writes in a cluster: each goes to every node that has a pod there.
	// Ten thousand namespaces take eight minutes.
	perSecond = 20
	// workers is how many writes are under way at once.
	workers = 8
	// every is how often what is wrong is logged.
	every = time.Minute
)

// run is one call of [Keeper.Run].
type run struct {
	*Keeper
	namespaces, maps cache.SharedIndexInformer
	queue            workqueue.TypedDelayingInterface[string]
	rate             flowcontrol.RateLimiter
}

// Run keeps the ConfigMaps until ctx ends, and returns when all goroutines are done. It may be
// called again after that, but not twice at once.
func (k *Keeper) Run(ctx context.Context) {
	k.reset()
	defer k.reset()
	r := &run{Keeper: k, rate: flowcontrol.NewTokenBucketRateLimiter(perSecond, perSecond)}
	r.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
		Logger: &klog.Logger{}, Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: &line{urgent: k.urgent}}),
	})
	if err := r.watch(); err != nil { // only of informers that have ended
		k.cfg.Log.Error("cannot follow the namespaces", "error", err)
		return
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer r.queue.ShutDown()
	tasks.Go(func() { signing.RunInformers(ctx, k.cfg.Log, r.namespaces, r.maps) })
	if !r.await(ctx) {
		return
	}
	r.list()
	for range workers {
		tasks.Go(func() { r.work(ctx) })
	}
	r.follow(ctx)
}

// reset forgets what a run knew. What is to be published stays known.
func (k *Keeper) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.places, k.right, k.left, k.listed, k.told, k.notes = map[string]*place{}, 0, 0, false, nil, notes{}
}

// list makes a place for each namespace, before the first is looked at.
func (r *run) list() {
	r.refresh()
	r.mu.Lock()
	for _, namespace := range r.all() {
		if r.chosen(namespace) {
			r.visit(namespace)
		}
	}
	r.listed = true
	r.mu.Unlock()
	if r.others() { // a cluster that joins may have had the roots of another time for hours
		r.takeBack()
	}
	r.confirm() // there may be none
}

// others reports whether a namespace has other roots than it should have, or had. One that has
// none does no harm: its pods keep theirs, and new ones cannot start.
func (r *run) others() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.want == nil {
		return false
	}
	for namespace, p := range r.places {
		if p.left {
			continue
		}
		found := r.found(namespace)
		if found != nil && found.sum != r.want.sum && (r.told == nil || found.sum != r.told.sum) {
			return true
		}
	}
	return false
}

// look retracts the confirmation after a minute of drift: a ConfigMap that is restored sooner
// was hardly gone.
func (r *run) look() {
	r.leaveBehind(time.Now())
	others := r.others()
	r.mu.Lock()
	lasts := others && r.notes.others && r.told != nil
	r.notes.others = others
	r.mu.Unlock()
	if lasts {
		r.takeBack()
	}
}

func (r *run) follow(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-r.changed:
			r.refresh()
		case <-tick.C:
			r.look()
			r.confirm()
			r.complain()
		case <-r.reselect:
			for _, namespace := range r.all() {
				r.add(namespace)
			}
		case <-ctx.Done():
			return
		}
	}
}

// refresh asks for the roots, and has all namespaces looked at if they changed. None change
// nothing: they are not known at present.
func (r *run) refresh() {
	roots := r.cfg.Roots(r.cfg.Authority)
	if roots.Len() == 0 {
		return
	}
	text := string(roots.Union(r.cfg.Further).PEM())
	since, before := time.Now(), r.cfg.Lacking()
	r.mu.Lock()
	if r.want == nil && !before.IsZero() && before.Before(since) {
		since = before
	}
	changed := r.take(&want{roots: roots, text: text, sum: sumOf(text), since: since})
	r.mu.Unlock()
	if changed {
		for _, namespace := range r.all() {
			r.queue.Add(namespace)
		}
	}
}

// take requires the lock to be held.
func (k *Keeper) take(w *want) (changed bool) {
	if len(w.text) > maxSize {
		k.fault = fmt.Errorf("the %d roots of authority %q have %d bytes, a ConfigMap takes %d: withdraw roots that are not used any more", w.roots.Len(), k.cfg.Authority, len(w.text), maxSize)
		return false
	}
	k.fault = nil
	if k.want != nil && k.want.text == w.text {
		return false
	}
	k.want, k.right, k.left = w, 0, 0
	for _, p := range k.places {
		k.count(p, 1)
	}
	return true
}

// add has a namespace looked at. A new one counts as lacking roots from now on.
func (r *run) add(namespace string) {
	r.mu.Lock()
	if r.listed && r.chosen(namespace) {
		r.visit(namespace)
	}
	r.mu.Unlock()
	r.queue.Add(namespace)
}

func (r *run) work(ctx context.Context) {
	for {
		namespace, over := r.queue.Get()
		if over || ctx.Err() != nil {
			return
		}
		if again := r.keep(ctx, namespace); again > 0 {
			r.queue.AddAfter(namespace, again)
		}
		r.queue.Done(namespace)
		r.confirm()
	}
}

// urgent reports whether pods of a namespace cannot start, as it never had a ConfigMap.
func (k *Keeper) urgent(namespace string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.places[namespace]
	return p != nil && p.due == nil && p.err == nil
}

// line has the namespaces to look at, those that are urgent first.
type line struct {
	urgent        func(string) bool
	first, second []string
}

func (l *line) Touch(string) {}

func (l *line) Len() int { return len(l.first) + len(l.second) }

func (l *line) Push(namespace string) {
	if l.urgent(namespace) {
		l.first = append(l.first, namespace)
		return
	}
	l.second = append(l.second, namespace)
}

func (l *line) Pop() (namespace string) {
	from := &l.first
	if len(*from) == 0 {
		from = &l.second
	}
	namespace, *from = (*from)[0], (*from)[1:]
	return namespace
}
