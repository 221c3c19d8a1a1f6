package conformance

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func revocationChecks() []Check {
	told, read := []string{"CRL-01"}, []string{"CRL-02"}
	return []Check{
		{"CRL-01", Revocation, "It returns revocation lists.", "That is the purpose of the ability.", []string{"SET-06", "META-08"}, listsAreTold},
		{"CRL-02", Revocation, "The lists are complete ones with nextUpdate, in PEM blocks X509 CRL, with nothing but CA certificates among them, and 3 MiB at most.", "A set that cannot be parsed is rejected as a whole; a delta list accepts what another one revokes.", told, listsAreRead},
		{"CRL-03", Revocation, "Each list is valid now.", "Proxies refuse all peers of a CA whose list has ended.", read, listsAreCurrent},
		{"CRL-04", Revocation, "One of the lists is signed by the CA that signs leaves.", "Without it, revoked certificates pass, or all peers are refused.", []string{"CRL-02", "SIGN-02", "SIGN-15"}, leavesHaveList},
		{"CRL-05", Revocation, "Two calls return the same lists.", "Each change is sent to every workload.", []string{"CRL-03", "CRL-04"}, listsAreStable},
		{"CRL-06", Revocation, "Without settings it returns not configured.", "The host then sends the settings.", nil, listsUnconfigured},
	}
}

func (s *Session) toldLists(ctx context.Context) ([]byte, error) {
	return s.fetched(ctx, wire.RevocationSource, (*Instance).Revocations)
}

func listsAreTold(ctx context.Context, s *Session) error {
	_, err := s.toldLists(ctx)
	return err
}

func listsAreRead(ctx context.Context, s *Session) error {
	return eachList(ctx, s, func(*x509.RevocationList) error { return nil })
}

// eachList judges every list.
func eachList(ctx context.Context, s *Session, judge func(*x509.RevocationList) error) error {
	text, err := s.toldLists(ctx)
	if err != nil {
		return err
	}
	lists, _, err := pki.ParseCRLs(text)
	for _, list := range lists {
		err = errors.Join(err, judge(list))
	}
	return err
}

func listsAreCurrent(ctx context.Context, s *Session) error {
	return eachList(ctx, s, func(list *x509.RevocationList) error {
		if now := time.Now(); list.ThisUpdate.After(now) || !pki.CRLCurrent(list, now) {
			return fmt.Errorf("that of %q is valid from %s to %s", list.Issuer, clock.Stamp(list.ThisUpdate), clock.Stamp(list.NextUpdate))
		}
		return nil
	})
}

// leavesHaveList takes the issuer from the first reply; a root that is not in it is among the roots.
func leavesHaveList(ctx context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		issuers := r.chain[1:]
		if roots, err := s.rootCertificates(ctx); err == nil { // other checks judge them
			issuers = append(issuers, roots...)
		}
		if roots, err := pki.ParseCertificates(r.cert.Roots); err == nil {
			issuers = append(issuers, roots...)
		}
		var found bool
		err := eachList(ctx, s, func(list *x509.RevocationList) error {
			for _, issuer := range issuers {
				found = found || r.leaf().CheckSignatureFrom(issuer) == nil && pki.SignedCRL(list, issuer)
			}
			return nil
		})
		if err == nil && !found {
			return fmt.Errorf("none is signed by %q", r.leaf().Issuer)
		}
		return err
	})
}

func listsAreStable(ctx context.Context, s *Session) error {
	first, err := s.toldLists(ctx)
	if err != nil {
		return err
	}
	second, err := s.toldLists(ctx)
	if err == nil && string(first) != string(second) {
		return errors.New("the second answer is another one")
	}
	return err
}

func listsUnconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, wire.RevocationSource)
}
