package chains

import (
	"fmt"
	"strings"
	"time"
)

// What one object holds. The tenant of a chain is the namespace of its subject, or its user: who may
// create accounts in a namespace must not leave the others without room.
const (
	maxSize = 900 << 10 // as encoded; a ConfigMap takes 1 MiB

	maxChains       = 500 // of one identity
	maxCertificates = 32  // of a chain that have not expired

	roomOfTenant = maxSize / 2     // for all chains of a tenant
	roomToBegin  = maxSize * 3 / 4 // beyond this, chains only go on

	// The most that a chain and a certificate take beside the chain's own texts.
	weightOfChain, weightOfCertificate = 320, 96
)

// MayBegin returns ErrFull if there is no room for another chain. It changes nothing.
func (r *Record) MayBegin(c Chain, now time.Time) error {
	same := 0
	for _, other := range r.Chains {
		if other.Identity == c.Identity && other.good(now) > 0 {
			same++
		}
	}
	if same >= maxChains {
		return fmt.Errorf("%w: %s has %d chains of renewals, %d are allowed", ErrFull, c.Identity, same, maxChains)
	}
	return r.fits(&c, c.weight(now)+weightOfCertificate, roomToBegin, now)
}

// MayContinue returns ErrFull if there is no room for another certificate of a chain of the record. It
// changes nothing.
func (r *Record) MayContinue(c *Chain, now time.Time) error {
	if good := c.good(now); good >= maxCertificates {
		return fmt.Errorf("%w: the chain of renewals has %d", ErrFull, good)
	}
	return r.fits(c, weightOfCertificate, maxSize, now)
}

// fits returns ErrFull if a chain cannot have more bytes in a record that takes so many.
func (r *Record) fits(c *Chain, more, most int, now time.Time) error {
	all, own := more, more
	for _, other := range r.Chains {
		weight := other.weight(now)
		all += weight
		if other.tenant() == c.tenant() {
			own += weight
		}
	}
	switch {
	case own > roomOfTenant:
		return fmt.Errorf("%w: the machines of %s have as much of the record of renewals as they may", ErrFull, c.tenant())
	case all > most:
		return fmt.Errorf("%w: the record of renewals is full", ErrFull)
	}
	return nil
}

func (c *Chain) tenant() string {
	if c.Subject.Namespace == "" {
		return "user " + c.Subject.User
	}
	return "namespace " + c.Subject.Namespace + " of cluster " + c.Subject.Cluster
}

// weight is the most that a chain takes when it is encoded; 0 once all its certificates have expired.
func (c *Chain) weight(now time.Time) int {
	good := c.good(now)
	if good == 0 && len(c.Certificates) > 0 {
		return 0
	}
	s := c.Subject
	weight := weightOfChain + good*weightOfCertificate
	for _, text := range []string{c.Identity, c.Issuer, s.Cluster, s.Namespace, s.ServiceAccount, s.ServiceAccountUID, s.User, s.Verified} {
		weight += encoded(text)
	}
	return weight
}

// encoded is the most bytes of a text in JSON: some characters take six.
func encoded(text string) (n int) {
	for i := range len(text) {
		if b := text[i]; b < ' ' || b > '~' || strings.IndexByte("\"\\<>&", b) >= 0 {
			n += 5
		}
		n++
	}
	return n
}

// good counts the certificates that have not expired.
func (c *Chain) good(now time.Time) (n int) {
	for _, cert := range c.Certificates {
		if !cert.Ends.Before(now) {
			n++
		}
	}
	return n
}
