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
	// usual is how many certificates a machine has that renews at half of their life. Each chain has room
	// for them from its beginning, so that no number of tenants that take all they may stops another's.
	usual = 3

	roomOfTenant = maxSize / 2     // for all chains of a tenant
	roomToBegin  = maxSize * 3 / 4 // beyond this, only a tenant with few chains begins another
	// A tenant has few chains if they take no more than roomOfFew. In the last eighth, chains only go on.
	roomOfFew, roomForFew = maxSize / 96, maxSize * 7 / 8

	// The most that a chain and a certificate take beside the chain's own texts.
	weightOfChain, weightOfCertificate = 320, 96
)

// MayBegin returns ErrFull if there is no room for another chain. A tenant begins none with which its chains
// took more than twice the room that is left then: so several tenants together leave room for others. It
// changes nothing.
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
	own, all := r.size(&c, 1, now)
	few := own <= roomOfFew && all <= roomForFew
	switch {
	case own > 2*(roomToBegin-all) && !few && all > roomToBegin:
		return fmt.Errorf("%w: the record of renewals is full", ErrFull)
	case own > 2*(roomToBegin-all) && !few:
		return fullOf(&c)
	}
	return nil
}

// MayContinue returns ErrFull if there is no room for another certificate of a chain of the record. It
// changes nothing.
func (r *Record) MayContinue(c *Chain, now time.Time) error {
	good := c.good(now)
	if good >= maxCertificates {
		return fmt.Errorf("%w: the chain of renewals has %d", ErrFull, good)
	}
	switch own, all := r.size(c, good+1, now); {
	case own > roomOfTenant:
		return fullOf(c)
	case all > maxSize:
		return fmt.Errorf("%w: the record of renewals is full", ErrFull)
	}
	return nil
}

func fullOf(c *Chain) error {
	return fmt.Errorf("%w: the machines of %s have as much of the record of renewals as they may", ErrFull, c.tenant())
}

// size returns the bytes that the chains of a chain's tenant and all chains take, if that chain has so many
// certificates.
func (r *Record) size(c *Chain, certificates int, now time.Time) (own, all int) {
	all = c.weight(certificates)
	own = all
	for _, other := range r.Chains {
		good := other.good(now)
		if other == c || good == 0 { // it is forgotten
			continue
		}
		weight := other.weight(good)
		all += weight
		if other.tenant() == c.tenant() {
			own += weight
		}
	}
	return own, all
}

func (c *Chain) tenant() string {
	if c.Subject.Namespace == "" {
		return "user " + c.Subject.User
	}
	return "namespace " + c.Subject.Namespace + " of cluster " + c.Subject.Cluster
}

// weight is the most that a chain takes when it is encoded, with so many certificates or the usual number.
func (c *Chain) weight(certificates int) int {
	s := c.Subject
	weight := weightOfChain + max(certificates, usual)*weightOfCertificate
	for _, text := range []string{
		c.Identity, c.Issuer, s.Cluster, s.Namespace, s.ServiceAccount, s.ServiceAccountUID, s.Pod, s.PodUID, s.Node, s.NodeUID, s.User, s.Verified,
	} {
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
