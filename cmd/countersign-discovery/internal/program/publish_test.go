package program

import (
	"crypto/x509"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// published is a service with a bundle endpoint.
const published = `
listen: {tls: '127.0.0.1:0'}
certificate: {chain_file: DIR/chain.pem, key_file: DIR/key.pem}
trust_domains: [{name: cluster.local, roots_file: DIR/roots.pem}]
cluster: {kubeconfig: DIR/kube.yaml}
publish_bundle: {address: '127.0.0.1:0', profile: https_web}
status: {address: 'unix:DIR/page'}
times: {drain: 0s}
`

// replica is a service that publishes a bundle.
type replica struct {
	*program
	address string
	shows   *certtest.Pair
}

func startReplica(t *testing.T, kubeconfig string, shows *certtest.Pair, roots ...*certtest.Pair) replica {
	t.Helper()
	dir := files(t, published)
	write(t, filepath.Join(dir, "kube.yaml"), kubeconfig)
	write(t, filepath.Join(dir, "chain.pem"), string(shows.PEM()))
	write(t, filepath.Join(dir, "key.pem"), string(shows.KeyPEM(t)))
	writeRoots(t, dir, roots...)
	p := start(t, dir)
	return replica{p, p.log.await(t, `msg="bundle endpoint" address=(\S+)`), shows}
}

func writeRoots(t *testing.T, dir string, roots ...*certtest.Pair) {
	t.Helper()
	var text strings.Builder
	for _, root := range roots {
		text.Write(root.PEM())
	}
	write(t, filepath.Join(dir, "roots.pem"), text.String())
}

// publishes waits until a SPIFFE client reads these roots, and returns the sequence number.
func (r replica) publishes(t *testing.T, roots ...*certtest.Pair) (number uint64) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(r.shows.Cert)
	domain := spiffeid.RequireTrustDomainFromString("cluster.local")
	eventually(t, func() bool {
		got, err := federation.FetchBundle(t.Context(), domain, "https://"+r.address, federation.WithWebPKIRoots(pool))
		if err != nil || len(got.X509Authorities()) != len(roots) {
			return false
		}
		number, _ = got.SequenceNumber()
		return !slices.ContainsFunc(roots, func(root *certtest.Pair) bool { return !got.HasX509Authority(root.Cert) })
	}, "it publishes the roots", r.log)
	return number
}

// publishTogether has replicas publish the same, also one that has outdated roots and one that starts.
func publishTogether(t *testing.T, kubeconfig string) {
	t.Helper()
	shows, old, next := certtest.Loopback(t), certtest.Root(t), certtest.Root(t)
	one, two := startReplica(t, kubeconfig, shows, old), startReplica(t, kubeconfig, shows, old)
	first := one.publishes(t, old)
	if number := two.publishes(t, old); number != first || first < 1_700_000_000 {
		t.Errorf("the numbers are %d and %d", first, number)
	}
	writeRoots(t, one.dir, old, next)
	second := one.publishes(t, old, next)
	if number := two.publishes(t, old, next); number != second || second <= first {
		t.Errorf("after %d, the numbers are %d and %d", first, second, number)
	}
	if number := startReplica(t, kubeconfig, shows, old).publishes(t, old, next); number != second {
		t.Errorf("after a restart, the number is %d, want %d", number, second)
	}
}

func TestReplicasPublishOneBundle(t *testing.T) {
	t.Parallel()
	publishTogether(t, newAPIServer(t).kubeconfig())
}
