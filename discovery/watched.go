package discovery

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/xds"
)

// watch wraps the source of a type for measurement and keeps its wildcard support.
func watch(source xds.Source[*Caller], typ int) xds.Source[*Caller] {
	if lister, ok := source.(xds.Lister[*Caller]); ok {
		return listed{watched{source, typ}, lister}
	}
	return watched{source, typ}
}

// watched is a source that records how much each caller subscribes to and when what it
// watches changed.
type watched struct {
	xds.Source[*Caller]
	typ int
}

// Watch calls the source's Watch.
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

// Peek calls the source's Peek.
func (w watched) Peek(caller *Caller, name string) (*xds.Resource, error) {
	caller.session.of(w.typ, (*progress).look)
	return w.Source.Peek(caller, name)
}

// listed is watched for a source with a wildcard.
type listed struct {
	watched
	lister xds.Lister[*Caller]
}

// List calls the source's List.
func (l listed) List(caller *Caller) ([]string, error) {
	caller.session.of(l.typ, (*progress).list)
	return l.lister.List(caller)
}

// WatchList calls the source's WatchList.
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

// subscribe counts a name. A name the client requests is sent for that reason, not
// because of a change.
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

// look starts a measurement: earlier changes are in the next response, if in any.
func (p *progress) look() {
	p.listing = false
	if !p.changed.IsZero() {
		p.looked, p.changed = p.changed, time.Time{}
	}
}

// push returns how long after its change a response was sent; false if no change caused
// it.
func (p *progress) push(version string) (time.Duration, bool) {
	p.pushes++
	p.sent, p.sending, p.looked = version, p.looked, time.Time{}
	return time.Since(p.sending), !p.sending.IsZero()
}

// ack is the counterpart of push for the ACK.
func (p *progress) ack(version string) (time.Duration, bool) {
	began := p.sending
	p.sending = time.Time{}
	if version != "" {
		p.acked = version
	}
	return time.Since(began), !began.IsZero()
}

// cleared notes that something the client rejected is gone.
func (p *progress) cleared(left int) {
	if p.rejected = left; left == 0 {
		p.refused = nil
	}
}
