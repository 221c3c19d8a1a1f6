package spiresecret

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/internal/version"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	maxSVIDs = 1000 // in one reply
	maxChain = 10   // certificates, as in package pki
	maxRoots = pki.MaxCertificates

	// latestRenewal is the least that SPIRE's agent leaves of a long life: its
	// availability_target is 24 hours at least. Without it, it renews at half of the life.
	latestRenewal = 24 * time.Hour

	tooEarly = "not-before" // the check that passes with time
)

// read returns what the reply has for the Spec, verified, and the roots that it leaves out.
func (s Spec) read(reply *workloadv1.X509SVIDResponse, now time.Time) (item *secret.Item, useless []error, err error) {
	if n := len(reply.GetSvids()); n > maxSVIDs {
		return nil, nil, failed("format", "the reply has %d X.509-SVIDs, %d are allowed", n, maxSVIDs)
	}
	i := slices.IndexFunc(reply.GetSvids(), s.selects)
	if s.Kind == secret.TrustBundle {
		return s.readBundle(reply, i, now)
	}
	if i < 0 {
		return nil, nil, s.missing(reply)
	}
	return s.readPair(reply.GetSvids()[i], now)
}

// missing describes what the reply has instead of what the Spec selects.
func (s Spec) missing(reply *workloadv1.X509SVIDResponse) error {
	var there []string
	for _, svid := range reply.GetSvids() {
		if len(there) == 5 {
			there = append(there, "…")
			break
		}
		there = append(there, fmt.Sprintf("%.128q", svid.GetSpiffeId()+strings.TrimSuffix(" "+svid.GetHint(), " ")))
	}
	return ca.Errorf(ca.Denied, "the Workload API does not send %s; it sends %d X.509-SVIDs (%s)", s, len(reply.GetSvids()), strings.Join(there, ", "))
}

func (s Spec) readBundle(reply *workloadv1.X509SVIDResponse, i int, now time.Time) (*secret.Item, []error, error) {
	der, federated := reply.GetFederatedBundles()[idOf(s.TrustDomain)]
	switch {
	case i >= 0:
		der = reply.GetSvids()[i].GetBundle()
	case s.TrustDomain == "":
		return nil, nil, s.missing(reply)
	case !federated:
		return nil, nil, ca.Errorf(ca.Denied, "the Workload API sends no trust bundle of %s", s)
	}
	roots, useless, err := readRoots(der, now)
	if err != nil {
		return nil, nil, err
	}
	item := secret.NewTrustBundle(s.Name, AuthorityName, roots)
	item.Issued = now
	return item, useless, nil
}

// readRoots reads the roots of a trust domain. It leaves out those that have ended and those that
// are of no use, so that a new root arrives beside them.
func readRoots(der []byte, now time.Time) (roots *pki.Bundle, useless []error, err error) {
	certs, useless, err := parseUsable(der, maxRoots)
	if err != nil {
		return nil, nil, failed("roots", "the trust bundle: %v", err)
	}
	certs = slices.DeleteFunc(certs, func(cert *x509.Certificate) bool {
		fit := cert.BasicConstraintsValid && cert.IsCA // a leaf among the roots would itself be trusted
		if !fit {
			useless = append(useless, fmt.Errorf("%.128q is not a CA certificate", cert.Subject.String()))
		}
		return !fit
	})
	roots = pki.NewBundle(certs...).Filter(func(cert *x509.Certificate) bool { return !now.After(cert.NotAfter) })
	if roots.Len() == 0 && len(useless) > 0 {
		return nil, nil, failed("roots", "the trust bundle has no root that can be used: %v", useless[0])
	}
	if roots.Len() == 0 {
		return nil, nil, failed("roots", "the trust bundle has no root that is valid now")
	}
	return roots, useless, nil
}

