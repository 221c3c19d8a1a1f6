package fleet

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// retries schedules retries of a kubeconfig whose cluster exceeds its limits.
type retries struct {
	since, last time.Time // the first excess in a row, and when the latest retry began
	waits       rotation.Waits
	timer       *time.Timer // for the next retry
}

// next returns how long to pause, or false if the excess has lasted for giveUp. An
// excess that follows the retry before it by giveUp starts a new row.
func (r *retries) next(giveUp time.Duration) (time.Duration, bool) {
	now := time.Now()
	if now.Sub(r.last) >= giveUp {
		r.since, r.waits = now, rotation.Waits{}
	}
	pause := r.waits.Next(rotation.Row{First: giveUp / 60, Most: giveUp / 2})
	again := now.Sub(r.since) < giveUp
	if r.last = now; again {
		r.last = now.Add(pause)
	}
	return pause, again
}

func (r *retries) end() {
	if r.timer != nil {
		r.timer.Stop()
	}
	*r = retries{}
}

// exceeded stops a cluster that exceeds its limits.
func (f *Fleet) exceeded(m *member, c *Cluster, what error) {
	if c != m.next && c != m.serving {
		return // it was replaced or removed meanwhile
	}
	const said = "cluster exceeds its limits, dropping its objects"
	if c == m.serving && (m.next != nil || m.sum != m.built) { // the claim now leads elsewhere, or nowhere
		f.cfg.Log.Warn(said, "cluster", m.id, "error", what.Error())
		f.replace(m, c)
		return
	}
	pause, again := m.retries.next(f.cfg.GiveUp)
	if again {
		m.fault = fmt.Sprintf("%s; retrying in %s", what, pause.Round(time.Millisecond))
		of := m.claim
		m.retries.timer = time.AfterFunc(pause, func() { f.signal(func() { f.again(m, of) }) })
	} else {
		m.fault = fmt.Sprintf("%s; given up after %s until the kubeconfig changes", what, f.cfg.GiveUp)
	}
	f.fail(m, c)
	f.cfg.Log.Warn(said, "cluster", m.id, "source", m.source, "error", m.fault)
}

// again retries a claim unless another one has come.
func (f *Fleet) again(m *member, c claim) {
	if f.members[m.id] == m && m.built == [sha256.Size]byte{} && m.sum == c.sum() {
		f.try(m, c)
	}
}

// replace stops a cluster of an earlier claim. If a newer one is being tried, that is
// published.
func (f *Fleet) replace(m *member, c *Cluster) {
	if m.next == nil {
		m.built = [sha256.Size]byte{}
	}
	f.end(c)
	m.serving, m.next = m.next, nil
	f.publish(m)
}

// fail stops the cluster the claim leads to. An earlier claim's cluster keeps serving.
func (f *Fleet) fail(m *member, c *Cluster) {
	m.built = [sha256.Size]byte{}
	if m.giveUp != nil {
		m.giveUp.Stop()
		m.giveUp = nil // it would keep all its objects in memory
	}
	f.end(c)
	if m.next = nil; c != m.serving {
		f.showMember(m)
		return
	}
	m.serving = nil
	f.publish(m)
}
