package googleca

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestOrderCarriesSettingsAndRequest(t *testing.T) {
	server := start(t)
	settings := server.settings()
	settings.IssuingCA, settings.QuotaProject = "ca-2", "billing-1"
	settings.CertificateTemplate = "projects/shop-1/locations/us-central1/certificateTemplates/workload"
	settings.Labels = map[string]string{"team": "shop"}
	req, check := ask(t)
	reply, err := server.open(t, settings).CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if chain := testkit.Passes(t, reply, check); len(chain.Certificates) != 2 || !server.pool.Bundle().Contains(chain.Root) {
		t.Errorf("the chain has %d certificates and leads to %s", len(chain.Certificates), chain.Root.Subject)
	}
	call := server.last(t)
	order, cert := call.order, call.order.GetCertificate()
	if order.GetParent() != thePool || order.GetRequestId() != theID || order.GetCertificateId() != "countersign-"+theID || order.GetIssuingCertificateAuthorityId() != "ca-2" {
		t.Errorf("the order is %v", order)
	}
	if cert.GetPemCsr() != string(req.CSR) || cert.GetLifetime().AsDuration() != time.Hour || cert.GetCertificateTemplate() != settings.CertificateTemplate || cert.GetLabels()["team"] != "shop" {
		t.Errorf("the certificate is %v", cert)
	}
	if cert.GetSubjectMode() != privatecapb.SubjectRequestMode_SUBJECT_REQUEST_MODE_UNSPECIFIED {
		t.Errorf("the subject mode is %s", cert.GetSubjectMode())
	}
	for name, want := range map[string]string{"authorization": "Bearer " + theToken.Reveal(), "x-goog-user-project": "billing-1"} {
		if got := call.metadata[name]; !slices.Equal(got, []string{want}) {
			t.Errorf("the metadata %s are %q", name, got)
		}
	}
}

func TestReflectedCSRSendsKeyAndConfig(t *testing.T) {
	server := start(t)
	settings := server.settings()
	settings.SubjectMode = ReflectedSPIFFE
	c := server.open(t, settings)
	mustSign(t, c)
	cert := server.last(t).order.GetCertificate()
	config := cert.GetConfig()
	usage := config.GetX509Config().GetKeyUsage()
	if cert.GetSubjectMode() != privatecapb.SubjectRequestMode_REFLECTED_SPIFFE || config.GetPublicKey().GetFormat() != privatecapb.PublicKey_PEM {
		t.Errorf("the certificate is %v", cert)
	}
	if !usage.GetBaseKeyUsage().GetDigitalSignature() || usage.GetBaseKeyUsage().GetKeyEncipherment() || !usage.GetExtendedKeyUsage().GetServerAuth() || !usage.GetExtendedKeyUsage().GetClientAuth() {
		t.Errorf("the usages of an ECDSA key are %v", usage)
	}
	if options := config.GetX509Config().GetCaOptions(); options.IsCa == nil || options.GetIsCa() {
		t.Errorf("the CA options are %v", options)
	}
	req, _ := ask(t)
	req.DNSNames = []string{"web.shop.svc"}
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrInvalid, "subject_mode reflected-spiffe", "remove the DNS names")
	if n := len(server.calls()); n != 0 {
		t.Errorf("there were %d more orders", n)
	}
}

func TestReflectedRSAKeyAllowsKeyEncipherment(t *testing.T) {
	server := start(t)
	settings := server.settings()
	settings.SubjectMode = ReflectedSPIFFE
	c := server.open(t, settings)
	key, err := pki.GenerateKey(pki.RSA2048)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, testkit.Identity(t, webID, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CSRSign(t.Context(), ca.SignRequest{ID: theID, CSR: csr, SubjectID: webID, Token: theToken}); err != nil {
		t.Fatal(err)
	}
	config := server.last(t).order.GetCertificate().GetConfig()
	block, _ := pem.Decode(config.GetPublicKey().GetKey())
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !pki.SameKey(public, key.Public()) || !config.GetX509Config().GetKeyUsage().GetBaseKeyUsage().GetKeyEncipherment() {
		t.Errorf("the config is %v: %v", config, err)
	}
}

func TestServerNamesAreSigned(t *testing.T) {
	server := start(t)
	id := testkit.Identity(t, webID, []string{"web.shop.svc"}, []string{"192.0.2.7"})
	key, csr := testkit.CSR(t, id)
	req := ca.SignRequest{ID: theID, CSR: csr, SubjectID: webID, DNSNames: id.DNSNames, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, TTL: time.Hour, Token: theToken}
	reply, err := server.open(t, server.settings()).CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, reply, pki.Check{Key: key.Public(), Identity: id, Now: time.Now()})
}

