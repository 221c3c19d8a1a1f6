package conformance

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func nameChecks() []Check {
	// What is wrong with every certificate is judged elsewhere.
	good := []string{"META-08", "SIGN-01", "SIGN-02", "SIGN-04", "SIGN-08", "SIGN-12", "SIGN-18", "SIGN-20", "FAULT-05"}
	judged := slices.Clip(append(good, "DENY-05"))
	return []Check{
		{"NAME-01", RequestNames, "For a CSR without names, it certifies the name of the request and the key of the CSR.", "A kubelet's CSR is empty: it proves possession of the key and nothing else.", good, nameOfEmptyCSR},
		{"NAME-02", RequestNames, "No name of the CSR is certified that the request lacks, and no common name.", "The sender of a CSR writes into it what it likes.", good, namesOfCSRLose},
		{"NAME-03", RequestNames, "For a CSR without names, it certifies every DNS name and IP address of the request.", "A missing name is an outage for those who call it.", []string{"NAME-01"}, everyNameIsThere},
		{"NAME-04", RequestNames, "It rejects a request without names as invalid, whatever names the CSR has.", "Otherwise a caller without rights to any name gets those it wrote itself.", good, namelessIsInvalid},
		{"NAME-05", RequestNames, "For a CSR without names, the leaf ends at most 5 minutes later than requested, unless the kit declares a fixed lifetime.", "The lifetime is the request's, too.", []string{"NAME-01"}, emptyCSRLivesAsAsked},
		{"NAME-06", RequestNames, "It rejects the kit's refused identity as denied or invalid, also with a CSR for a good one.", "A policy must judge the names that it certifies.", judged, strangerBehindGoodCSR},
	}
}

// foreignRequest returns a request for names with a CSR of another template.
func (s *Session) foreignRequest(names Names, template *x509.CertificateRequest) (ca.SignRequest, crypto.PublicKey, pki.Identity, error) {
	id, err := pki.NewIdentity(names.SPIFFEID, names.DNSNames, names.IPAddresses)
	if err != nil {
		return ca.SignRequest{}, nil, id, fmt.Errorf("the kit's names: %w", err)
	}
	key, err := newKey(pki.ECDSAP256)
	if err != nil {
		return ca.SignRequest{}, nil, id, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return ca.SignRequest{}, nil, id, err
	}
	return s.asking(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), id), key.Public(), id, nil
}

// certified has names certified for a CSR of another template, and checks that the leaf has
// its key and exactly these names.
func (s *Session) certified(ctx context.Context, names Names, template *x509.CertificateRequest, ttl time.Duration) (*x509.Certificate, error) {
	i, err := s.having(ctx, wire.NamesFromRequest)
	if err != nil {
		return nil, err
	}
	req, key, want, err := s.foreignRequest(names, template)
	if err != nil {
		return nil, err
	}
	req.TTL, req.DNSNames = ttl, slices.Clone(req.DNSNames)
	ctx, cancel := s.call(ctx)
	defer cancel()
	cert, err := i.CSRSign(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("it answers %w", err)
	}
	if err := hasKey(cert, key); err != nil {
		return nil, err
	}
	leaf := newReply(req, key, cert).leaf()
	return leaf, hasNames(leaf, want)
}

func hasNames(leaf *x509.Certificate, want pki.Identity) error {
	got, err := pki.IdentityOf(leaf)
	switch common := leaf.Subject.CommonName; {
	case err != nil:
		return err
	case !got.Equal(want):
		return fmt.Errorf("asked for %q, it has %q", want, got)
	case common == strangeName:
		return fmt.Errorf("its common name is the CSR's, %q", common)
	}
	return nil
}

// strangeName is a name that no request has.
const strangeName = "stranger.countersign.invalid"

// strange is the template of a CSR with names that are not requested.
func strange() *x509.CertificateRequest {
	return &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: strangeName}, DNSNames: []string{strangeName},
		URIs: []*url.URL{{Scheme: "spiffe", Host: strangeName, Path: "/stranger"}},
	}
}

// first is one name.
func (n Names) first() Names {
	switch {
	case n.SPIFFEID != "":
		return Names{SPIFFEID: n.SPIFFEID}
	case len(n.DNSNames) > 0:
		return Names{DNSNames: n.DNSNames[:1]}
	}
	return Names{IPAddresses: n.IPAddresses[:1]}
}

func nameOfEmptyCSR(ctx context.Context, s *Session) error {
	_, err := s.certified(ctx, s.Kit.Identity.first(), &x509.CertificateRequest{}, time.Duration(s.Kit.TTL))
	return err
}

func namesOfCSRLose(ctx context.Context, s *Session) error {
	_, err := s.certified(ctx, s.Kit.Identity.first(), strange(), time.Duration(s.Kit.TTL))
	return err
}

func everyNameIsThere(ctx context.Context, s *Session) error {
	if n := s.Kit.Identity; len(n.DNSNames) < 2 && len(n.IPAddresses) < 2 {
		return needs("identity", " with two DNS names or two IP addresses")
	}
	_, err := s.certified(ctx, s.Kit.Identity, &x509.CertificateRequest{}, time.Duration(s.Kit.TTL))
	return err
}

func namelessIsInvalid(ctx context.Context, s *Session) error {
	if _, err := s.having(ctx, wire.NamesFromRequest); err != nil {
		return err
	}
	return mustBe(s.refusal(ctx, func(req *ca.SignRequest) { req.SubjectID, req.DNSNames, req.IPAddresses = "", nil, nil }), ca.Invalid)
}

func emptyCSRLivesAsAsked(ctx context.Context, s *Session) error {
	if s.fixedLifetime() {
		return NotRun("the kit or the metadata declare a fixed lifetime")
	}
	ttl := time.Duration(s.Kit.TTL) / 2
	end := time.Now().Add(ttl + pki.MaxClockSkew)
	leaf, err := s.certified(ctx, s.Kit.Identity.first(), &x509.CertificateRequest{}, ttl)
	if err == nil && leaf.NotAfter.After(end.Add(time.Duration(s.Kit.CallTimeout))) {
		return fmt.Errorf("asked for %s, it ends %s", ttl, clock.Stamp(leaf.NotAfter))
	}
	return err
}

func strangerBehindGoodCSR(ctx context.Context, s *Session) error {
	if _, err := s.having(ctx, wire.NamesFromRequest); err != nil {
		return err
	}
	if s.Kit.RefusedIdentity.none() {
		return needs("refused_identity", "")
	}
	bad, _, err := s.Request(s.Kit.RefusedIdentity, pki.ECDSAP256)
	if err != nil {
		return err
	}
	err = s.refusal(ctx, func(req *ca.SignRequest) {
		req.SubjectID, req.DNSNames, req.IPAddresses = bad.SubjectID, slices.Clone(bad.DNSNames), slices.Clone(bad.IPAddresses)
	})
	if err == nil {
		return errors.New("it signs that")
	}
	return mustBe(err, ca.Denied, ca.Invalid)
}
