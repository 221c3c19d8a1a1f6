package stepca

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// maxRoot is the size limit of a reply with one root, in bytes.
const maxRoot = 64 << 10

// Roots implements [ca.RootSource]. It returns the roots that step-ca lists now, in PEM.
// The host asks at intervals, so that it notices a changed root.
func (c *CA) Roots(ctx context.Context) ([]byte, error) {
	var reply struct {
		Roots []string `json:"crts"`
	}
	if err := c.client.Do(ctx, rest.Call{Path: rootsPath}, &reply); err != nil {
		return nil, err
	}
	text := []byte(strings.Join(reply.Roots, "\n"))
	bundle, unusable, err := pki.UsableBundle(text)
	switch {
	case err != nil:
		return nil, ca.Errorf(ca.Internal, "%s returned invalid roots: %w", c.client.Host(), err)
	case len(unusable) > 0:
		return text, nil // the agent leaves them out and logs why
	}
	return bundle.PEM(), nil
}

// bootstrap fetches the root that has the fingerprint. The server need not be trusted, as
// no other certificate has that fingerprint.
func bootstrap(ctx context.Context, url setting.URL, fingerprint string) (*x509.CertPool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url.At("/root/"+fingerprint), nil)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "url: %w", err)
	}
	server := &rest.Transport{
		TLS:      &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, //nolint:gosec // the fingerprint verifies the reply
		MaxReply: maxRoot,
	}
	reply, err := server.RoundTrip(req)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "fetch the root by its fingerprint: %w", err)
	}
	defer func() { _ = reply.Body.Close() }() // in memory
	body, err := io.ReadAll(reply.Body)
	switch {
	case err != nil:
		return nil, ca.Errorf(ca.Unavailable, "fetch the root by its fingerprint: %w", err)
	case reply.StatusCode == http.StatusNotFound && own(reply.StatusCode, body):
		return nil, ca.Errorf(ca.Invalid, "root_fingerprint: step-ca has no root with the fingerprint %s", fingerprint)
	case reply.StatusCode != http.StatusOK:
		return nil, ca.Errorf(ca.Unavailable, "fetch the root by its fingerprint: %s answered with %d", url.Host, reply.StatusCode)
	}
	return pinned(body, fingerprint)
}

// pinned reads step-ca's answer to GET /root/FINGERPRINT and returns the root in it.
func pinned(body []byte, fingerprint string) (*x509.CertPool, error) {
	var reply struct {
		Root string `json:"ca"`
	}
	_ = json.Unmarshal(body, &reply) // without a root, parsing fails
	certs, err := pki.ParseCertificates([]byte(reply.Root))
	if err != nil || len(certs) != 1 {
		return nil, ca.Errorf(ca.Internal, "fetch the root by its fingerprint: the reply has no root certificate")
	}
	if sum := sha256.Sum256(certs[0].Raw); hex.EncodeToString(sum[:]) != fingerprint {
		return nil, ca.Errorf(ca.Unavailable, "the fetched root has the fingerprint %x, not %s: the server may not be your step-ca", sum, fingerprint)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certs[0])
	return pool, nil
}
