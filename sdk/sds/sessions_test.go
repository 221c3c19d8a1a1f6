package sds_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// doorman admits every caller with a token that begins with "good", and gives each its
// own secret.
type doorman struct {
	*secrettest.Source
	mu    sync.Mutex
	last  uint64
	names map[uint64]string
	over  map[string]bool
	left  chan uint64
}

func newDoorman() *doorman {
	return &doorman{Source: secrettest.New(), names: map[uint64]string{}, over: map[string]bool{}, left: make(chan uint64, 100)}
}

func (d *doorman) Join(_ context.Context, peer secret.Caller, token ca.Token) (secret.Caller, error) {
	name, good := strings.CutPrefix(token.Reveal(), "good-")
	switch {
	case token == "":
		name = peer.ID
	case token == "many":
		return peer, ca.Errorf(ca.RateLimited, "the limit of doors is reached: 1")
	case !good:
		return peer, fmt.Errorf("not for the client: %w", ca.Errorf(ca.Unauthenticated, "the token is not good"))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	d.names[d.last] = name
	peer.Session = d.last
	return peer, nil
}

func (d *doorman) Leave(caller secret.Caller) { d.left <- caller.Session }

func (d *doorman) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	who := d.names[caller.Session]
	if d.over[who] {
		return nil, fmt.Errorf("%w: %w", secret.ErrEnded, ca.Errorf(ca.Unauthenticated, "the token has expired"))
	}
	if name != "default" {
		return nil, secret.ErrUnknown
	}
	return keyPair(who), nil
}

// end ends the right of one.
func (d *doorman) end(who string) {
	d.mu.Lock()
	d.over[who] = true
	d.mu.Unlock()
	d.Put(keyPair(who))
}

func startDoorman(t *testing.T, cfg sds.Config) (*doorman, string) {
	t.Helper()
	d := newDoorman()
	cfg.Sessions = d
	return d, start(t, d, cfg)
}

// with is a context whose calls have metadata.
func with(t *testing.T, pairs ...string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(pairs...))
}

// keyFor returns the key that a call with that metadata gets, or its status.
func keyFor(ctx context.Context, client secretv3.SecretDiscoveryServiceClient) string {
	answer, err := client.FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{ResourceNames: []string{"default"}})
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return string(answer.Resources[0].GetValue())
}

func TestStreamHasIdentityOfItsToken(t *testing.T) {
	_, socket := startDoorman(t, sds.Config{})
	client := secretv3.NewSecretDiscoveryServiceClient(dial(t, socket))
	long := "good-" + strings.Repeat("x", 30_000)
	for name, c := range map[string]struct {
		pairs []string
		want  string
	}{
		"by authorization":      {[]string{"authorization", "Bearer good-web"}, "key web"},
		"in any case":           {[]string{"authorization", "bearer good-web"}, "key web"},
		"by the old header":     {[]string{"istio_sds_credentials_header-bin", "good-db"}, "key db"},
		"with the word in it":   {[]string{"istio_sds_credentials_header-bin", "Bearer good-db"}, "key db"},
		"by both, the same":     {[]string{"authorization", "Bearer good-web", "istio_sds_credentials_header-bin", "good-web"}, "key web"},
		"without one":           {nil, "key uid:"},
		"a long one":            {[]string{"authorization", "Bearer " + long}, "key xxx"},
		"a bad one":             {[]string{"authorization", "Bearer bad"}, "Unauthenticated: unauthenticated: the token is not good"},
		"beyond a limit":        {[]string{"authorization", "Bearer many"}, "ResourceExhausted: rate limited: the limit of doors is reached: 1"},
		"by both, two":          {[]string{"authorization", "Bearer good-web", "istio_sds_credentials_header-bin", "good-db"}, "Unauthenticated: unauthenticated: the metadata \"istio_sds_credentials_header-bin\" has another token"},
		"twice":                 {[]string{"authorization", "Bearer good-web", "authorization", "Bearer good-db"}, "there 2 times"},
		"another scheme":        {[]string{"authorization", "Basic good-web"}, "not of the form: Bearer <token>"},
		"an empty one":          {[]string{"istio_sds_credentials_header-bin", ""}, "has an empty token"},
		"with a line break":     {[]string{"istio_sds_credentials_header-bin", "good-web\nx"}, "not printable ASCII"},
		"with a zero":           {[]string{"istio_sds_credentials_header-bin", "good-web\x00"}, "not printable ASCII"},
		"in a header not known": {[]string{"x-token", "good-web"}, "key uid:"},
	} {
		got := keyFor(with(t, c.pairs...), client)
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %.300q, want %q", name, got, c.want)
		}
		if strings.Contains(got, "not for the client") {
			t.Errorf("%s: the client learns too much: %s", name, got)
		}
	}
}

func TestTokenHeaderIsConfigurable(t *testing.T) {
	_, socket := startDoorman(t, sds.Config{TokenHeaders: []string{"x-token"}})
	client := secretv3.NewSecretDiscoveryServiceClient(dial(t, socket))
	if got := keyFor(with(t, "x-token", "good-web", "authorization", "Bearer good-db"), client); !strings.Contains(got, "key web") {
		t.Errorf("got %q", got)
	}
}

func TestEndedStreamsAndFetchesLeave(t *testing.T) {
	d, socket := startDoorman(t, sds.Config{})
	conn := dial(t, socket)
	ctx, cancel := context.WithCancel(with(t, "authorization", "Bearer good-web"))
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx)
	must(t, err)
	c := &client{SecretDiscoveryService_StreamSecretsClient: stream, t: t}
	c.ask("default")
	c.get()
	cancel()
	leaves(t, d, 1)
	keyFor(with(t, "authorization", "Bearer good-db"), secretv3.NewSecretDiscoveryServiceClient(conn))
	leaves(t, d, 2)
	if _, err := healthv1.NewHealthClient(conn).Check(with(t), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err) // needs no session
	}
}

func leaves(t *testing.T, d *doorman, want uint64) {
	t.Helper()
	select {
	case got := <-d.left:
		if got != want {
			t.Errorf("stream %d left, want %d", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("stream %d did not leave", want)
	}
}

func TestEndedRightEndsOnlyItsStream(t *testing.T) {
	d, socket := startDoorman(t, sds.Config{})
	service := secretv3.NewSecretDiscoveryServiceClient(dial(t, socket))
	var streams []*client
	for _, token := range []string{"good-web", "good-db"} {
		stream, err := service.StreamSecrets(with(t, "authorization", "Bearer "+token))
		must(t, err)
		c := &client{SecretDiscoveryService_StreamSecretsClient: stream, t: t}
		c.ask("default")
		c.get()
		streams = append(streams, c)
	}
	d.end("web")
	if _, err := streams[0].Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "the token has expired") {
		t.Errorf("the stream ended with %v", err)
	}
	if len(d.left) == 0 {
		t.Error("its client learned of the end before its place was free")
	}
	leaves(t, d, 1)
	streams[1].ask("more")
	streams[1].ask("default") // asked for anew, so sent again
	streams[1].get()
}

func TestSilentStreamIsRecycled(t *testing.T) {
	d, socket := startDoorman(t, sds.Config{Recycle: 50 * time.Millisecond})
	service := secretv3.NewSecretDiscoveryServiceClient(dial(t, socket))
	mute, err := service.StreamSecrets(with(t, "authorization", "Bearer good-web"))
	must(t, err)
	if _, err := mute.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no activity on this stream") {
		t.Errorf("the stream ended with %v", err)
	}
	leaves(t, d, 1)
}
