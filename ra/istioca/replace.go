package istioca

import (
	"context"

	"google.golang.org/grpc/codes"
)

// callers are the settings that [Server.Prepare] replaces.
type callers struct {
	Config                 // of which only these are read
	ledger ledger          // of Renewals
	over   context.Context // ends when others are in force, and when the server drains
	end    context.CancelFunc
}

// Prepare checks other settings, and returns what takes over who is served, and what for: Tokens,
// IssuerClusters, Renewals, NodeProxies, CertSigners and HoldNames of a config that is otherwise
// what [New] had. Calls that are in flight then get no certificate by the old ones: their clients
// get an error that asks for a retry. Before it, and after an error, all is as it was.
func (s *Server) Prepare(cfg Config) (take func(), err error) {
	if cfg, err = cfg.checked(); err != nil {
		return nil, err
	}
	return func() { s.take(cfg) }, nil
}

func (s *Server) take(cfg Config) {
	next := &callers{Config: cfg, ledger: newLedger(cfg.Renewals.Records, s.cfg.Times.Lookup, s.cfg.Log)}
	next.over, next.end = context.WithCancel(s.ending)
	if old := s.callers.Swap(next); old != nil {
		old.end()
	}
}

// changed is the fault of a call that began under other settings.
func changed() *fault {
	return faultf(Unavailable, codes.Unavailable, "the settings have changed meanwhile; retry")
}
