package conformance

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// naming has requests changed whose CSR has other names than they, or none.
func naming(change func(csr *x509.CertificateRequest, req *ca.SignRequest)) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			csr, err := pki.ParseCSR(req.CSR)
			if err == nil && (len(csr.DNSNames) != len(req.DNSNames) || len(csr.URIs) == 0 || csr.URIs[0].String() != req.SubjectID) {
				req.DNSNames, req.IPAddresses = slices.Clone(req.DNSNames), slices.Clone(req.IPAddresses)
				change(csr, &req)
			}
			return a.goodSign(ctx, req)
		}
	})
}

// copyingCommonName takes the common name of the CSR.
func copyingCommonName() func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if csr, err := pki.ParseCSR(req.CSR); err == nil && csr.Subject.CommonName == strangeName {
				a.Next(1, catest.Fault{Break: func(d *catest.Draft) { d.Leaf.Subject = csr.Subject }})
			}
			return a.goodSign(ctx, req)
		}
	})
}

func nameMutants() map[string]func() wire.Provider {
	return map[string]func() wire.Provider{
		"NAME-01": naming(func(csr *x509.CertificateRequest, req *ca.SignRequest) {
			if len(csr.URIs) == 0 {
				req.SubjectID = "spiffe://example.org/nobody"
			}
		}),
		"NAME-02": naming(func(csr *x509.CertificateRequest, req *ca.SignRequest) {
			if req.SubjectID != "" && slices.Contains(csr.DNSNames, strangeName) {
				req.DNSNames = append(req.DNSNames, csr.DNSNames...)
			}
		}),
		"NAME-02/common-name": copyingCommonName(),
		"NAME-03": naming(func(_ *x509.CertificateRequest, req *ca.SignRequest) {
			req.DNSNames = req.DNSNames[:min(1, len(req.DNSNames))]
		}),
		"NAME-03/addresses": naming(func(_ *x509.CertificateRequest, req *ca.SignRequest) {
			req.IPAddresses = req.IPAddresses[:min(1, len(req.IPAddresses))]
		}),
		"NAME-04": naming(func(csr *x509.CertificateRequest, req *ca.SignRequest) {
			if req.SubjectID == "" && len(csr.URIs) > 0 {
				req.SubjectID = csr.URIs[0].String()
			}
		}),
		"NAME-05": naming(func(csr *x509.CertificateRequest, req *ca.SignRequest) {
			if len(csr.URIs) == 0 {
				req.TTL = 24 * time.Hour
			}
		}),
		"NAME-06": naming(func(csr *x509.CertificateRequest, req *ca.SignRequest) {
			if len(csr.URIs) > 0 && strings.Contains(req.SubjectID, "stranger") {
				req.SubjectID = csr.URIs[0].String()
			}
		}),
	}
}

// advising has advice changed.
func advising(change func(*ca.RenewalInfo)) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.advise = func(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
			info, err := a.goodAdvice(ctx, leaf)
			if err == nil {
				change(&info)
			}
			return info, err
		}
	})
}

func renewalMutants() map[string]func() wire.Provider {
	failing := func(wrong error) func() wire.Provider {
		return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
			a.advise = func(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
				info, err := a.goodAdvice(ctx, leaf)
				if err == nil == (wrong == ca.ErrUnavailable) { //nolint:errorlint // which of the two
					err = wrong
				}
				return info, err
			}
		})
	}
	return map[string]func() wire.Provider{
		"RENEW-01":      failing(ca.ErrUnavailable),
		"RENEW-02":      advising(func(i *ca.RenewalInfo) { i.End = i.Start }),
		"RENEW-03":      advising(func(i *ca.RenewalInfo) { i.Start, i.End = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour) }),
		"RENEW-03/late": advising(func(i *ca.RenewalInfo) { i.End = i.End.Add(time.Hour) }),
		"RENEW-04":      advising(func(i *ca.RenewalInfo) { i.Explanation = "javascript:alert(1)" }),
		"RENEW-05":      advising(func(i *ca.RenewalInfo) { i.RetryAfter = time.Second }),
		"RENEW-06":      failing(provider.Errorf(provider.Internal, "no such certificate")),
	}
}

// listing has the revocation lists changed.
func listing(change func(a *authority) []byte) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.revoke = func(context.Context) ([]byte, error) { return change(a), nil }
	})
}

func revocationMutants() map[string]func() wire.Provider {
	stranger, hour := catest.NewCA(catest.Options{}), time.Hour
	once := func(list catest.CRL) func(a *authority) []byte {
		return func(a *authority) []byte { return bytes.Join(a.CRLs(list), nil) }
	}
	return map[string]func() wire.Provider{
		"CRL-01": authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
			a.revoke = func(context.Context) ([]byte, error) { return nil, ca.ErrUnavailable }
		}),
		"CRL-02": listing(func(*authority) []byte { return []byte("<html>") }),
		"CRL-02/key": listing(func(a *authority) []byte {
			return append(once(catest.CRL{})(a), "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"...)
		}),
		"CRL-03":        listing(once(catest.CRL{Number: 1, ThisUpdate: time.Now().Add(-2 * hour), NextUpdate: time.Now().Add(-hour)})),
		"CRL-03/future": listing(once(catest.CRL{Number: 1, ThisUpdate: time.Now().Add(hour), NextUpdate: time.Now().Add(2 * hour)})),
		"CRL-04":        listing(func(*authority) []byte { return bytes.Join(stranger.CRLs(catest.CRL{Number: 1}), nil) }),
		"CRL-04/root":   listing(func(a *authority) []byte { return a.CRLs(catest.CRL{Number: 1})[0] }),
		"CRL-05": listing(func(a *authority) []byte {
			return bytes.Join(a.CRLs(catest.CRL{Number: time.Now().UnixNano()}), nil)
		}),
	}
}

// Where settings leave the names to the CSR, nothing is judged by those of the request.
func TestNamesThatSettingsLeaveToTheCSRAreNotJudged(t *testing.T) {
	kit := goodKit()
	kit.AbilitiesOff = []string{wire.NamesFromRequest.String()}
	csrDecides := naming(func(csr *x509.CertificateRequest, req *ca.SignRequest) {
		req.SubjectID, req.DNSNames = "", csr.DNSNames
	})
	for _, r := range runAll(t, kit, OverWire(csrDecides)) {
		if r.Outcome == Failed || r.Level == RequestNames && r.Outcome != Unrun {
			t.Errorf("%s %s: %s", r.ID, r.Outcome, r.Seen)
		}
	}
}
