package citadelca

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestRequestIsReadAndSignedByIstiod(t *testing.T) {
	server := start(t)
	settings := server.settings(t)
	settings.ClusterID, settings.CertSigner, settings.Headers = "cluster-1", "signers/a", map[string]string{"X-Tenant": "blue", "key-bin": "\x00\xff"}
	req, check := ask(t, theToken)
	reply, err := mustOpen(t, settings).CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if chain := testkit.Passes(t, reply, check); len(chain.Certificates) != 2 || !server.mesh.Bundle().Contains(chain.Root) {
		t.Errorf("the chain has %d certificates and leads to %s", len(chain.Certificates), chain.Root.Subject)
	}
	call := server.last(t)
	if call.request.Csr != string(req.CSR) || call.request.ValidityDuration != 3600 || call.request.Metadata.AsMap()["CertSigner"] != "signers/a" {
		t.Errorf("the request is %v", call.request)
	}
	for name, want := range map[string]string{"clusterid": "cluster-1", "authorization": "Bearer " + theToken.Reveal(), "x-tenant": "blue", "key-bin": "\x00\xff"} {
		if got := call.metadata[name]; !slices.Equal(got, []string{want}) {
			t.Errorf("the metadata %s are %q", name, got)
		}
	}
	if call.client != nil {
		t.Error("a client certificate was shown")
	}
}

func TestAbsentFieldsAreLeftOut(t *testing.T) {
	server := start(t)
	req, _ := ask(t, "")
	if _, err := mustOpen(t, server.settings(t)).CSRSign(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	call := server.last(t)
	if call.request.Metadata != nil || call.metadata["authorization"] != nil || call.metadata["clusterid"] != nil {
		t.Errorf("the request is %v with %v", call.request, call.metadata)
	}
}

func TestTTLIsRoundedUpToSeconds(t *testing.T) {
	server := start(t)
	c := mustOpen(t, server.settings(t))
	for ttl, want := range map[time.Duration]int64{0: 0, time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2, 24 * time.Hour: 86400} {
		req, _ := ask(t, theToken)
		req.TTL = ttl
		if _, err := c.CSRSign(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if got := server.last(t).request.ValidityDuration; got != want {
			t.Errorf("%s: %d seconds are asked for, want %d", ttl, got, want)
		}
	}
}

func TestCallHasDeadlineByDefault(t *testing.T) {
	server := start(t)
	mustSign(t, mustOpen(t, server.settings(t)))
	if left := server.last(t).left; left <= 0 || left > patience {
		t.Errorf("the call's deadline is in %s", left)
	}
}

func TestTokenBelongsToItsRequest(t *testing.T) {
	server := start(t)
	c := mustOpen(t, server.settings(t))
	for _, token := range []ca.Token{"one", "", "two"} {
		req, _ := ask(t, token)
		if _, err := c.CSRSign(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		var want []string
		if token != "" {
			want = []string{"Bearer " + token.Reveal()}
		}
		if got := server.last(t).metadata["authorization"]; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestUnsignableRequestIsNotSent(t *testing.T) {
	server := start(t)
	c := mustOpen(t, server.settings(t))
	good, _ := ask(t, theToken)
	named := func(spiffeID string, dns, ips []string) []byte {
		id, err := pki.NewIdentity(spiffeID, dns, ips)
		if err != nil {
			t.Fatal(err)
		}
		_, csr := testkit.CSR(t, id)
		return csr
	}
	const alone = "istiod signs nothing but a SPIFFE ID"
	for says, req := range map[string]ca.SignRequest{
		alone + ": remove the DNS names": {CSR: good.CSR, DNSNames: []string{"web.shop.svc"}},
		alone + ":":                      {CSR: good.CSR, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}},
		alone:                            {CSR: named(webID, []string{"web.shop.svc"}, nil)},
		"nothing but a SPIFFE ID":        {CSR: named(webID, nil, []string{"192.0.2.7"})},
		"the CSR: it holds no PEM block": {CSR: []byte("hello")},
		"it holds more than one PEM":     {CSR: append(bytes.Clone(good.CSR), good.CSR...)},
		`the CSR: PEM block 1 "CERTIFICATE REQUEST" at line 1 is malformed`: {CSR: good.CSR[:len(good.CSR)-40]},
		"the DNS names and IP addresses":                                    {CSR: named("", []string{"web.shop.svc"}, nil)},
		"the CSR: the certificate signing":                                  {CSR: []byte("-----BEGIN CERTIFICATE REQUEST-----\naGVsbG8=\n-----END CERTIFICATE REQUEST-----\n")},
	} {
		req.Token = theToken
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, ca.ErrInvalid, says)
	}
	if calls := server.calls(); len(calls) > 0 {
		t.Errorf("%d were sent", len(calls))
	}
}
