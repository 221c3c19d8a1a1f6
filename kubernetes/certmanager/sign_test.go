package certmanager

import (
	"bytes"
	"crypto/x509"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/issuer-lib/controllers/signer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestGrantedRequestGetsACertificateOfItsNames(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		bundle := h.must(honest())
		certs, err := pki.ParseCertificates(bundle.ChainPEM)
		must(t, err)
		leaf := certs[0]
		if len(certs) != 2 || !slices.Equal(leaf.DNSNames, []string{web}) || len(leaf.URIs) > 0 || leaf.NotAfter.After(time.Now().Add(time.Hour)) {
			t.Errorf("%d certificates, %v, %v, until %s", len(certs), leaf.DNSNames, leaf.URIs, leaf.NotAfter)
		}
		if !bytes.Equal(bundle.CAPEM, h.ca.Bundle().PEM()) {
			t.Error("the roots are others")
		}
		for _, part := range []string{`"kind":"namespace"`, `"namespace":"shop"`, `"object":"uid-1"`, `"verified":"certificate request"`} {
			if !strings.Contains(h.audit.String(), part) {
				t.Errorf("the audit log lacks %s: %s", part, h.audit.String())
			}
		}
	})
}

// The names that a rule gives must be there, and others may be asked for.
// cert-manager renews a certificate at once that lives longer than renewBefore by less than it was
// backdated.
func TestLifetimeIsTheRulesWithTheBackdating(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		for n := range 3 {
			r := honest()
			r.UID, r.Spec.Duration.Duration = types.UID(strconv.Itoa(n)), 48*time.Hour
			certs, err := pki.ParseCertificates(h.must(r).ChainPEM)
			must(t, err)
			leaf := certs[0]
			if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 24*time.Hour || life < 23*time.Hour {
				t.Errorf("it lives for %s", life)
			}
		}
	})
}

func TestRuleWithNamesOfItsOwnGivesAllOfThem(t *testing.T) {
	id := spiffe("spiffe://example.org/ns/bank")
	for name, c := range map[string]struct {
		csr  x509.CertificateRequest
		want string
	}{
		"exactly":         {x509.CertificateRequest{URIs: id, DNSNames: []string{"bank.example.org"}}, "issued"},
		"one more":        {x509.CertificateRequest{URIs: id, DNSNames: []string{"bank.example.org", "a.bank.apps.example.org"}}, "issued"},
		"one is missing":  {x509.CertificateRequest{URIs: id, DNSNames: []string{"a.bank.apps.example.org"}}, "permanent"},
		"no SPIFFE ID":    {x509.CertificateRequest{DNSNames: []string{"bank.example.org"}}, "permanent"},
		"another's ID":    {x509.CertificateRequest{URIs: spiffe("spiffe://example.org/ns/shop"), DNSNames: []string{"bank.example.org"}}, "permanent"},
		"one not allowed": {x509.CertificateRequest{URIs: id, DNSNames: []string{"bank.example.org", "www.example.org"}}, "permanent"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				r := honest()
				r.Namespace, r.Spec.Request = "bank", ratest.CSR(pki.ECDSAP256, &c.csr)
				r.Spec.Usages = append(r.Spec.Usages, "server auth", "client auth")
				_, err := h.try(r, clusterIssuer("ca"))
				h.wants(err, c.want, "")
			})
		})
	}
}

// A certificate that was made as asked, and does not have the usages that the rule demands, would
// stop the rule for all.
func TestRuleThatDemandsUsagesIsOnlyForRequestsOfThem(t *testing.T) {
	for name, usages := range map[string][]cmapi.KeyUsage{
		"none": nil, "server": {"server auth"}, "client": {"client auth"}, "key": {"digital signature"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				r := honest()
				r.Namespace, r.Spec.Usages = "bank", usages
				r.Spec.Request = ratest.CSR(pki.ECDSAP256, &x509.CertificateRequest{URIs: spiffe("spiffe://example.org/ns/bank"), DNSNames: []string{"bank.example.org"}})
				_, err := h.try(r, clusterIssuer("ca"))
				h.wants(err, "permanent", `the rule gives certificates for "both"`)
			})
		})
	}
}

