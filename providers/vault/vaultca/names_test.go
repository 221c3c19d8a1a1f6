package vaultca

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// other asks for names with a CSR of other names, as a registration authority does.
func other(t *testing.T) ca.SignRequest {
	t.Helper()
	req, _ := testkit.Request(t, web, "admin.example.org")
	req.SubjectID, req.DNSNames, req.IPAddresses = web+"2", []string{"web.example.org", "www.example.org"}, []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	req.ID = uuid.NewString()
	return req
}

func namesIn(t *testing.T, cert ca.Certificate) string {
	t.Helper()
	certs, err := pki.ParseCertificates(cert.Chain)
	must(t, err)
	return strings.Join(pki.AllNames(certs[0]), " ")
}

func TestRoleThatAllowsItCertifiesTheNamesOfTheRequest(t *testing.T) {
	v := newVault(t)
	v.change(func() { v.ownNames = true })
	cert, err := v.open(t, v.settings()).CSRSign(t.Context(), other(t))
	must(t, err)
	if got := namesIn(t, cert); strings.Contains(got, "admin") || !strings.Contains(got, web+"2") || !strings.Contains(got, "www.example.org") || !strings.Contains(got, "192.0.2.7") {
		t.Errorf("it has %s", got)
	}
}

func TestNamesOfTheCSRNeverWinOverOthers(t *testing.T) {
	v := newVault(t)
	_, err := v.open(t, v.settings()).CSRSign(t.Context(), other(t))
	if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "use_csr_sans=false") {
		t.Errorf("from the role: %v", err)
	}
	settings := v.settings()
	settings.Verbatim = true
	v.paths()
	c := v.open(t, settings)
	if _, err := c.CSRSign(t.Context(), other(t)); !errors.Is(err, ca.ErrInvalid) || strings.Contains(v.paths(), "sign") {
		t.Errorf("verbatim: %v", err)
	}
	if err := c.CertifiesNames(t.Context()); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("verbatim certifies names: %v", err)
	}
}

func TestOnlineCheckShowsWhoseNamesTheRoleTakes(t *testing.T) {
	v := newVault(t)
	look := func(change func()) string {
		v.change(change)
		var said []string
		for _, d := range v.settings().ValidateOnline(t.Context()) {
			said = append(said, d.Summary)
			if !d.Warning {
				said = append(said, "(error)")
			}
		}
		return strings.Join(said, "; ")
	}
	if said := look(func() {}); !strings.Contains(said, "use_csr_sans=true") || !strings.Contains(said, "use_csr_common_name=true") || strings.Contains(said, "(error)") {
		t.Errorf("by default: %s", said)
	}
	if said := look(func() { v.ownNames = true }); said != "" {
		t.Errorf("with the request's names: %s", said)
	}
	if said := look(func() { v.policy = false }); said != "" { // may not read it
		t.Errorf("without permission: %s", said)
	}
	if said := look(func() { v.secretID = "another" }); !strings.Contains(said, "login by approle") || !strings.Contains(said, "(error)") {
		t.Errorf("with a wrong secret ID: %s", said)
	}
	v.answerAll(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	if said := look(func() {}); !strings.Contains(said, "(error)") {
		t.Errorf("sealed: %s", said)
	}
	if v.signatures() != 0 {
		t.Errorf("%d certificates were made", v.signatures())
	}
}