func (s Spec) readPair(svid *workloadv1.X509SVID, now time.Time) (item *secret.Item, useless []error, err error) {
	certs, err := parse(svid.GetX509Svid(), maxChain)
	if err != nil {
		return nil, nil, failed("format", "the chain: %v", err)
	}
	// The error never quotes the key.
	key, err := pki.ParseKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: svid.GetX509SvidKey()}))
	if err != nil {
		return nil, nil, failed("key", "the key: %v", err)
	}
	identity, err := identityOf(certs[0], svid.GetSpiffeId())
	if err != nil {
		return nil, nil, err
	}
	roots, useless, err := readRoots(svid.GetBundle(), now)
	if err != nil {
		return nil, nil, err
	}
	chain, err := pki.Check{Key: key.Public(), Identity: identity, Roots: roots, Now: now}.Chain(pki.EncodeCertificates(certs))
	if err != nil {
		return nil, nil, err
	}
	if begins := chain.Leaf.NotBefore; begins.After(now) {
		return nil, nil, failed(tooEarly, "the certificate begins at %s", clock.Stamp(begins))
	}
	encoded, err := pki.EncodeKey(key)
	if err != nil {
		return nil, nil, failed("key", "%v", err)
	}
	return s.pair(chain, encoded, now), useless, nil
}

// identityOf returns the names of the leaf, whose SPIFFE ID must be the one that the reply
// selected it by.
func identityOf(leaf *x509.Certificate, id string) (pki.Identity, error) {
	identity, err := pki.IdentityOf(leaf)
	switch {
	case err != nil:
		return pki.Identity{}, failed("names", "%v", err)
	case identity.SPIFFEID == nil || identity.SPIFFEID.String() != id:
		return pki.Identity{}, failed("names", "the certificate of %.256q names %.256q", id, identity.String())
	}
	return identity, nil
}

func (s Spec) pair(chain *pki.Chain, key []byte, now time.Time) *secret.Item {
	leaf := chain.Leaf
	return &secret.Item{
		Name: s.Name, Kind: secret.KeyPair, Version: version.Of(chain.PEM), Chain: chain.PEM, Key: key,
		Identity: chain.Identity, Serial: leaf.SerialNumber.Text(16), Fingerprint: pki.Fingerprint(leaf),
		NotBefore: leaf.NotBefore, NotAfter: chain.Ends, RenewAt: renewalOf(leaf.NotBefore, chain.Ends), Issued: now,
		Authority: AuthorityName, RootFingerprint: pki.Fingerprint(chain.Root),
	}
}

// renewalOf returns when the successor should be there at the latest. The Workload API sends
// it unasked; the time is for the alert that it did not.
func renewalOf(begins, ends time.Time) time.Time {
	return clock.Later(begins.Add(ends.Sub(begins)/2), ends.Add(-latestRenewal))
}

// parse reads certificates that stand one after another, DER.
func parse(der []byte, most int) ([]*x509.Certificate, error) {
	certs, useless, err := parseUsable(der, most)
	if err == nil && len(useless) > 0 {
		err = useless[0]
	}
	return certs, err
}

// parseUsable leaves out those that cannot be used.
func parseUsable(der []byte, most int) (certs []*x509.Certificate, useless []error, err error) {
	for n := 1; len(der) > 0; n++ {
		if n > most {
			return nil, nil, fmt.Errorf("it has more than %d certificates", most)
		}
		var whole asn1.RawValue
		rest, err := asn1.Unmarshal(der, &whole)
		if err != nil {
			return nil, nil, fmt.Errorf("certificate %d is malformed", n)
		}
		der = rest
		cert, err := pki.ParseCertificate(whole.FullBytes)
		if err != nil {
			useless = append(useless, fmt.Errorf("certificate %d %w", n, err))
			continue
		}
		certs = append(certs, cert)
	}
	if len(certs)+len(useless) == 0 {
		return nil, nil, errors.New("it has no certificate")
	}
	return certs, useless, nil
}

func failed(check, format string, args ...any) error {
	return &pki.CheckError{Check: check, Detail: text.Clean(fmt.Sprintf(format, args...))}
}
