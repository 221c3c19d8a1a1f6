package program

import (
	"context"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// catchUp is how long the pods of a cluster wait at most that was left behind, and can be reached
// again: writing to ten thousand namespaces takes eight minutes.
const catchUp = 15 * time.Minute

// leaveBehind notes which clusters no new root of the mesh waits for, as they cannot be reached. The
// pods of such a cluster get no certificates until it has the roots: others there would refuse them.
func (t *leaderSession) leaveBehind(clusters []fleet.Status) {
	roots := t.config.Mesh.Roots
	if !roots.Enabled || !t.quorum.Settled() { // what a new leader cannot reach yet is not known
		return
	}
	by := quorum.MeshRoots
	if roots.As == config.AsTrustBundle {
		by = quorum.TrustBundles
	}
	behind := t.engine.Behind(roots.Authority)
	for _, s := range clusters {
		tried, unreachable := t.tried(s.ID), !s.Serving || !s.Away.IsZero() || s.State == fleet.Failed
		switch {
		case !slices.Contains(behind, s.ID):
			if unreachable && !tried && t.quorum.IsLeft(quorum.Place{Authority: roots.Authority, Cluster: s.ID, By: by}) {
				t.log.Error("no new root waits for a cluster any more, as it cannot be reached", "cluster", s.ID, "authority", roots.Authority)
				t.engine.SetBehind(roots.Authority, s.ID, true)
			}
		case unreachable:
			delete(t.returned, s.ID)
		case tried || t.returnedFor(s.ID) >= catchUp:
			t.log.Info("a cluster that was left behind has the roots, and its pods are served", "cluster", s.ID, "authority", roots.Authority)
			t.engine.SetBehind(roots.Authority, s.ID, false)
		}
	}
	for _, id := range behind {
		if !slices.ContainsFunc(clusters, func(s fleet.Status) bool { return s.ID == id }) {
			t.engine.SetBehind(roots.Authority, id, false)
		}
	}
}

// returnedFor returns for how long a cluster that was left behind can be reached again.
func (t *leaderSession) returnedFor(id string) time.Duration {
	if t.returned[id].IsZero() {
		t.returned[id] = time.Now()
	}
	return time.Since(t.returned[id])
}

// tried reports whether the roots were written in each namespace of a cluster that takes them.
func (t *leaderSession) tried(id string) bool {
	t.mu.Lock()
	o := t.clusterRuns[id]
	t.mu.Unlock()
	switch {
	case o == nil || o.wrong != nil:
		return false
	case o.mesh.roots != nil:
		return o.mesh.roots.Tried()
	}
	return o.bundles != nil && o.bundles.Ready() == nil
}

// behind reports whether the roots of the mesh have yet to be written in a cluster.
func (d *door) behind(id string) bool {
	engine, roots := d.engine.Load(), d.of.config.Mesh.Roots
	return engine != nil && roots.Enabled && slices.Contains(engine.Behind(roots.Authority), id)
}

// leftBehind stands for a cluster that lacks the roots of the mesh.
type leftBehind struct{}

// Authenticate implements [authn.Authenticator].
func (leftBehind) Authenticate(context.Context, authn.Credential) (authn.Identity, error) {
	return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "the roots of the mesh have yet to be written in the cluster; retry later")
}
