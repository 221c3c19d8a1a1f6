package broker

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// SetBrokers replaces the brokers that are served. Calls of a broker that is no longer among them end,
// and those with a type of references that it may no longer use; all others go on. What a broker has
// used of its limits stays used. An error changes nothing.
func (s *Server) SetBrokers(brokers []Broker) error {
	if err := checkBrokers(brokers, s.resolvers); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.accounts
	s.accounts = map[string]*account{}
	for _, b := range brokers {
		a := was[b.SPIFFEID]
		if a == nil {
			a = newAccount(b.SPIFFEID)
		}
		s.accounts[b.SPIFFEID] = a
		a.permit(slices.Clone(b.References))
	}
	for id, a := range was {
		if s.accounts[id] == nil {
			a.permit(nil)
		}
	}
	return nil
}

func (s *Server) account(id string) *account {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.accounts[id]
}

// authorize accepts the brokers on the list, as it is at the time of the handshake.
func (s *Server) authorize(p tlsconfig.Peer) error {
	s.mu.RLock()
	ids := slices.Collect(maps.Keys(s.accounts))
	s.mu.RUnlock()
	return tlsconfig.SPIFFEID(ids...)(p)
}

// permit replaces the types of references that the broker may use, and ends the calls that use others.
func (a *account) permit(allowed []Reference) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allowed = allowed
	for c := range a.open {
		if !slices.Contains(allowed, c.kind()) {
			c.End(a.refusal(c.kind()))
		}
	}
}

// exceeds reports whether the broker may use a type of references that another one may not.
func (a *account) exceeds(other *account) bool {
	return slices.ContainsFunc(a.types(), func(kind Reference) bool { return other.may(kind) != nil })
}

// types returns the types of references that the broker may use. They are replaced, not changed.
func (a *account) types() []Reference {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allowed
}

// may returns an error if the broker may not use references of a type.
func (a *account) may(kind Reference) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.allowed, kind) {
		return a.refusal(kind)
	}
	return nil
}

func (a *account) refusal(kind Reference) error {
	if len(a.allowed) == 0 {
		return errUnlisted
	}
	return Refuse(WorkloadNotEntitled, "this broker may not use references of type %s", kind)
}

var errUnlisted = status.Error(codes.PermissionDenied, "this broker is not on the list of the agent")
