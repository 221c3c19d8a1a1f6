package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
)

// Shut is a signer whose certificates cannot be written into the requests of a cluster, so that none
// are asked for.
type Shut struct {
	Signer   string `json:"signer"`
	Requests string `json:"requests"` // their kind, in the plural
	// Owners are the namespaces or users concerned; empty: all.
	Owners []string  `json:"owners,omitempty"`
	Since  time.Time `json:"since"`
	// NextTrial is when one request may try again.
	NextTrial time.Time `json:"next_trial"`
	Error     string    `json:"error"`
	// Right is what this service's account may lack; empty if the API server did not name it.
	Right string `json:"right,omitempty"`
}

func (k Cluster) ofShut() (all []problem) {
	for _, s := range k.Shut {
		what := fmt.Sprintf("No certificate can be written into %s of %s in %s", s.Requests, s.Signer, k.ID)
		grade := bad
		if len(s.Owners) > 0 {
			what, grade = what+" for "+strings.Join(s.Owners, ", "), fair
		}
		all = append(all, problem{Grade: grade, What: what, Detail: s.Error, At: s.Since, Do: s.advice()})
	}
	return all
}

func (s Shut) advice() string {
	do := "Check the API server there, and its etcd."
	switch {
	case s.Right != "":
		do = "Give this service's account there the right " + s.Right + ", as deploy/kustomize/ra/rights does."
	case len(s.Owners) > 0:
		do = "Check the API server there, and whether these requests are too large for it."
	}
	return fmt.Sprintf("%s Until then, requests are left pending, and one at a time tries again, from %s on: each trial costs a certificate.", do, daemon.Moment(s.NextTrial))
}

func (t tables) shut(r Report) {
	first := true
	for _, k := range r.Clusters {
		for _, s := range k.Shut {
			if first {
				t.Head("NOT WRITTEN", "CLUSTER", "SIGNER", "FOR", "SINCE", "NEXT TRIAL")
			}
			first = false
			t.Line(s.Requests, k.ID, s.Signer, strings.Join(s.Owners, ", "), daemon.Moment(s.Since), daemon.Moment(s.NextTrial))
		}
	}
}
