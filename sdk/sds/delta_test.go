package sds_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// deltaClient is one incremental stream of a client that acknowledges all it gets.
type deltaClient struct {
	secretv3.SecretDiscoveryService_DeltaSecretsClient
	t        *testing.T
	versions map[string]string // of what it holds
}

// openDelta asks for names, as a client that holds versions from an earlier stream.
func openDelta(t *testing.T, conn *grpc.ClientConn, versions map[string]string, names ...string) *deltaClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).DeltaSecrets(ctx)
	must(t, err)
	c := &deltaClient{stream, t, map[string]string{}}
	maps.Copy(c.versions, versions)
	c.send(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: versions, ResourceNamesSubscribe: names})
	return c
}

func (c *deltaClient) send(req *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	req.TypeUrl = sds.TypeURL
	if err := c.Send(req); err != nil {
		c.t.Fatal(err)
	}
}

// get returns the next answer's secrets by name and the names that it removes, and
// acknowledges it.
func (c *deltaClient) get() (map[string]*tlsv3.Secret, []string) {
	c.t.Helper()
	answer, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	got := map[string]*tlsv3.Secret{}
	for _, resource := range answer.GetResources() {
		var s tlsv3.Secret
		if err := resource.GetResource().UnmarshalTo(&s); err != nil {
			c.t.Fatal(err)
		}
		if s.Name != resource.GetName() {
			c.t.Errorf("the resource %q is the secret %q", resource.GetName(), s.Name)
		}
		got[s.Name] = &s
		c.versions[s.Name] = resource.GetVersion()
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: answer.GetNonce()})
	return got, answer.GetRemovedResources()
}

// gets demands secrets of these names, sorted, and no removal.
func (c *deltaClient) gets(want ...string) map[string]*tlsv3.Secret {
	c.t.Helper()
	got, removed := c.get()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) || len(removed) > 0 {
		c.t.Fatalf("got %v and the removal of %v, want %v", names, removed, want)
	}
	return got
}

func TestDeltaResendsOnlyChangedSecrets(t *testing.T) {
	source := secrettest.New(keyPair("1"), bundle("1"))
	c := openDelta(t, dial(t, start(t, source, sds.Config{})), nil, "default", "ROOTCA")
	if pair := c.gets("ROOTCA", "default")["default"].GetTlsCertificate(); string(pair.GetPrivateKey().GetInlineBytes()) != "key 1" {
		t.Errorf("default has a key of %d bytes", len(pair.GetPrivateKey().GetInlineBytes()))
	}
	source.Put(keyPair("2"))
	second := c.gets("default")
	if string(second["default"].GetTlsCertificate().GetCertificateChain().GetInlineBytes()) != "chain 2" {
		t.Error("after the rotation came another chain")
	}
}

func TestDeltaStreamResumesFromHeldVersions(t *testing.T) {
	source := secrettest.New(keyPair("1"), bundle("1"))
	conn := dial(t, start(t, source, sds.Config{}))
	first := openDelta(t, conn, nil, "default", "ROOTCA")
	first.gets("ROOTCA", "default")
	source.Put(keyPair("2"))
	second := openDelta(t, conn, first.versions, "default", "ROOTCA")
	second.gets("default")
	source.Put(bundle("2"))
	second.gets("ROOTCA")
}

func TestUnknownDeltaNameIsRemovedAndOthersServed(t *testing.T) {
	source := secrettest.New(keyPair("1"))
	c := openDelta(t, dial(t, start(t, source, sds.Config{})), nil, "kubernetes://stolen", "default")
	got, removed := c.get()
	if len(got) != 1 || got["default"] == nil || !slices.Equal(removed, []string{"kubernetes://stolen"}) {
		t.Errorf("got %v and the removal of %v", got, removed)
	}
	source.Put(keyPair("2"))
	c.gets("default")
}
