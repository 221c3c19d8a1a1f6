package pki

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/netip"
	"testing"
)

func TestSubjectOfEmptyValuesHasNone(t *testing.T) {
	for want, name := range []pkix.Name{{}, {Organization: []string{" "}}, {Organization: []string{"", "a"}, CommonName: "b"}} {
		name.Organization = append(name.Organization, "")
		der, err := asn1.Marshal(name.ToRDNSequence())
		if err != nil {
			t.Fatal(err)
		}
		var sequence pkix.RDNSequence
		if _, err := asn1.Unmarshal(der, &sequence); err != nil {
			t.Fatal(err)
		}
		var read pkix.Name
		read.FillFromRDNSequence(&sequence)
		if got := SubjectValues(read); len(got) != want || len(read.Names) == len(got) {
			t.Errorf("%s: %v of %v", name, got, read.Names)
		}
	}
}

func TestRequestedIdentityHasOneNameAtLeast(t *testing.T) {
	id, err := RequestedIdentity("spiffe://example.org/web", []string{"WEB.example.org"}, []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.1")})
	if want := "spiffe://example.org/web, web.example.org, 192.0.2.1"; err != nil || id.String() != want {
		t.Errorf("got %q, %v; want %q", id, err, want)
	}
	for name, test := range map[string]struct {
		id  string
		ips []netip.Addr
	}{
		"none": {}, "bad id": {id: "spiffe://EXAMPLE/"}, "bad address": {ips: []netip.Addr{{}}}, "zone": {ips: []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}},
	} {
		if id, err := RequestedIdentity(test.id, nil, test.ips); err == nil {
			t.Errorf("%s: %q", name, id)
		}
	}
}
