package e2e

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/xds"
)

//go:embed envoy/secrets.yaml
var secretsBootstrap string

// TestSecretThatEnvoyRefusesTakesNoOtherWithIt starts fresh Envoys whose secrets are all on one
// ADS stream: the owner of one of them must not keep the others from a gateway.
func TestSecretThatEnvoyRefusesTakesNoOtherWithIt(t *testing.T) {
	byEachAPI(t, func(t *testing.T, api apiType) {
		secrets := map[string]crypto.Signer{"b-odd": rsaKey(t, 1024), "f-odd": curve(t, elliptic.P224())}
		var good []string
		for _, name := range []string{"a", "c", "d", "e", "g", "h", "i"} {
			secrets[name] = curve(t, elliptic.P256())
			good = append(good, name)
		}
		s := serveSecrets(t, secrets)
		for _, start := range []string{"a fresh gateway", "the gateway after a restart"} {
			t.Run(start, func(t *testing.T) {
				e := s.startEnvoy(t, api)
				poll(t, "the good secrets", func() bool { return slices.Equal(e.secrets(t), good) })
				poll(t, "what is at fault", func() bool { return s.left() == 2 })
			})
		}
	})
}

func curve(t *testing.T, c elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T, bits int) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// secretServer serves secrets by ADS.
type secretServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	engine *xds.Engine[string]
	port   string
	names  []string

	mu   sync.Mutex
	last xds.Event[string]
}

func serveSecrets(t *testing.T, keys map[string]crypto.Signer) *secretServer {
	t.Helper()
	source, root := fixedSecrets{}, certtest.Root(t)
	for name, key := range keys {
		source[name] = secretOf(t, root, name, key)
	}
	s := &secretServer{names: slices.Sorted(maps.Keys(keys))}
	engine, err := xds.New(xds.Config[string]{
		Types:   []xds.Type[string]{{URL: sds.TypeURL, Source: source}},
		Admit:   func(context.Context) (string, error) { return "gateway", nil },
		Observe: s.observe, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.engine = engine
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(listener.Addr().String())
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { engine.Close(nil); server.Stop(); served.Wait() })
	return s
}

func (s *secretServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.engine.Stream(stream, "")
}

func (s *secretServer) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.engine.StreamDelta(stream, "")
}

func (s *secretServer) observe(e xds.Event[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind == xds.Acked || e.Kind == xds.Nacked || e.Kind == xds.Opened {
		s.last = e
	}
}

// left returns how many secrets the client of the last stream refuses.
func (s *secretServer) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Left
}

func (s *secretServer) startEnvoy(t *testing.T, api apiType) *envoy {
	t.Helper()
	listeners := "  listeners:\n"
	for _, name := range s.names {
		listeners += strings.ReplaceAll(`    - name: NAME
      address:
        socket_address: {address: 127.0.0.1, port_value: 0}
      filter_chains:
        - transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              common_tls_context:
                tls_certificate_sds_secret_configs:
                  - {name: NAME, sds_config: {ads: {}, resource_api_version: V3}}
          filters:
            - name: envoy.filters.network.tcp_proxy
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
                stat_prefix: NAME
                cluster: discovery
`, "NAME", name)
	}
	return runEnvoy(t, secretsBootstrap, map[string]string{"Service": s.port, "APIType": string(api), "Listeners": listeners})
}

// secrets returns the names of the listeners whose certificate Envoy has loaded.
func (e *envoy) secrets(t *testing.T) (names []string) {
	t.Helper()
	var page struct {
		Certificates []struct {
			Chain []struct {
				Names []struct{ URI string } `json:"subject_alt_names"`
			} `json:"cert_chain"`
		}
	}
	text := e.get(t, "/certs")
	if text == "" {
		return nil // Envoy does not listen yet
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, c := range page.Certificates {
		for _, cert := range c.Chain {
			for _, name := range cert.Names {
				if of, ours := strings.CutPrefix(name.URI, "spiffe://example.org/"); ours {
					names = append(names, of)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func secretOf(t *testing.T, root *certtest.Pair, name string, key crypto.Signer) *xds.Resource {
	t.Helper()
	cert := root.Sign(t, certtest.Leaf(t, time.Hour, "spiffe://example.org/"+name), key.Public())
	encoded, err := pki.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	inline := func(content []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: content}}
	}
	body, err := anypb.New(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})), PrivateKey: inline(encoded),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return &xds.Resource{Name: name, Version: "1", Body: body}
}

// fixedSecrets never change.
type fixedSecrets map[string]*xds.Resource

func (s fixedSecrets) Peek(_, name string) (*xds.Resource, error) {
	if r := s[name]; r != nil {
		return r, nil
	}
	return nil, xds.ErrUnknown
}

func (fixedSecrets) Watch(string, string, func(string)) (func(), error) { return func() {}, nil }