func TestIssuerUsesOnlyAuthoritiesThatListIt(t *testing.T) {
	in := func(namespace string) *request {
		r := honest()
		r.Namespace, r.Spec.Request = namespace, named("a."+namespace+".apps.example.org")
		return r
	}
	for name, c := range map[string]struct {
		namespace, authority string
		cluster              bool
		want                 string
	}{
		"listed":                      {"shop", "ca", false, "issued"},
		"listed by a pattern":         {"team-a", "ca", false, "issued"},
		"not listed":                  {"bank", "ca", false, "issuer"},
		"no such authority":           {"shop", "other", false, "issuer"},
		"no authority":                {"shop", "", false, "issuer"},
		"cluster issuer":              {"shop", "ca", true, "issued"},
		"cluster issuer, not listed":  {"shop", "plain", true, "issuer"},
		"cluster issuer, of no rule":  {"other", "ca", true, "permanent"},
		"pattern matches whole names": {"my-team-a", "ca", false, "issuer"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				one, all := issuerOf(c.authority), clusterIssuer(c.authority)
				one.Namespace = c.namespace
				var err, checked error
				if c.cluster {
					_, err = h.try(in(c.namespace), all)
					checked = h.check(t.Context(), all)
				} else {
					_, err = h.try(in(c.namespace), one)
					checked = h.check(t.Context(), one)
				}
				h.wants(err, c.want, "")
				if (checked != nil) != (c.want == "issuer") || errors.As(checked, &signer.PermanentError{}) {
					t.Errorf("the issuer is checked as %v", checked)
				}
				if c.want != "issued" && h.asked() > 0 {
					t.Error("the CA was asked")
				}
			})
		})
	}
}

// Who may not use an authority does not learn whether there is one.
func TestUnknownAuthoritySoundsLikeOneOfOthers(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		foreign, unknown := issuerOf("ca"), issuerOf("xx")
		foreign.Namespace, unknown.Namespace = "bank", "bank"
		a, b := h.check(t.Context(), foreign).Error(), h.check(t.Context(), unknown).Error()
		if strings.ReplaceAll(a, `"ca"`, `"xx"`) != b {
			t.Errorf("%s\n%s", a, b)
		}
	})
}

// Each error of an engine, as issuer-lib takes it.
func TestErrorsBecomeThoseOfIssuerLib(t *testing.T) {
	for reason, c := range map[ca.Reason]struct{ first, later string }{
		ca.Unknown:         {"pending", "pending"},
		ca.Invalid:         {"pending", "permanent"},
		ca.Denied:          {"pending", "permanent"},
		ca.Unauthenticated: {"issuer", "issuer"},
		ca.RateLimited:     {"pending", "pending"},
		ca.Unavailable:     {"pending", "pending"},
		ca.Aborted:         {"pending", "pending"},
		ca.Internal:        {"pending", "pending"},
		ca.Deadline:        {"pending", "pending"},
		ca.NotConfigured:   {"issuer", "issuer"},
		ca.Unimplemented:   {"issuer", "issuer"},
		ca.Canceled:        {"pending", "pending"},
	} {
		t.Run(reason.String(), func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.ca.Always(catest.Fault{Err: ca.Errorf(reason, "of the CA")})
				r := honest()
				time.Sleep(2 * time.Hour) // as it waited for an authority that was away
				_, err := h.try(r, issuerOf("ca"))
				h.wants(err, c.first, "of the CA")
				for _, step := range []struct {
					after time.Duration
					want  string
				}{{59 * time.Minute, c.first}, {2 * time.Minute, c.later}, {time.Hour, c.later}} {
					time.Sleep(step.after)
					h.wants(h.errorOf(r.UID, ca.Errorf(reason, "of the CA")), step.want, "of the CA")
				}
				if h.asked() < 1 {
					t.Error("the CA was not asked")
				}
			})
		})
	}
}

