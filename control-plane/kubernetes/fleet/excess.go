package fleet

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// retries are those of a kubeconfig whose cluster takes too much.
type retries struct {
	since, last time.Time // the first and the latest excess of those in a row
	pause       time.Duration
	timer       *time.Timer // for the next one
}

// next returns how long nothing is tried now; false where it has gone on for giveUp. An
// excess that comes giveUp after the one before it is the first one again.
func (r *retries) next(giveUp time.Duration) (time.Duration, bool) {
	now := time.Now()
	if now.Sub(r.last) >= giveUp {
		r.since, r.pause = now, giveUp/120
	}
	r.last = now
	r.pause *= 2
	return r.pause, now.Sub(r.since) < giveUp
}

func (r *retries) end() {
	if r.timer != nil {
		r.timer.Stop()
	}
	*r = retries{}
}

// exceeded ends a cluster that takes more than its limits.
func (f *Fleet) exceeded(m *member, c *Cluster, what error) {
	if c != m.next && c != m.serving {
		return // it was exchanged or removed meanwhile
	}
	const said = "a cluster takes too much; nothing is held of it any more"
	if c == m.serving && (m.next != nil || m.sum != m.built) { // the claim leads elsewhere, or nowhere
		f.cfg.Log.Warn(said, "cluster", m.id, "error", what.Error())
		f.replace(m, c)
		return
	}
	pause, again := m.retries.next(f.cfg.GiveUp)
	if again {
		m.fault = fmt.Sprintf("%s; it is tried again in %s", what, pause.Round(time.Millisecond))
		of := m.claim
		m.retries.timer = time.AfterFunc(pause, func() { f.signal(func() { f.again(m, of) }) })
	} else {
		m.fault = fmt.Sprintf("%s; given up after %s until the kubeconfig changes", what, f.cfg.GiveUp)
	}
	f.fail(m, c)
	f.cfg.Log.Warn(said, "cluster", m.id, "source", m.source, "error", m.fault)
}

// again tries a claim once more, unless another one came.
func (f *Fleet) again(m *member, c claim) {
	if f.members[m.id] == m && m.built == [sha256.Size]byte{} && m.sum == c.sum() {
		f.try(m, c)
	}
}

// replace ends a cluster of an earlier claim. If another one is being tried, that is
// handed out.
func (f *Fleet) replace(m *member, c *Cluster) {
	if m.next == nil {
		m.built = [sha256.Size]byte{}
	}
	f.end(c)
	m.serving, m.next = m.next, nil
	f.publish(m)
}

// fail ends the cluster that the claim leads to. What an earlier one leads to serves on.
func (f *Fleet) fail(m *member, c *Cluster) {
	m.built = [sha256.Size]byte{}
	if m.giveUp != nil {
		m.giveUp.Stop()
		m.giveUp = nil // it would keep all that was held
	}
	f.end(c)
	if m.next = nil; c != m.serving {
		f.showMember(m)
		return
	}
	m.serving = nil
	f.publish(m)
}
