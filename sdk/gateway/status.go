package gateway

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Status is the state of a client for operators. It contains no key.
type Status struct {
	Address string `json:"address"`
	// Connected reports whether there is a stream, and Since when that changed; zero
	// before the first attempt.
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"`
	// Credential is the credential of the last stream: certificate or token.
	Credential string `json:"credential,omitempty"`
	// Failure is the last failure, nil after a success.
	Failure *secret.Failure `json:"failure,omitempty"`
	Names   []Name          `json:"names,omitempty"` // sorted
}

// Name is a name that is watched, or was until recently.
type Name struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // one of States
	Watchers int       `json:"watchers"`
	Version  string    `json:"version,omitempty"`
	Since    time.Time `json:"since,omitzero"`     // when it was received
	NotAfter time.Time `json:"not_after,omitzero"` // of its certificate, or of its last root
	// Refused is why a newer version was rejected.
	Refused string `json:"refused,omitempty"`
}

// The states of a name.
const (
	Held    = "held"
	Waiting = "waiting" // the service has not answered yet
	Unknown = "unknown" // to the service, or not allowed for this gateway
)

// States lists all states.
var States = []string{Held, Waiting, Unknown}

// Status returns the current state.
func (c *Client) Status() Status {
	c.mu.Lock()
	status := c.status
	c.mu.Unlock()
	status.Address, status.Names = c.cfg.Address, c.list()
	return status
}

func (s *store) list() []Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Name, 0, len(s.entries))
	for name, e := range s.entries {
		n := Name{Name: name, State: Waiting, Watchers: e.watchers.Len(), Since: e.since, NotAfter: e.notAfter, Refused: e.fault}
		switch {
		case e.unknown:
			n.State = Unknown
		case e.held != nil:
			n.State, n.Version = Held, e.held.Version
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Name) int { return strings.Compare(a.Name, b.Name) })
	return all
}
