package googleca

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// other asks for names with a CSR of other names, as a registration authority does.
func other(t *testing.T) ca.SignRequest {
	t.Helper()
	req, _ := testkit.Request(t, webID, "admin.shop.svc")
	req.SubjectID, req.DNSNames, req.IPAddresses = webID+"2", []string{"web.shop.svc", "www.shop.svc"}, []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	req.Token = theToken
	return req
}

func TestNamesOfTheRequestAreSentWhereTheCSRHasOthers(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := server.open(t, server.settings())
	req := other(t)
	cert, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCertificates(cert.Chain)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{webID + "2", "web.shop.svc", "www.shop.svc", "192.0.2.7"}
	if got, err := pki.IdentityOf(certs[0]); err != nil || !slices.Equal(got.Names(), want) {
		t.Errorf("it has %v, %v", got.Names(), err)
	}
	if order := server.last(t).order.GetCertificate(); order.GetPemCsr() != "" || order.GetConfig().GetPublicKey() == nil {
		t.Errorf("the order is %v", order)
	}
	if err := c.CertifiesNames(t.Context()); err != nil {
		t.Error(err)
	}
}

// A pool that signs CSRs alone goes on serving agents.
func TestCSRWithTheNamesOfTheRequestIsSentItself(t *testing.T) {
	t.Parallel()
	server := start(t)
	req, _ := testkit.Request(t, webID, "web.shop.svc")
	req.Token = theToken
	if _, err := server.open(t, server.settings()).CSRSign(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if order := server.last(t).order.GetCertificate(); order.GetPemCsr() != string(req.CSR) {
		t.Errorf("the order is %v", order)
	}
}

func TestOtherNamesAreRefusedWhereSettingsLetTheCallerDecide(t *testing.T) {
	t.Parallel()
	server := start(t)
	settings := server.settings()
	settings.SubjectMode = ReflectedSPIFFE
	c := server.open(t, settings)
	req := other(t)
	req.DNSNames, req.IPAddresses = nil, nil
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrInvalid, "other names than the request")
	mustBe(t, c.CertifiesNames(t.Context()), ca.ErrInvalid, "reflected-spiffe")
	if len(server.calls()) != 0 {
		t.Error("the service was asked")
	}
}

func TestOnlineCheckShowsWhatThePoolForbids(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := server.open(t, server.settings())
	c.settings.Credentials = ADC // which the service does not need
	look := func(policy *privatecapb.CaPool_IssuancePolicy, refuse error) string {
		server.set(func() { server.policy, server.hidden = policy, refuse })
		var said []string
		for _, d := range c.examine(t.Context()) {
			said = append(said, d.Summary)
			if !d.Warning {
				said = append(said, "(error)")
			}
		}
		return strings.Join(said, "; ")
	}
	for name, test := range map[string]struct {
		policy *privatecapb.CaPool_IssuancePolicy
		refuse error
		want   string
	}{
		"no-policy":  {},
		"csr-only":   {policy: &privatecapb.CaPool_IssuancePolicy{AllowedIssuanceModes: &privatecapb.CaPool_IssuancePolicy_IssuanceModes{AllowCsrBasedIssuance: true}}, want: "no config-based issuance"},
		"both":       {policy: &privatecapb.CaPool_IssuancePolicy{AllowedIssuanceModes: &privatecapb.CaPool_IssuancePolicy_IssuanceModes{AllowConfigBasedIssuance: true}}},
		"no-names":   {policy: &privatecapb.CaPool_IssuancePolicy{IdentityConstraints: &privatecapb.CertificateIdentityConstraints{}}, want: "passes no names on"},
		"unreadable": {refuse: status.Error(codes.PermissionDenied, "you may not")},
		"away":       {refuse: status.Error(codes.Unavailable, "try later"), want: "(error)"},
	} {
		if said := look(test.policy, test.refuse); test.want == "" && said != "" || !strings.Contains(said, test.want) {
			t.Errorf("%s: %q, want %q", name, said, test.want)
		}
	}
	if n := server.certificates(); n != 0 {
		t.Errorf("%d certificates were made", n)
	}
}