func TestRetryMakesNoSecondCertificate(t *testing.T) {
	server := start(t)
	c := server.open(t, server.settings())
	lost := func(ctx context.Context, order *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
		if _, err := server.make(ctx, order); err != nil {
			return nil, err
		}
		return nil, status.Error(codes.Unavailable, "the answer is lost")
	}
	server.next(lost, lost)
	req, check := ask(t)
	for range 2 {
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, ca.ErrUnavailable, thePool+": the answer is lost")
	}
	reply, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, reply, check)
	if n := server.certificates(); n != 1 || len(server.calls()) != 3 {
		t.Errorf("%d certificates were made in %d orders", n, len(server.calls()))
	}
	req.ID = "7c1d6f6e-0c3c-4f5e-9a3a-2f1f6f0f9a10"
	if _, err := c.CSRSign(t.Context(), req); err != nil || server.certificates() != 2 {
		t.Errorf("another request: %v, %d certificates", err, server.certificates())
	}
}

func TestRetryAfterForgottenOrderGetsSameCertificate(t *testing.T) {
	server := start(t)
	c := server.open(t, server.settings())
	req, check := ask(t)
	first, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	server.forgetOrders()
	again, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, again, check)
	if !bytes.Equal(first.Chain, again.Chain) || server.certificates() != 1 {
		t.Errorf("it is another certificate, of %d", server.certificates())
	}
}

func TestTTLIsRoundedUpToSeconds(t *testing.T) {
	server := start(t)
	c := server.open(t, server.settings())
	for ttl, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Millisecond: time.Second, time.Second: time.Second, 1500 * time.Millisecond: 2 * time.Second} {
		req, _ := ask(t)
		req.TTL = ttl
		if _, err := c.CSRSign(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if got := server.last(t).order.GetCertificate().GetLifetime().AsDuration(); got != want {
			t.Errorf("%s: %s is asked for, want %s", ttl, got, want)
		}
	}
}

func TestInvalidRequestIsNotSent(t *testing.T) {
	server := start(t)
	c := server.open(t, server.settings())
	good, _ := ask(t)
	for says, test := range map[string]struct {
		req  ca.SignRequest
		want *ca.Error
	}{
		"the request has no ID":                                             {ca.SignRequest{CSR: good.CSR, Token: theToken}, ca.ErrInvalid},
		"the request has no token: set the provider's token":                {ca.SignRequest{ID: theID, CSR: good.CSR}, ca.ErrUnauthenticated},
		"the request: it has no names":                                      {ca.SignRequest{ID: theID, CSR: good.CSR, Token: theToken}, ca.ErrInvalid},
		"the CSR: it holds no PEM block":                                    {ca.SignRequest{ID: theID, CSR: []byte("hello"), Token: theToken}, ca.ErrInvalid},
		`the CSR: PEM block 1 "CERTIFICATE REQUEST" at line 1 is malformed`: {ca.SignRequest{ID: theID, CSR: good.CSR[:len(good.CSR)-40], Token: theToken}, ca.ErrInvalid},
	} {
		_, err := c.CSRSign(t.Context(), test.req)
		mustBe(t, err, test.want, says)
	}
	if n := len(server.calls()); n > 0 {
		t.Errorf("%d were sent", n)
	}
}

func TestCallHasDeadlineByDefault(t *testing.T) {
	server := start(t)
	c := server.open(t, server.settings())
	mustSign(t, c)
	if left := server.last(t).left; left <= 0 || left > patience {
		t.Errorf("the order's deadline is in %s", left)
	}
	if _, err := c.Roots(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := server.fetches()[0].left; left <= 0 || left > patience {
		t.Errorf("the deadline of the question for roots is in %s", left)
	}
}
