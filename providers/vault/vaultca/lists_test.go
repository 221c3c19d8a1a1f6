package vaultca

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestListsAreThoseOfAllIssuers(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	first := v.lists["issuer-0"]
	tells := func(lists []byte, issuers int) {
		t.Helper()
		text, err := c.Revocations(t.Context())
		must(t, err)
		_, between, err := pki.ParseCRLs(text)
		if err != nil || !bytes.HasPrefix(text, lists) || len(between) != issuers {
			t.Errorf("%d issuers, %v: %s", len(between), err, text)
		}
	}
	tells(first, 0)
	second := catest.NewCA(catest.Options{Intermediates: 1})
	req, _ := testkit.Request(t, web)
	cert, err := second.CSRSign(t.Context(), req)
	must(t, err)
	list := second.CRLs(catest.CRL{Number: 7})[1]
	v.change(func() { // an intermediate, the same again with its own name, and one without a key
		v.issuers = append(v.issuers, certificates(cert.Chain)[1:], certificates(cert.Chain)[1:], second.Bundle().Certificates())
		v.lists["issuer-1"], v.lists["issuer-2"] = list, list
	})
	tells(append(first, list...), 1)
	if asked := v.paths(); strings.Contains(asked, "login") {
		t.Errorf("lists need no token: %s", asked)
	}
}

func TestServerWithoutGoodListsReturnsAnError(t *testing.T) {
	for says, list := range map[string][]byte{"has no revocation list": nil, "an invalid revocation list from": []byte("<html>")} {
		v := newVault(t)
		c := v.open(t, v.settings())
		v.change(func() { v.lists["issuer-0"] = list })
		if _, err := c.Revocations(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	v := newVault(t)
	c := v.open(t, v.settings())
	v.answerAll(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
	})
	if _, err := c.Revocations(t.Context()); !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("sealed: %v", err)
	}
}

func TestServerWithoutIssuersIsAskedForItsOnlyList(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	root, list := string(v.Bundle().PEM()), v.CRLs(catest.CRL{Number: 3, NextUpdate: time.Now().Add(time.Hour)})[0]
	v.answerAll(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/pki/cert/ca_chain"):
			answer(w, map[string]any{"data": map[string]any{"certificate": root}})
		case strings.HasSuffix(r.URL.Path, "/pki/crl/pem"):
			_, _ = w.Write(list)
		default:
			refuse(w, http.StatusForbidden, "permission denied")
		}
	})
	if got, err := c.Revocations(t.Context()); err != nil || !bytes.Equal(got, list) {
		t.Errorf("%v: %s", err, got)
	}
}