func TestPendingRequestWaitsAsLongAsTheAuthorityAsks(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		err := h.errorOf("uid-1", &ca.Error{Reason: ca.RateLimited, Message: "wait", RetryAfter: 20 * time.Second})
		if after := pause(err); after < 20*time.Second || after > 30*time.Second {
			t.Errorf("comes back after %s", after)
		}
	})
}

// A CA that is away is asked again for the very same CSR, and the request never fails.
func TestRequestOutlastsAnAuthorityThatIsAway(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unavailable, "away")})
		r := honest()
		for range 300 {
			_, err := h.try(r, issuerOf("ca"))
			h.wants(err, "pending", "")
			time.Sleep(pause(err))
		}
		calls := h.asked()
		if calls < 10 || calls > 330 {
			t.Errorf("%d calls in %s", calls, time.Since(r.CreationTimestamp.Time))
		}
		h.ca.Always(catest.Fault{})
		for range 5 {
			if _, err := h.try(r, issuerOf("ca")); err == nil {
				break
			}
			time.Sleep(time.Minute)
		}
		h.must(r)
		all := h.ca.Requests()
		for _, one := range all {
			if !bytes.Equal(one.CSR, all[0].CSR) {
				t.Fatal("another CSR")
			}
		}
	})
}

func TestIssuerIsNotReadyWhileItsAuthorityCannotSign(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		must(t, h.check(t.Context(), issuerOf("ca")))
		h.ca.Next(1, catest.Fault{Err: ca.Errorf(ca.Unauthenticated, "the token is refused")})
		_, err := h.try(honest(), issuerOf("ca"))
		h.wants(err, "issuer", "the token is refused")
		if err := h.check(t.Context(), clusterIssuer("ca")); err == nil || !strings.Contains(err.Error(), "the token is refused") {
			t.Errorf("checked as %v", err)
		}
		must(t, h.check(t.Context(), issuerOf("plain")))
		time.Sleep(troubleFor)
		must(t, h.check(t.Context(), issuerOf("ca")))
		h.must(honest())
	})
}

// A cache that is late, or a status that the API server did not take, costs no second certificate.
func TestRequestIsAnsweredOnce(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		first := h.must(honest())
		time.Sleep(10 * time.Minute)
		if again := h.must(honest()); !bytes.Equal(again.ChainPEM, first.ChainPEM) || h.asked() != 1 {
			t.Errorf("%d calls, or another certificate", h.asked())
		}
		other := honest()
		other.UID = "uid-2"
		if second := h.must(other); bytes.Equal(second.ChainPEM, first.ChainPEM) || h.asked() != 2 {
			t.Errorf("%d calls, or another's certificate", h.asked())
		}
	})
}

// A certificate that expired before it was delivered is useless.
func TestCertificateThatExpiredUndeliveredIsReplaced(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		first := h.must(honest())
		time.Sleep(time.Hour + time.Minute)
		_, err := h.try(honest(), issuerOf("ca"))
		h.wants(err, "pending", "expired")
		if again := h.must(honest()); bytes.Equal(again.ChainPEM, first.ChainPEM) {
			t.Error("the same certificate")
		}
	})
}

// Without cert-manager's webhook the spec of a request can change.
func TestChangedRequestGetsNoCertificateOfTheOldKey(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Next(1, catest.Fault{Delay: 20 * time.Second})
		_, err := h.try(honest(), issuerOf("ca"))
		h.wants(err, "pending", "")
		changed := honest()
		changed.Spec.Request = named("b.shop.apps.example.org")
		certs, err := pki.ParseCertificates(h.must(changed).ChainPEM)
		must(t, err)
		if !slices.Equal(certs[0].DNSNames, []string{"b.shop.apps.example.org"}) {
			t.Errorf("%v", certs[0].DNSNames)
		}
	})
}
