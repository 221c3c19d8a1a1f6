package status

// Need is the state of a dependency without which a replica issues nothing, at one door or at all.
type Need struct {
	Name string `json:"name"`
	// Error is why it is missing; empty if it is there, not needed, or unknown.
	Error string `json:"error,omitempty"`
	// Tolerated is true if the replica stays ready without it, as all replicas have the same one.
	Tolerated bool   `json:"tolerated,omitempty"`
	Effect    string `json:"effect"` // while it is missing
	Advice    string `json:"-"`      // to operators
}

// ofNeeds returns a problem for each missing dependency that no other problem names.
func (r Report) ofNeeds() (all []problem) {
	for _, n := range r.Needs {
		if n.Error == "" || n.Error == r.NotReady || r.Istio != nil && n.Error == r.Istio.NotReady {
			continue
		}
		all = append(all, problem{Grade: bad, What: "A dependency is missing: " + n.Name + ": " + n.Effect, Detail: n.Error, Do: n.Advice})
	}
	return all
}
