package grpccreds_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/tlsconfig/grpccreds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// hold obtains and rotates "default" and "ROOTCA" until the test ends. A root that
// the authority drops goes at once.
func hold(t *testing.T, authority *catest.CA, spiffeID string) *secret.Manager {
	t.Helper()
	return holdKeyOf(t, authority, spiffeID, "")
}

// holdKeyOf is hold with a type of key.
func holdKeyOf(t *testing.T, authority *catest.CA, spiffeID string, kind pki.KeyType) *secret.Manager {
	t.Helper()
	id, err := pki.NewIdentity(spiffeID, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: authority, RootOverlap: new(time.Duration)}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, KeyType: kind, Authorities: []string{"test"}, TTL: time.Hour},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	get(t, manager, "default")
	get(t, manager, "ROOTCA")
	return manager
}

func get(t *testing.T, source secret.Source, name string) *secret.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	item, err := secret.Get(ctx, source, secret.Caller{}, name)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// rotate has the authority begin anew, and waits until all have what is new.
func rotate(t *testing.T, authority *catest.CA, all ...*secret.Manager) {
	t.Helper()
	changed := make(chan string, 100)
	for _, m := range all {
		stop, err := m.Watch(secret.Caller{}, "default", func(name string) { changed <- name })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	authority.Rotate()
	for range all {
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatal("no new certificate came")
		}
	}
}

func options(source secret.Source) tlsconfig.Options {
	return tlsconfig.Options{Source: source, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org")}
}

// serve serves gRPC's health service until the test ends.
func serve(t *testing.T, o tlsconfig.Options) (address string) {
	t.Helper()
	creds, err := grpccreds.Server(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(creds))
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func dial(t *testing.T, address string, o tlsconfig.Options) healthv1.HealthClient {
	t.Helper()
	creds, err := grpccreds.Client(o)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthv1.NewHealthClient(conn)
}

// serverOf makes a call and returns the certificate that the server showed.
func serverOf(t *testing.T, client healthv1.HealthClient) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var with peer.Peer
	if _, err := client.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&with), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	return pki.Fingerprint(with.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0])
}

func TestConnectionSurvivesRotationAndNextUsesNewCertificate(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := hold(t, authority, "spiffe://example.org/web"), hold(t, authority, "spiffe://example.org/app")
	address := serve(t, options(web))
	before := dial(t, address, options(app))
	first := serverOf(t, before)
	if want := get(t, web, "default").Fingerprint; first != want {
		t.Errorf("the server showed %s, not %s", first, want)
	}
	rotate(t, authority, web, app)
	if again := serverOf(t, before); again != first {
		t.Error("the connection was made anew")
	}
	if got, want := serverOf(t, dial(t, address, options(app))), get(t, web, "default").Fingerprint; got != want || got == first {
		t.Errorf("a new connection saw %s, not %s", got, want)
	}
}

func TestServerOfOtherTrustDomainIsNotCalled(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := hold(t, authority, "spiffe://example.com/web"), hold(t, authority, "spiffe://example.org/app")
	creds, err := grpccreds.Client(options(app))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", serve(t, options(web)))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, _, err := creds.ClientHandshake(t.Context(), "web", raw); !errors.Is(err, tlsconfig.ErrTrustDomain) {
		t.Errorf("got %v", err)
	}
}

func TestCallsGoOverMLDSAThroughRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	if _, err := pki.ParseKeyType(string(pki.MLDSA44)); err != nil {
		t.Skip(err)
	}
	authority := catest.NewCA(catest.Options{KeyType: pki.MLDSA65, Intermediates: 1})
	web := holdKeyOf(t, authority, "spiffe://example.org/web", pki.MLDSA44)
	app := holdKeyOf(t, authority, "spiffe://example.org/app", pki.MLDSA87)
	address := serve(t, options(web))
	for range 2 {
		if got, want := serverOf(t, dial(t, address, options(app))), get(t, web, "default").Fingerprint; got != want {
			t.Errorf("the server showed %s, not %s", got, want)
		}
		rotate(t, authority, web, app)
	}
}
