package status

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// Istio is the state of the door.
type Istio struct {
	Address string `json:"address"`
	// NotReady is why no call is served; empty if they are.
	NotReady string `json:"not_ready,omitempty"`
	// Certificate is the door's own.
	Certificate Certificate `json:"certificate"`
	// Calls and Outcomes count since the start.
	Calls    map[istioca.Result]uint64 `json:"calls"`
	Outcomes []Outcome                 `json:"outcomes,omitempty"`
	// Authorities are those of the door's engine: its queues, rates and roots are not the
	// leader's.
	Authorities []Authority `json:"authorities,omitempty"`
	Dangerous   []string    `json:"dangerous,omitempty"`
	// UnknownClusters are clusters of its settings that are not known.
	UnknownClusters []UnknownReference `json:"unknown_clusters,omitempty"`
	// Renewals are those of machines without a token; nil if there are none.
	Renewals *Renewals `json:"renewals,omitempty"`
}

// Renewals is the state of the record of renewals.
type Renewals struct {
	// Chains are those of the record when it was last needed.
	Chains int `json:"chains"`
	// Error is why it could not be used; empty if it could.
	Error string `json:"error,omitempty"`
	// Copied is when a machine's certificate was last presented after its successor.
	Copied time.Time `json:"copied,omitzero"`
}

// Outcome counts what came of a rule's requests. One without a rule was refused before one
// was found.
type Outcome struct {
	Rule   string `json:"rule,omitempty"`
	Result string `json:"result"`
	Count  uint64 `json:"count"`
}

// Certificate is the state of the certificate. It has no key.
type Certificate struct {
	// Fingerprint and the times are zero while there is none; one that has expired is shown.
	Fingerprint string    `json:"fingerprint,omitempty"`
	NotAfter    time.Time `json:"not_after,omitzero"`
	RenewAt     time.Time `json:"renew_at,omitzero"`
	// Error is why the last attempt failed; empty after a success.
	Error  string    `json:"error,omitempty"`
	Failed time.Time `json:"failed,omitzero"`
}

// UnknownReference is an unknown cluster that a setting names: its name is misspelled, or its
// kubeconfig is still to come. So it is not an error, and must not pass in silence either.
type UnknownReference struct {
	Setting string `json:"setting"`
	Cluster string `json:"cluster"`
}

func (r *Istio) problems() (all []problem) {
	if r == nil {
		return nil
	}
	if r.NotReady != "" {
		all = append(all, problem{Grade: bad, What: "Istio's CA API is not served by this replica", Detail: r.NotReady, Do: "See the certificate below, its provider, and the API server of the home cluster."})
	}
	if c := r.Certificate; c.Error != "" && r.NotReady == "" {
		all = append(all, problem{Grade: fair, What: "The certificate of Istio's CA API is not renewed", Detail: c.Error, At: c.Failed, Do: "The old one is used to its end. See the provider, or the files."})
	}
	for _, why := range r.Dangerous {
		all = append(all, problem{Grade: bad, What: "An authority is not asked for a mesh, as an API server trusts it with its API", Detail: why, Do: "Calls get an error that asks for a retry. Use an authority that no API server trusts as a client CA."})
	}
	for _, one := range r.UnknownClusters {
		all = append(all, one.problem())
	}
	return append(append(all, r.Renewals.problems()...), ofAuthorities(r.Authorities)...)
}

// toldFor is how long a copied certificate is reported.
const toldFor = 24 * time.Hour

func (r *Renewals) problems() (all []problem) {
	if r == nil {
		return nil
	}
	if r.Error != "" {
		all = append(all, problem{Grade: bad, What: "Machines cannot renew by their certificates", Detail: r.Error, Do: "Check the API server of the home cluster. A record that is of no use is never replaced: restore the ConfigMap from a backup, or delete it and give each machine a token."})
	}
	if time.Since(r.Copied) < toldFor {
		all = append(all, problem{Grade: bad, What: "A machine's certificate was copied", At: r.Copied, Do: "The audit log names the machine. Neither renews any more: find out who has the copy, then give the machine a token."})
	}
	return all
}

// Istio prints what the door does.
func (t tables) istio(r *Istio) {
	if r == nil {
		return
	}
	t.Head("ISTIO'S CA API", "CERTIFICATE ENDS", "CALLS")
	var calls []string
	for _, result := range slices.Sorted(maps.Keys(r.Calls)) {
		calls = append(calls, string(result)+" "+strconv.FormatUint(r.Calls[result], 10))
	}
	t.Line(r.Address, daemon.Moment(r.Certificate.NotAfter), strings.Join(calls, ", "))
	if r.Renewals != nil {
		t.Head("RENEWALS WITHOUT A TOKEN", "ERROR")
		t.Line(strconv.Itoa(r.Renewals.Chains), r.Renewals.Error)
	}
	t.outcomes(r.Outcomes)
	t.authorities(Report{Authorities: r.Authorities})
	t.roots(Report{Authorities: r.Authorities})
}

func (t tables) outcomes(all []Outcome) {
	for i, o := range all {
		if i == 0 {
			t.Head("RULE OF ISTIO'S CA API", "RESULT", "COUNT")
		}
		t.Line(o.Rule, o.Result, strconv.FormatUint(o.Count, 10))
	}
}

func (s UnknownReference) problem() problem {
	return problem{
		Grade: fair, What: fmt.Sprintf("%s names %s, and no such cluster is known", s.Setting, s.Cluster),
		Do: "This entry matches no known cluster. Correct the name, or add the cluster's kubeconfig: it counts at once.",
	}
}
