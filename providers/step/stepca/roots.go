package stepca

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	bootstrapTimeout = 20 * time.Second
	maxRoot          = 64 << 10
)

// Roots implements [ca.RootSource]: all that step-ca names now. A host asks now and
// then, so that a changed root is noticed.
func (c *CA) Roots(ctx context.Context) ([]byte, error) {
	var reply struct {
		Roots []string `json:"crts"`
	}
	if err := c.client.Do(ctx, rest.Call{Path: rootsPath}, &reply); err != nil {
		return nil, err
	}
	bundle, err := pki.ParseBundle([]byte(strings.Join(reply.Roots, "\n")))
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%s answered with roots that are none: %w", c.client.Host(), err)
	}
	return bundle.PEM(), nil
}

// bootstrap fetches the root that has the fingerprint. Whoever answers need not be
// trusted: only that one certificate has it.
func bootstrap(ctx context.Context, url, fingerprint string) (rest.Roots, error) {
	server := endpoint.New(endpoint.Options{
		TLS: func() *tls.Config {
			return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // the fingerprint is what is verified
		},
		Proxy: http.ProxyFromEnvironment, Redirects: endpoint.ReplyRedirects, MaxBody: maxRoot, Timeout: bootstrapTimeout,
	})
	reply, err := server.Do(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/root/"+fingerprint, nil, nil)
	switch {
	case err != nil:
		return nil, ca.Errorf(ca.Unavailable, "the root cannot be fetched by its fingerprint: %w", err)
	case reply.Status == http.StatusNotFound:
		return nil, ca.Errorf(ca.Invalid, "root_fingerprint: step-ca has no root with the fingerprint %s", fingerprint)
	case reply.Status != http.StatusOK:
		return nil, ca.Errorf(rest.Reason(reply.Status), "the root cannot be fetched by its fingerprint: step-ca answered with %d", reply.Status)
	}
	return pinned(reply.Body, fingerprint)
}

func pinned(body []byte, fingerprint string) (rest.Roots, error) {
	var reply struct {
		Root string `json:"ca"`
	}
	_ = json.Unmarshal(body, &reply) // what is no JSON has no root
	certs, err := pki.ParseCertificates([]byte(reply.Root))
	if err != nil || len(certs) != 1 {
		return nil, ca.Errorf(ca.Internal, "the root cannot be fetched by its fingerprint: what answered is no step-ca")
	}
	if sum := sha256.Sum256(certs[0].Raw); hex.EncodeToString(sum[:]) != fingerprint {
		return nil, ca.Errorf(ca.Unavailable, "the root that was fetched has the fingerprint %x, not %s: somebody else may have answered", sum, fingerprint)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certs[0])
	return func() (*x509.CertPool, error) { return pool, nil }, nil
}
