package tlsconfig

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// longestWait is how long a handshake waits for a certificate, unless its context ends before.
const longestWait = time.Minute

// ByServerName returns a server configuration whose certificates the source has by the names that
// clients ask for: each handshake looks up its server name (SNI), or o.Certificate if it has none. A
// handshake waits for a certificate that is not ready, a minute at most; with a source of names on
// demand, such as sdk/ondemand, it so gets a certificate that is ordered for it. A name that the source
// does not know ends the handshake with the alert unrecognized_name.
//
// It presents certificates only: Roots, Peer, Federated and Sessions of o must be unset. There are no
// session tickets, as one would outlive the right to a name. The minimum is TLS 1.2. The caller owns
// the configuration.
func ByServerName(o Options) (*tls.Config, error) {
	if o.Source == nil {
		return nil, errors.New("tlsconfig: Options.Source is nil")
	}
	if o.Roots != "" || o.Peer != nil || o.Federated != nil || o.Sessions != 0 {
		return nil, errors.New("tlsconfig: ByServerName takes no Roots, Peer, Federated and Sessions")
	}
	b := &byName{Options: o}
	return &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true, GetCertificate: b.get}, nil
}

// byName looks certificates up by the names that clients ask for.
type byName struct {
	Options
	parsed sync.Map // weak.Pointer[secret.Item] to *tls.Certificate
}

func (b *byName) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(cmp.Or(hello.Context(), context.Background()), longestWait) // nil outside of a handshake
	defer cancel()
	if hello.ServerName != "" && !isDNSName(hello.ServerName) {
		return nil, nil // sources have other names, too, such as file-cert:…
	}
	name := cmp.Or(hello.ServerName, b.Certificate)
	item, err := secret.Get(ctx, b.Source, b.Caller, name) // with a watch: a name on demand counts as used
	switch {
	case errors.Is(err, secret.ErrUnknown):
		return nil, nil // crypto/tls sends unrecognized_name
	case err != nil:
		return nil, missing(name, secret.KeyPair, err, nil)
	}
	return b.certificate(item)
}

func isDNSName(name string) bool {
	_, err := pki.NewIdentity("", []string{name}, nil)
	return err == nil
}

// certificate returns the item as crypto/tls takes it, parsed once while the source holds it.
func (b *byName) certificate(item *secret.Item) (*tls.Certificate, error) {
	key := weak.Make(item)
	if known, ok := b.parsed.Load(key); ok {
		return known.(*tls.Certificate), nil
	}
	certificate, err := Certificate(item)
	if err != nil {
		return nil, err
	}
	if _, there := b.parsed.LoadOrStore(key, certificate); !there {
		runtime.AddCleanup(item, func(key weak.Pointer[secret.Item]) { b.parsed.Delete(key) }, key)
	}
	return certificate, nil
}
