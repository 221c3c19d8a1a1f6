package pki

import (
	"net/netip"
	"testing"
)

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
