package fleet

import (
	"crypto/sha256"
	"time"
)

// member is an id with the claim that holds it. Only the fleet's goroutine uses it.
type member struct {
	id      string
	source  string
	claim   claim             // last one tried
	sum     [sha256.Size]byte // of the claim
	built   [sha256.Size]byte // of the claim behind the latest cluster; zero: given up
	since   time.Time         // when it was built
	refused []string          // other sources that claim the id
	fault   string            // why the claim does not serve

	// serving is published. It keeps serving while next, from a newer kubeconfig,
	// syncs: a swap has no gap, and a kubeconfig for an unreachable server does no
	// harm. A first cluster is published at once because it can already verify tokens.
	serving, next *Cluster
	giveUp        *time.Timer // for the unsynced cluster
	retries       retries
}

// connecting returns the cluster that is not synced.
func (m *member) connecting() *Cluster {
	if m.next != nil {
		return m.next
	}
	if m.serving != nil && !m.serving.Synced() {
		return m.serving
	}
	return nil
}

// take tries a claim; identical bytes change nothing. A malformed claim leaves
// everything as it is, even a cluster still connecting.
func (f *Fleet) take(m *member, c claim) {
	if m.source = c.source; m.sum == c.sum() {
		return
	}
	m.claim, m.sum, m.since, m.fault = c, c.sum(), time.Now(), ""
	m.retries.end()
	if m.sum != m.built {
		f.try(m, c)
		return
	}
	f.showMember(m) // a malformed claim had replaced it, and it is back
	f.cfg.Log.Info("kubeconfig unchanged again", "cluster", m.id, "source", m.source)
}

// try connects to the cluster of a claim.
func (f *Fleet) try(m *member, c claim) {
	next, fault := f.build(c)
	if m.fault = fault; fault != "" {
		f.showMember(m)
		f.cfg.Log.Warn("kubeconfig rejected, keeping the previous one", "cluster", m.id, "source", m.source, "error", fault)
		return
	}
	m.built = m.sum
	f.exchange(m, next)
	f.cfg.Log.Info("connecting to cluster", "cluster", m.id, "source", m.source, "server", next.conn.server())
}

func (f *Fleet) build(c claim) (*Cluster, string) {
	config, fault := c.parse(f.cfg.Rules)
	if fault != "" {
		return nil, fault
	}
	built, err := newCluster(c.id, config, f.cfg)
	if err != nil {
		return nil, err.Error()
	}
	return built, ""
}

// exchange replaces the unsynced cluster with next.
func (f *Fleet) exchange(m *member, next *Cluster) {
	if m.next != nil {
		f.end(m.next)
		m.next = nil
	}
	switch {
	case m.serving == nil:
		m.serving = next
	case !m.serving.Synced():
		f.end(m.serving)
		m.serving = next
	default:
		m.next = next
	}
	f.waitFor(m, next)
	if m.serving == next {
		f.publish(m)
	} else {
		f.showMember(m)
	}
}

func (f *Fleet) waitFor(m *member, c *Cluster) {
	if m.giveUp != nil {
		m.giveUp.Stop()
	}
	m.giveUp = time.AfterFunc(f.cfg.GiveUp, func() { f.signal(func() { f.late(m, c) }) })
	c.start(
		func() { f.signal(func() { f.synced(m, c) }) },
		func(what error) { f.signal(func() { f.exceeded(m, c, what) }) },
	)
}

// synced makes c the serving cluster.
func (f *Fleet) synced(m *member, c *Cluster) {
	if c != m.next && c != m.serving {
		return // it was replaced or removed meanwhile
	}
	if c == m.next {
		f.end(m.serving)
		m.serving, m.next = c, nil
	}
	if m.next == nil {
		m.giveUp.Stop()
	}
	f.cfg.Log.Info("cluster synced", "cluster", m.id, "source", m.source)
	f.publish(m)
}

// late stops a cluster that never synced, until its kubeconfig changes.
func (f *Fleet) late(m *member, c *Cluster) {
	if c != m.connecting() || c.Synced() {
		return
	}
	m.fault = "given up after " + f.cfg.GiveUp.String() + " until the kubeconfig changes: " + notSynced(c)
	f.fail(m, c)
	f.cfg.Log.Warn("cluster not syncing", "cluster", m.id, "source", m.source, "error", m.fault)
}

func notSynced(c *Cluster) string {
	if fault := c.conn.health.fault(); fault != "" {
		return fault
	}
	return "the API server has not answered yet"
}

// remove stops everything of a member that nothing claims.
func (f *Fleet) remove(m *member) {
	m.retries.end()
	if m.giveUp != nil {
		m.giveUp.Stop()
	}
	for _, c := range []*Cluster{m.serving, m.next} {
		if c != nil {
			f.end(c)
		}
	}
	delete(f.members, m.id)
	m.serving, m.next = nil, nil
	f.publish(m)
	f.cfg.Log.Info("cluster removed", "cluster", m.id)
}
