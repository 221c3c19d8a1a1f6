package discovery

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/xds"
)

// watch returns the source of a type, watched. What knows a wildcard still does.
func watch(source xds.Source[*Caller], typ int) xds.Source[*Caller] {
	if lister, ok := source.(xds.Lister[*Caller]); ok {
		return listed{watched{source, typ}, lister}
	}
	return watched{source, typ}
}

// watched is a source that notes who has subscribed to how much, and when what they
// watch has changed.
type watched struct {
	xds.Source[*Caller]
	typ int
}

// Watch asks the source.
func (w watched) Watch(caller *Caller, name string, notify func(string)) (func(), error) {
	of := caller.session
	stop, err := w.Source.Watch(caller, name, func(name string) {
		of.of(w.typ, (*progress).change)
		notify(name)
	})
	if err != nil {
		return nil, err
	}
	of.of(w.typ, (*progress).subscribe)
	return func() {
		of.of(w.typ, (*progress).unsubscribe)
		stop()
	}, nil
}

// Peek asks the source.
func (w watched) Peek(caller *Caller, name string) (*xds.Resource, error) {
	caller.session.of(w.typ, (*progress).look)
	return w.Source.Peek(caller, name)
}

// listed is the same of a source with a wildcard.
type listed struct {
	watched
	lister xds.Lister[*Caller]
}

// List asks the source.
func (l listed) List(caller *Caller) ([]string, error) {
	caller.session.of(l.typ, (*progress).list)
	return l.lister.List(caller)
}

// WatchList asks the source.
func (l listed) WatchList(caller *Caller, notify func()) (func(), error) {
	return l.lister.WatchList(caller, func() {
		caller.session.of(l.typ, (*progress).change)
		notify()
	})
}

func (p *progress) change() {
	if p.changed.IsZero() {
		p.changed = time.Now()
	}
}

// subscribe takes a name. One that the client has asked for is sent for that reason, not
// because something has changed.
func (p *progress) subscribe() {
	p.subscribed++
	if !p.listing {
		p.looked = time.Time{}
	}
}

func (p *progress) unsubscribe() { p.subscribed-- }

func (p *progress) list() {
	p.look()
	p.listing = true
}

// look begins to measure: what has changed before is in what is sent next, if in
// anything.
func (p *progress) look() {
	p.listing = false
	if !p.changed.IsZero() {
		p.looked, p.changed = p.changed, time.Time{}
	}
}

// push returns how long what was sent took since it had changed; false where no change
// was the reason.
func (p *progress) push(version string) (time.Duration, bool) {
	p.pushes++
	p.sent, p.sending, p.looked = version, p.looked, time.Time{}
	return time.Since(p.sending), !p.sending.IsZero()
}

// ack is the same for the acknowledgement.
func (p *progress) ack(version string) (time.Duration, bool) {
	began := p.sending
	p.sending = time.Time{}
	if version != "" {
		p.acked = version
	}
	return time.Since(began), !began.IsZero()
}
