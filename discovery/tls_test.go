package discovery_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/jwt"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// listen has a server answer on loopback until the test ends, and returns the address.
func listen(t testing.TB, cfg discovery.Config) (*discovery.Server, string) {
	t.Helper()
	server, err := discovery.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- server.Run(ctx, discovery.Listeners{TLS: listener}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return server, listener.Addr().String()
}

// shakeHands returns the certificate that the server shows.
func shakeHands(addr string, cfg *tls.Config) (*x509.Certificate, error) {
	cfg.InsecureSkipVerify, cfg.NextProtos = true, []string{"h2"}
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The server's verdict on the client's certificate arrives after its first message.
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(conn, make([]byte, 9))
	return conn.ConnectionState().PeerCertificates[0], err
}

func TestUnverifiedCertificateDoesNotFailHandshake(t *testing.T) {
	root := certtest.Root(t)
	_, addr := listen(t, discovery.Config{
		Types: []discovery.Type{{URL: secretURL, Source: newMemorySource()}}, Authenticator: authn.Ordered{},
		TLS: &tls.Config{Certificates: []tls.Certificate{*root.Leaf(t, time.Hour).TLS()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()},
	})
	stolen := root.Leaf(t, time.Hour, web)
	thief := *stolen
	thief.Key = certtest.Root(t).Key
	for name, c := range map[string]struct {
		certificate *certtest.Pair
		min, max    uint16
		good        bool
	}{
		"no certificate":        {nil, 0, 0, true},
		"a stranger's":          {certtest.Root(t).Leaf(t, time.Hour, web), 0, 0, true},
		"an expired one":        {root.Leaf(t, -time.Minute, web), 0, 0, true},
		"over TLS 1.2":          {stolen, 0, tls.VersionTLS12, true},
		"over TLS 1.1":          {stolen, tls.VersionTLS10, tls.VersionTLS11, false},
		"without its key":       {&thief, 0, 0, false},
		"without its key, 1.2 ": {&thief, 0, tls.VersionTLS12, false},
	} {
		cfg := &tls.Config{MinVersion: c.min, MaxVersion: c.max}
		if c.certificate != nil {
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.certificate.TLS(), nil }
		}
		if _, err := shakeHands(addr, cfg); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerCertificateRotatesWithEngine(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	id, err := pki.NewIdentity("spiffe://example.org/discovery", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: authority, RootOverlap: new(time.Duration)}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, Authorities: []string{"test"}, TTL: time.Hour},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := secret.Get(ctx, manager, secret.Caller{}, "default"); err != nil {
		t.Fatal(err)
	}
	cfg, err := tlsconfig.Server(tlsconfig.Options{Source: manager, Certificate: "default"})
	if err != nil {
		t.Fatal(err)
	}
	_, addr := listen(t, discovery.Config{Types: []discovery.Type{{URL: secretURL, Source: newMemorySource()}}, Authenticator: authn.Ordered{}, TLS: cfg})
	first, err := shakeHands(addr, &tls.Config{})
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 1)
	stop, err := manager.Watch(secret.Caller{}, "default", func(string) { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	authority.Rotate()
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("no rotation")
	}
	if second, err := shakeHands(addr, &tls.Config{}); err != nil || second.Equal(first) {
		t.Errorf("after the rotation the server shows the same certificate, %v", err)
	}
}

// audience of the tokens that are taken.
const audience = "istio-ca"

// newJWT is an issuer whose keys are in a file; the function signs a token for an
// audience that ends then.
func newJWT(t testing.TB) (*jwt.Verifier, func(audience string, ends time.Time) string) {
	t.Helper()
	key := certtest.Root(t).Key
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	verifier, err := jwt.New(jwt.Config{
		Issuer: "https://issuer.example", Audiences: []string{audience}, JWKSFile: path,
		ServiceAccounts: "spiffe://example.org/ns/{namespace}/sa/{service_account}",
	})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	return verifier, func(audience string, ends time.Time) string {
		claims, _ := json.Marshal(map[string]any{
			"iss": "https://issuer.example", "sub": "system:serviceaccount:shop:web", "aud": audience,
			"iat": ends.Add(-time.Hour).Unix(), "nbf": ends.Add(-time.Hour).Unix(), "exp": ends.Unix(),
		})
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

func TestTokenIsBoundToAudienceAndExpiry(t *testing.T) {
	verifier, sign := newJWT(t)
	p := newPlace(t, func(_ *place, c *discovery.Config) {
		c.Authenticator = append(c.Authenticator.(authn.Ordered), authn.Named{Name: "jwt", Authenticator: verifier})
	})
	defer p.close()
	conn := p.dial(nil)
	defer conn.Close()
	for name, c := range map[string]struct {
		audience string
		ends     time.Time
		want     codes.Code
	}{
		"for another audience": {"somebody-else", time.Now().Add(time.Hour), codes.Unauthenticated},
		"ended":                {audience, time.Now().Add(-time.Hour), codes.Unauthenticated},
		"good":                 {audience, time.Now().Add(time.Hour), codes.OK},
	} {
		stream := open(t, conn, "authorization", "Bearer "+sign(c.audience, c.ends))
		stream.ask(secretURL, "a")
		if c.want != codes.OK {
			if said := stream.ends(c.want); said != opaque {
				t.Errorf("%s: the client gets %q", name, said)
			}
			continue
		}
		stream.gets("1")
		if expires := p.server.Status().Streams[0].Expires; expires.After(c.ends.Add(time.Minute)) { // the leeway is in it
			t.Errorf("%s: the stream lasts until %s, its token until %s", name, expires, c.ends)
		}
		stream.hang()
	}
}

func says(err error, what string) bool { return err != nil && strings.Contains(err.Error(), what) }

func TestInvalidConfigIsRefusedWithOneSentence(t *testing.T) {
	types := []discovery.Type{{URL: secretURL, Source: newMemorySource()}}
	for want, cfg := range map[string]discovery.Config{
		"Config.Authenticator is required": {Types: types},
		"Config.Types is empty":            {Authenticator: authn.Ordered{}},
		"needs a URL and a Source":         {Authenticator: authn.Ordered{}, Types: []discovery.Type{{URL: secretURL}}},
		"twice":                            {Authenticator: authn.Ordered{}, Types: append(types, types...)},
		"must list one or more clusters":   {Authenticator: authn.Ordered{}, Types: types, Clusters: map[string][]string{"example.org": {}}},
		"GetConfigForClient would replace": {Authenticator: authn.Ordered{}, Types: types, TLS: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }}},
		"neither GetCertificate":           {Authenticator: authn.Ordered{}, Types: types, TLS: &tls.Config{}},
	} {
		if _, err := discovery.New(cfg); !says(err, want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	server, err := discovery.New(discovery.Config{Authenticator: authn.Ordered{}, Types: types})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context(), discovery.Listeners{}); !says(err, "no listener") {
		t.Error(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := server.Run(t.Context(), discovery.Listeners{TLS: listener}); !says(err, "needs Config.TLS") {
		t.Error(err)
	}
}
