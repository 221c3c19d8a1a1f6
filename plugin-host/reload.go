package pluginhost

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// reload asks run to go over to another plan.
type reload struct {
	ctx   context.Context // bounds the way to ready
	plan  *plan
	reply chan error // has room for one
}

// same tells whether lives of both plans are the same.
func (p *plan) same(other *plan) bool {
	if !reflect.DeepEqual(p.entry, other.entry) || p.path != other.path || (p.binary == nil) != (other.binary == nil) {
		return false
	}
	return p.binary == nil || p.binary.sha256 == other.binary.sha256
}

// reload starts a life of the new plan beside the one that is ready.
func (s *supervisor) reload(r *reload) {
	if s.current != nil && s.plan.same(r.plan) {
		r.plan.close()
		s.status.LastReload = ""
		s.publish()
		r.reply <- nil
		return
	}
	if s.attempt != nil { // of the old plan: it is superseded, and comes back if the new one is no better
		s.abandon()
		s.restart = time.After(0)
	}
	s.log.Info("a new generation of the provider is started beside the old one", "path", r.plan.path)
	s.begin(r.plan, r)
}

// turnDown keeps what there was: the new plan did not get ready.
func (s *supervisor) turnDown(a *attempt, err error) {
	if a.instance != nil {
		s.dismiss(a.instance, func() {})
	}
	a.plan.close()
	s.status.LastReload = plain(err.Error())
	s.log.Warn("the provider's new version or settings did not get ready; the old ones stay", "error", s.status.LastReload)
	s.publish()
}

// Reload looks for the entry's binary again, verifies it, and starts it with the
// entry's settings beside the process that is ready. Calls move when the new one is
// ready, and those in flight end in the old one. Where it does not get ready before
// ctx ends (or [Options.CallTimeout], without a deadline), the error says why, and
// the old one stays; a provider that says that its CA is away is not ready. Where
// nothing has changed, nothing is started. A provider that is in backoff, or whose
// circuit is open, is started at once. The entry's name must be the old one.
func (p *Provider) Reload(ctx context.Context, entry Entry) error {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.opts.CallTimeout)
		defer cancel()
	}
	if entry.Name != p.name {
		return fmt.Errorf("provider %q: its name cannot become %q", p.name, entry.Name)
	}
	plan, err := p.plans(entry)
	if err != nil {
		return err
	}
	r := &reload{ctx: ctx, plan: plan, reply: make(chan error, 1)}
	select {
	case p.reloads <- r:
	case <-p.closed:
		plan.close()
		return ca.Errorf(ca.Unavailable, "provider %q is closed", p.name)
	}
	if err := <-r.reply; err != nil {
		return fmt.Errorf("provider %q: %w", p.name, err)
	}
	return nil
}
