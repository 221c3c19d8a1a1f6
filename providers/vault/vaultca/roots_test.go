package vaultca

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestRootsAreSelfSignedIssuers(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	first := v.Bundle()
	tells := func(want *pki.Bundle) {
		t.Helper()
		roots, err := c.Roots(t.Context())
		must(t, err)
		if string(roots) != string(want.PEM()) {
			t.Errorf("roots: %s", roots)
		}
	}
	tells(first)
	second := catest.NewCA(catest.Options{Intermediates: 1})
	req, _ := testkit.Request(t, web)
	cert, err := second.CSRSign(t.Context(), req)
	must(t, err)
	intermediate := certificates(cert.Chain)[1:]
	v.change(func() { // an intermediate with its issuer
		v.issuers = append(v.issuers, append(intermediate, second.Bundle().Certificates()...))
	})
	tells(first.Union(second.Bundle()))
	v.change(func() { v.issuers = v.issuers[1:] })
	tells(second.Bundle())
	if asked := v.paths(); strings.Contains(asked, "login") {
		t.Errorf("roots need no token: %s", asked)
	}

	v.change(func() { v.issuers = [][]*x509.Certificate{intermediate} })
	if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "the mount pki has no self-signed issuer") || !strings.Contains(err.Error(), "bundle_file") {
		t.Errorf("an intermediate alone: %v", err)
	}
	settings := v.settings()
	settings.BundleFile = setting.Certificates(v.write(t, "bundle.pem", first.PEM()))
	c = v.open(t, settings)
	tells(first)
	v.write(t, "bundle.pem", second.Bundle().PEM()) // it is read each time
	tells(second.Bundle())
	for says, content := range map[string][]byte{"not self-signed": pki.EncodeCertificates(intermediate), "bundle.pem": []byte("nothing")} {
		v.write(t, "bundle.pem", content)
		if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestServerWithoutIssuersIsAskedForItsChain(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	root := string(v.Bundle().PEM())
	v.answerAll(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/pki/cert/ca_chain") {
			refuse(w, http.StatusForbidden, "permission denied")
			return
		}
		answer(w, map[string]any{"data": map[string]any{"certificate": root}})
	})
	roots, err := c.Roots(t.Context())
	if err != nil || string(roots) != root {
		t.Errorf("%s, %v", roots, err)
	}
}

func TestInvalidRootsAreAnError(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	for what, wants := range map[string]struct {
		body string
		err  *ca.Error
		says string
	}{
		"no issuer":      {`{"data":{"keys":[]}}`, ca.ErrUnavailable, "no self-signed issuer"},
		"too many":       {`{"data":{"keys":["x"` + strings.Repeat(`,"x"`, maxIssuers) + `]}}`, ca.ErrInternal, "65 issuers, more than 64"},
		"no certificate": {`{"data":{"keys":["x"],"certificate":"x"}}`, ca.ErrInternal, "returned an invalid issuer"},
		"no JSON":        {`<html>`, ca.ErrInternal, "JSON"},
		"an invalid id":  {`{"data":{"keys":["../../sys/seal"],"certificate":""}}`, ca.ErrInternal, "an invalid ID"},
	} {
		v.paths()
		v.answerAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(wants.body)) })
		if _, err := c.Roots(t.Context()); !errors.Is(err, wants.err) || !strings.Contains(err.Error(), wants.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	v.answerAll(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
	})
	if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("sealed: %v", err)
	}
}
