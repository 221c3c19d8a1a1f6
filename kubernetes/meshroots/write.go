package meshroots

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/countersign-dev/countersign/kubernetes/owned"
)

// order is a ConfigMap to write.
type order struct {
	*want
	namespace string
	over      *seen // what was found; nil: nothing
}

// keep brings a namespace in line with the roots. It returns when to look again, if that is
// needed though nothing happens; else 0.
func (r *run) keep(ctx context.Context, namespace string) (again time.Duration) {
	if o, again := r.decide(namespace); o == nil {
		return again
	}
	if r.rate.Wait(ctx) != nil {
		return 0
	}
	o, again := r.decide(namespace) // much may have changed meanwhile
	if o == nil {
		return again
	}
	made, err := r.write(o).Do(ctx, r.cfg.Held)
	if ctx.Err() != nil {
		return 0 // a call that the end of the run cut off is not a fault
	}
	return r.wrote(o, made, err)
}

// decide returns what to write in a namespace, if anything, and else when to look again.
func (r *run) decide(namespace string) (o *order, again time.Duration) {
	chosen, found, now := r.chosen(namespace), r.found(namespace), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !chosen {
		r.leave(namespace)
		return nil, 0
	}
	p := r.visit(namespace)
	switch {
	case r.want == nil:
		return nil, 0
	case p.behind(found, now) && p.has == r.want:
		return nil, lag
	case found != nil && found.sum == r.want.sum && (found.ours || !p.owned(found) && !r.cfg.Adopt):
		if p.claim.Took(""); found.ours {
			p.claim.Took(found.UID)
		}
		r.set(p, r.want)
		return nil, r.calm(p, now)
	}
	r.set(p, nil)
	if found != nil && !p.owned(found) && !r.cfg.Adopt {
		p.err = owned.ErrForeign
		p.blame(now)
		return nil, 0
	}
	if wait := p.pace.Wait(now, p.due == r.want); wait > 0 { // new roots do not wait for what others do
		return nil, wait
	}
	return &order{r.want, namespace, found}, 0
}

// calm forgets repairs that are long ago, and returns when to look again whether they are. The
// lock is held.
func (k *Keeper) calm(p *place, now time.Time) time.Duration {
	fought := p.pace.Fought()
	left := p.pace.Calm(pace, now)
	if fought && left == 0 {
		k.settle(p)
	}
	return left
}

// write creates the ConfigMap, or changes the one that was found, unless it has changed since.
// What others have in it beside the roots stays.
func (r *run) write(o *order) owned.Write {
	m := apply.ConfigMap(Name, o.namespace).WithLabels(owned.Labels()).WithData(map[string]string{Key: o.text})
	if o.over != nil {
		m.WithUID(o.over.UID).WithResourceVersion(o.over.ResourceVersion)
	}
	return func(ctx context.Context) (types.UID, bool, error) {
		made, err := r.cfg.Client.CoreV1().ConfigMaps(o.namespace).Apply(ctx, m, owned.Options(o.over != nil))
		if err != nil {
			return "", false, err
		}
		return made.UID, made.Data[Key] == o.text, nil
	}
}

// wrote records what became of a write. It returns when to look again.
func (r *run) wrote(o *order, made types.UID, err error) (again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.places[o.namespace]
	if p == nil {
		return 0
	}
	p.last, p.over, p.unseen = time.Now(), o.over, err == nil
	if err != nil {
		if !apierrors.IsConflict(err) { // then the watch will show what there is
			p.err = err
		}
		if owned.Refused(err) { // or changed by another client before each write
			p.blame(p.last)
		}
		return p.pace.Failed(pace, p.last)
	}
	if p.due == o.want {
		r.repair(o.namespace, p, o.over, p.last)
	}
	p.claim.Took(made)
	r.set(p, o.want)
	return r.calm(p, p.last)
}
