package sds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// openADS asks for names on an incremental stream of all types.
func openADS(ctx context.Context, t *testing.T, conn *grpc.ClientConn, names ...string) *deltaClient {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	must(t, err)
	c := &deltaClient{stream, t, map[string]string{}}
	c.subscribe(names...)
	return c
}

func (c *deltaClient) subscribe(names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: names})
}

func TestOneADSStreamCarriesManySecrets(t *testing.T) {
	var items []*secret.Item
	var names []string
	for i := range 1500 {
		names = append(names, fmt.Sprintf("%04d.example.org", i))
		items = append(items, &secret.Item{Name: names[i], Kind: secret.KeyPair, Version: "1", Chain: []byte("chain"), Key: []byte("key")})
	}
	server, path := startServer(t, secrettest.New(items...), sds.Config{})
	c := openADS(with(t), t, dial(t, path))
	for _, name := range names {
		c.subscribe(name)
	}
	for got := 0; got < len(names); got = len(c.versions) {
		if _, removed := c.get(); len(removed) > 0 {
			t.Fatalf("%d names are removed", len(removed))
		}
	}
	if streams := server.Streams(); streams != 1 {
		t.Errorf("there are %d streams, want one", streams)
	}
}

func TestADSRefusesAnUnknownNameAloneAndServesItLater(t *testing.T) {
	source := secrettest.New(keyPair("1"))
	c := openADS(with(t), t, dial(t, start(t, source, sds.Config{})), "stranger", "default")
	got, removed := c.get()
	if len(got) != 1 || got["default"] == nil || !slices.Equal(removed, []string{"stranger"}) {
		t.Fatalf("got %v and the removal of %v", got, removed)
	}
	source.Put(&secret.Item{Name: "stranger", Kind: secret.KeyPair, Version: "1", Chain: []byte("chain"), Key: []byte("key")})
	c.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"stranger"}})
	c.subscribe("stranger")
	c.gets("stranger")
}

func TestADSServesStateOfTheWorld(t *testing.T) {
	conn := dial(t, start(t, secrettest.New(keyPair("1"), bundle("1")), sds.Config{}))
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(with(t))
	must(t, err)
	c := &client{stream, t, nil}
	c.ask("default", "ROOTCA")
	if got := c.get(); len(got) != 2 {
		t.Errorf("got %d secrets, want 2", len(got))
	}
}

func TestADSRefusesOtherTypes(t *testing.T) {
	conn := dial(t, start(t, secrettest.New(keyPair("1")), sds.Config{}))
	const clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	delta, err := client.DeltaAggregatedResources(with(t))
	if err == nil {
		err = delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusters})
	}
	must(t, err)
	_, err = delta.Recv()
	wantRefusedType(t, err)
	world, err := client.StreamAggregatedResources(with(t))
	if err == nil {
		err = world.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusters})
	}
	must(t, err)
	_, err = world.Recv()
	wantRefusedType(t, err)
}

func wantRefusedType(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), sds.TypeURL) {
		t.Errorf("the stream ended with %v, want InvalidArgument and the type that is served", err)
	}
}

func TestADSStreamHasIdentityAndLimitsOfItsToken(t *testing.T) {
	d, socket := startDoorman(t, sds.Config{Limits: xds.Limits{MaxNames: 3}})
	conn := dial(t, socket)
	c := openADS(with(t, "authorization", "Bearer good-web"), t, conn, "default")
	if key := c.gets("default")["default"].GetTlsCertificate().GetPrivateKey().GetInlineBytes(); string(key) != "key web" {
		t.Errorf("got %q, want the key of the token's identity", key)
	}
	c.subscribe("a", "b", "c", "d")
	if _, err := c.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a fifth name of three ended the stream with %v", err)
	}
	if session := <-d.left; session != 1 {
		t.Errorf("session %d has left, want 1", session)
	}
	bad, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(metadata.NewOutgoingContext(with(t), metadata.Pairs("authorization", "Bearer bad")))
	if err == nil {
		_, err = bad.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a bad token ended the stream with %v", err)
	}
}

// folding knows names in any case, as a source of DNS names does.
type folding struct{ *secrettest.Source }

func (f folding) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	return f.Source.Peek(caller, strings.ToLower(name))
}

func TestSecretIsServedUnderTheNameAsRequested(t *testing.T) {
	source := folding{secrettest.New(&secret.Item{Name: "a.example.org", Kind: secret.KeyPair, Version: "1", Chain: []byte("chain"), Key: []byte("key")})}
	conn := dial(t, start(t, source, sds.Config{}))
	c := openADS(with(t), t, conn, "a.EXAMPLE.org", "a.example.org")
	c.gets("a.EXAMPLE.org", "a.example.org") // get compares the names in the resource and in the secret
	source.Put(&secret.Item{Name: "a.example.org", Kind: secret.KeyPair, Version: "2", Chain: []byte("chain"), Key: []byte("key")})
	for got := 0; got < 2; {
		secrets, _ := c.get()
		got += len(secrets)
	}
}

// An Envoy that connects again lists its names and versions in one request.
func TestClientOfManyNamesConnectsAgain(t *testing.T) {
	const n = 50_000
	source := secrettest.New(keyPair("1"))
	c := openADS(with(t), t, dial(t, start(t, source, sds.Config{Limits: xds.Limits{MaxNames: n + 1}})))
	versions, names := map[string]string{}, []string{"default"}
	for i := range n {
		name := fmt.Sprintf("%050d.example.org", i)
		versions[name], names = strings.Repeat("v", 64), append(names, name)
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: names, InitialResourceVersions: versions})
	removed := 0
	for removed < n {
		_, gone := c.get()
		removed += len(gone)
	}
}
