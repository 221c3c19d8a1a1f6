package istioca

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/ra/share"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Renewals configures which machines renew by the certificate they hold. A chain of renewals begins
// with a certificate that a token obtained which is bound to no pod, and has a bound. All replicas
// keep one record of the certificates that continue chains, and each is written down before it
// is given out: what is not there is refused.
//
// All fields but Longest and Reviewed are required with Identities.
type Renewals struct {
	// Identities are SPIFFE IDs. One that ends in "/*" stands for all below it. Default: none,
	// and no client certificate is asked for.
	Identities []string
	// Longest is how long after the token a chain may go on. Default: 30 days.
	Longest time.Duration
	// Records keep the record for all replicas, in several objects: the chains of an identity are in
	// one of them, by a hash of its name. Another number of objects loses the chains that are
	// then looked for elsewhere.
	Records []share.Store
	// Authorities are those that certificates may be of, and Roots has the roots of one to
	// verify with; none while they are not known. It must not block.
	Authorities []string
	Roots       func(authority string) *pki.Bundle
	// Reviewed reports whether tokens of a cluster that its API server reviews are still taken.
	// It must not block. Default: those of any cluster.
	Reviewed func(cluster string) bool
}

const defaultLongest = 30 * 24 * time.Hour

func (r Renewals) on() bool { return len(r.Identities) > 0 }

func (r *Renewals) setDefaults() {
	r.Identities, r.Authorities, r.Records = slices.Clone(r.Identities), slices.Clone(r.Authorities), slices.Clone(r.Records)
	r.Longest = cmp.Or(r.Longest, defaultLongest)
	if r.Reviewed == nil {
		r.Reviewed = func(string) bool { return true }
	}
}

func (r Renewals) fault() error {
	switch {
	case r.Longest < 0:
		return fmt.Errorf("Config.Renewals.Longest is %s: use more than 0", r.Longest)
	case r.on() && (len(r.Records) == 0 || slices.Contains(r.Records, nil) || r.Roots == nil || len(r.Authorities) == 0):
		return errors.New("Config.Renewals needs Records, Authorities and Roots")
	}
	for _, id := range r.Identities {
		if err := CheckListed(id); err != nil {
			return fmt.Errorf("Config.Renewals.Identities: %w", err)
		}
	}
	return nil
}

// CheckListed returns what is wrong with one of [Renewals.Identities].
func CheckListed(id string) error {
	if below, all := strings.CutSuffix(id, "/*"); all {
		id = below + "/x"
	}
	_, err := pki.ParseSPIFFEID(id)
	return err
}

// lists reports whether a SPIFFE ID is one of Identities.
func (r Renewals) lists(id string) bool {
	return slices.ContainsFunc(r.Identities, func(listed string) bool {
		below, all := strings.CutSuffix(listed, "*")
		return listed == id || all && strings.HasPrefix(id, below)
	})
}

// margin is how far the end of a certificate may be from what was meant: authorities' clocks
// differ, and a call may be held.
func (r Renewals) margin() time.Duration { return min(pki.MaxClockSkew, r.Longest/20) }
