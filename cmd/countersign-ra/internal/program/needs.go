package program

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/ra"
)

// need is a dependency without which this replica issues nothing, at one door or at all. /readyz, the
// metric, the page and the documents show the same list.
type need struct {
	name   string // in the metric
	effect string // while it is missing
	advice string
	// shared dependencies are the same for all replicas. Once one was there, its absence takes no replica
	// out of the Service: it would take all of them out at once, also for callers whose review is
	// remembered. Clients get an answer with the time of the next attempt in place of none.
	shared bool
	// check returns why it is missing, and nil if it is there, not needed, or unknown.
	check func(s *service) error
}

var needs = []need{
	{
		"audit_log", "nothing is issued", "Make room on the disk of the audit log, or correct the rights to it.",
		false, (*service).auditFault,
	},
	{
		"istio_certificate", "Istio's CA API does not listen", "See its certificate below, the provider that signs it, or its files.",
		false, func(s *service) error { return s.door.listens() },
	},
	{
		"lease", "no request of Kubernetes is worked on", "Check the API server of the home cluster, and this service's right to the Lease.",
		true, (*service).leaseFault,
	},
	{
		"home_cluster", "no request is seen and no token reviewed", "Check the API server of the home cluster, and the permissions of this service's account there.",
		true, (*service).homeFault,
	},
	{
		"providers", "nothing is asked of any CA", "See the last log lines of the providers, and their CAs.",
		true, func(s *service) error { return noneReady(s.providers.Status()) },
	},
	{
		"roots", "all certificates are held back", "A new root is trusted once it is published everywhere: see the trust bundles of each cluster.",
		true, func(s *service) error { return noneTrusted(s.engines()) },
	},
	{
		"quotas", "no CA is asked for the mesh", "Check the API server of the home cluster, and the right to the Lease of shares.",
		true, func(s *service) error { return s.door.quotaFault() },
	},
}

// met remembers which needs were met once, in the order of needs.
type met []atomic.Bool

// state returns the state of all needs.
func (s *service) state() (all []status.Need) {
	for i, n := range needs {
		all = append(all, n.state(s, &s.met[i]))
	}
	return all
}

// state returns the state of the need, and remembers in met that it was met.
func (n need) state(s *service, met *atomic.Bool) status.Need {
	out := status.Need{Name: n.name, Effect: n.effect, Advice: n.advice}
	if err := n.check(s); err != nil {
		out.Error, out.Tolerated = err.Error(), n.shared && met.Load()
	} else {
		met.Store(true)
	}
	return out
}

// ready returns nil while clients should be sent to this replica.
func (s *service) ready() error {
	for _, n := range s.state() {
		if n.Error != "" && !n.Tolerated {
			return errors.New(n.Error)
		}
	}
	return nil
}

// engines are those of this replica that run.
func (s *service) engines() (all []*ra.Engine) {
	if t := s.session.Load(); t != nil {
		all = append(all, t.engine)
	}
	if s.door != nil {
		if e := s.door.engine.Load(); e != nil {
			all = append(all, e)
		}
	}
	return all
}

func (s *service) auditFault() error {
	for _, e := range s.engines() {
		if err := e.AuditFault(); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) leaseFault() error {
	if s.lease == nil {
		return nil
	}
	switch l := s.lease.Status(); {
	case l.Fault != "":
		return fmt.Errorf("the Lease cannot be reached: %s", l.Fault)
	case !l.Leading && l.Holder == "":
		return errors.New("no replica holds the Lease yet")
	}
	return nil
}

// homeFault is about the home cluster's requests on the replica that leads, and about its tokens on
// each that serves a mesh.
func (s *service) homeFault() error {
	var err error
	if s.lease == nil || s.lease.Status().Leading {
		err = errors.New("the term begins")
		if t := s.session.Load(); t != nil {
			err = t.ready(s.config.Cluster.ID)
		}
	}
	if s.door == nil {
		return err
	}
	return cmp.Or(err, s.door.home())
}

// noneReady returns an error if there are providers, and none is ready.
func noneReady(all []overview.Provider) error {
	if len(all) == 0 {
		return nil
	}
	for _, p := range all {
		if p.State == string(pluginhost.Ready) {
			return nil
		}
	}
	return fmt.Errorf("no provider is ready: %s is %s: %s", all[0].Name, all[0].State, cmp.Or(all[0].LastError, "no error so far"))
}

// noneTrusted returns an error if roots are known, and none is trusted. Authorities whose roots come with
// their replies have none before.
func noneTrusted(engines []*ra.Engine) error {
	known := 0
	for _, e := range engines {
		for _, a := range e.Status() {
			known += len(a.Roots)
			for _, root := range a.Roots {
				if root.Phase == "trusted" {
					return nil
				}
			}
		}
	}
	if known == 0 {
		return nil
	}
	return errors.New("no root of any authority is published everywhere")
}
