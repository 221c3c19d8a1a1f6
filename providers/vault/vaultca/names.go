package vaultca

import (
	"context"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// CertifiesNames implements [ca.NameCertifier]. It is [ca.Invalid] with Verbatim, which
// certifies the CSR's names. Whether the role allows it, [Settings.ValidateOnline] asks.
func (c *CA) CertifiesNames(context.Context) error {
	if c.settings.Verbatim {
		return ca.Errorf(ca.Invalid, "verbatim is set: sign-verbatim certifies the names of the CSR")
	}
	return nil
}

// requested are the names of a request.
type requested struct {
	names    pki.Identity
	repeated bool   // by the CSR
	role     string // that signs
}

// namesOf returns the names of the request, which may be others than those of the CSR only
// where a role signs.
func (s Settings) namesOf(req ca.SignRequest) (requested, error) {
	names, err := pki.RequestedIdentity(req.SubjectID, req.DNSNames, req.IPAddresses)
	if err != nil {
		return requested{}, ca.Errorf(ca.Invalid, "the request: %w", err)
	}
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return requested{}, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	own, err := pki.IdentityOfCSR(csr)
	repeated := err == nil && own.Equal(names) && nameless(csr.Subject.CommonName, names)
	if s.Verbatim && !repeated {
		return requested{}, ca.Errorf(ca.Invalid, "the CSR has other names than the request, and sign-verbatim certifies those of the CSR: unset verbatim and use a role with use_csr_sans=false")
	}
	return requested{names, repeated, s.Role}, nil
}

// nameless reports whether a common name adds no name.
func nameless(common string, names pki.Identity) bool {
	return common == "" || slices.Contains(names.Names(), common)
}

// check refuses a chain whose leaf has the names of a CSR that has others than the request:
// a role takes them from the CSR by default.
func (r requested) check(chain []byte) error {
	if r.repeated { // then the host judges how closely they fit
		return nil
	}
	certs, _, err := pki.UsableCertificates(chain)
	if err != nil {
		return ca.Errorf(ca.Internal, "the reply's chain: %w", err)
	}
	got, err := pki.IdentityOf(certs[0])
	if err != nil || !got.Equal(r.names) || !nameless(certs[0].Subject.CommonName, r.names) {
		return ca.Errorf(ca.Invalid, "role %q takes names from the CSR, which has others than the request: write it with use_csr_sans=false and use_csr_common_name=false", r.role)
	}
	return nil
}
