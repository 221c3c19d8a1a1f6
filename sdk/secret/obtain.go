package secret

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The names of what [Obtain] holds, which are also those that Istio's Envoys ask for.
const (
	defaultName = "default"
	rootsName   = "ROOTCA"
)

// Obtain is [New] for one certificate of one authority: it returns a Manager that holds the key
// pair "default" for the names, renews it until Close, and serves the authority's roots as the
// trust bundle "ROOTCA". A name is a SPIFFE ID (one at most), an IP address, or a DNS name whose
// first label may be "*".
//
// Obtain waits for the first certificate, not for roots, which not every authority publishes:
// wait for those with [Ready]. It retries until ctx ends; failed attempts are logged to
// [slog.Default], and the error has the reason of the last one. On error nothing is left running.
// Use New for a lifetime, a key type, a token or several authorities.
func Obtain(ctx context.Context, authority ca.Client, names ...string) (*Manager, error) {
	id, err := identityOf(names)
	if err != nil {
		return nil, err
	}
	by := []string{"ca"}
	m, err := New(Config{
		Authorities: []Authority{{Name: by[0], Client: authority}},
		Secrets: []Spec{
			{Name: defaultName, Kind: KeyPair, Identity: id, Authorities: by},
			{Name: rootsName, Kind: TrustBundle, Authorities: by},
		},
	})
	if err != nil {
		return nil, err
	}
	if err := Ready(ctx, m, defaultName); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// identityOf sorts the names by their kind.
func identityOf(names []string) (pki.Identity, error) {
	var id string
	var dns, ips []string
	for _, name := range names {
		_, err := netip.ParseAddr(name)
		switch {
		case err == nil:
			ips = append(ips, name)
		case !strings.HasPrefix(name, "spiffe://"):
			dns = append(dns, name)
		case id != "":
			return pki.Identity{}, fmt.Errorf("invalid names: %.256q and %.256q: a certificate has one SPIFFE ID", id, name)
		default:
			id = name
		}
	}
	return pki.NewIdentity(id, dns, ips)
}

// Ready waits until source holds each of the names for the program itself (the zero [Caller]),
// as [Get] waits for one. An unknown name is an error at once; Set(name, nil) of a [Map] makes one
// known before its item is there.
func Ready(ctx context.Context, source Source, names ...string) error {
	for _, name := range names {
		if _, err := Get(ctx, source, Caller{}, name); err != nil {
			return err
		}
	}
	return nil
}
