package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"regexp"
	"testing"

	"github.com/countersign-dev/countersign/sdk/pki"
)

func needMLDSA(t *testing.T) {
	t.Helper()
	needEnvoy(t)
	if _, err := pki.ParseKeyType(string(pki.MLDSA44)); err != nil {
		t.Skip(err)
	}
}

// postQuantum is a bootstrap whose TLS takes these key exchanges alone, and signatures of ML-DSA
// besides those of ECDSA. Envoy 1.40 has all of them, and takes none that is post-quantum unless
// told; as a client it has TLS 1.2 alone, which has none.
func postQuantum(bootstrap, curves string) string {
	return regexp.MustCompile(`(?m)^( +)common_tls_context:$`).ReplaceAllString(bootstrap,
		"$0\n$1  tls_params: {tls_minimum_protocol_version: TLSv1_3, tls_maximum_protocol_version: TLSv1_3, ecdh_curves: ["+curves+"], signature_algorithms: [mldsa44, mldsa65, ecdsa_secp256r1_sha256]}")
}

// Two Envoys as they are released talk to each other, each request on a connection of its own,
// below a root of ML-DSA-65 and with leaves of ML-DSA-44, and exchange keys by X25519MLKEM768
// alone. crypto/tls talks to one of them, too.
func TestEnvoysTalkPostQuantumThroughRotations(t *testing.T) {
	t.Parallel()
	needMLDSA(t)
	a := prepareAgent(t, agentConfig{})
	a.edit(t, func(c map[string]any) { c["key_type"] = "ml-dsa-44" })
	writeCAOf(t, a.ca, "post-quantum root", pki.MLDSA65)
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	a.log.await(t, "few peers can use ML-DSA keys")
	server := runEnvoy(t, postQuantum(bootstrap, "X25519MLKEM768, X25519"), serverFields(a.socket, stateOfTheWorld, "default", "ROOTCA")).address(t)
	w := startWorkload(t, a.socket, "client")
	direct := startProber(t, w, server, envoyID)
	address := startClientEnvoy(t, postQuantum(clientBootstrap, "X25519MLKEM768"), a.socket, incremental, server)
	between := startProberBy(t, w, func(ctx context.Context) (*x509.Certificate, error) { return nil, askThrough(ctx, address) })
	mustExchange(t, w, server, tls.X25519MLKEM768)
	for range 3 {
		if leaf := direct.awaitRotation(t); pki.KeyTypeOf(leaf.PublicKey) != pki.MLDSA44 || leaf.SignatureAlgorithm.String() != "ML-DSA-65" {
			t.Errorf("Envoy shows a key of %s, signed with %s", pki.KeyTypeOf(leaf.PublicKey), leaf.SignatureAlgorithm)
		}
		between.awaitHandshakes(t, 5)
	}
	for _, p := range []*prober{direct, between} {
		p.noFailures(t)
	}
}

// mustExchange demands that a server and crypto/tls as it is agree on a key exchange.
func mustExchange(t *testing.T, w *workload, server string, want tls.CurveID) {
	t.Helper()
	config := w.tlsConfig(envoyID)
	config.CurvePreferences = nil
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", server)
	mustDo(t, err)
	defer conn.Close()
	if got := conn.(*tls.Conn).ConnectionState().CurveID; got != want {
		t.Errorf("the key exchange is %s, not %s", got, want)
	}
}

// A mesh moves from ECDSA to ML-DSA in two steps: first the CA, whose new root goes out before
// anything that it signed, then the keys of the leaves.
func TestMoveFromECDSAToMLDSACostsNoHandshake(t *testing.T) {
	t.Parallel()
	needMLDSA(t)
	a := startAgent(t, agentConfig{})
	server := runEnvoy(t, postQuantum(bootstrap, "X25519MLKEM768, X25519"), serverFields(a.socket, incremental, "default", "ROOTCA")).address(t)
	w := startWorkload(t, a.socket, "client")
	direct := startProber(t, w, server, envoyID)
	address := startClientEnvoy(t, postQuantum(clientBootstrap, "X25519MLKEM768"), a.socket, stateOfTheWorld, server)
	between := startProberBy(t, w, func(ctx context.Context) (*x509.Certificate, error) { return nil, askThrough(ctx, address) })

	next := pki.NewBundle(writeCAOf(t, a.ca, "post-quantum root", pki.MLDSA65))
	direct.awaitSigner(t, "post-quantum root")
	a.reconfigure(t, func(c map[string]any) { c["key_type"] = "ml-dsa-44" })
	direct.await(t, "Envoy's new key", func() bool { return pki.KeyTypeOf(direct.last().PublicKey) == pki.MLDSA44 })
	w.await(t, "a new key", func() bool { return pki.KeyTypeOf(w.pair.Leaf.PublicKey) == pki.MLDSA44 })
	w.await(t, "the new root alone", func() bool { return w.roots.Equal(next) })
	for _, p := range []*prober{direct, between} {
		p.awaitHandshakes(t, 10)
		p.noFailures(t)
	}
}
