package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	sdkagent "github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	ourtls "github.com/countersign-dev/countersign/sdk/tlsconfig"
	ourapi "github.com/countersign-dev/countersign/sdk/workloadapi"
)

// embedded is an agent in this process that serves the Workload API.
type embedded struct {
	t      *testing.T
	ca     *catest.CA
	config sdkagent.Config
	stop   func()
}

func newEmbedded(t *testing.T) *embedded {
	t.Helper()
	return newEmbeddedWith(t, "", func(*sdkagent.Config) {})
}

// newEmbeddedWith is newEmbedded with keys of a type for the CA, and another configuration.
func newEmbeddedWith(t *testing.T, authority pki.KeyType, change func(*sdkagent.Config)) *embedded {
	t.Helper()
	dir := proctest.Folder(t)
	e := &embedded{t: t, ca: catest.NewCA(catest.Options{KeyType: authority, Intermediates: 1})}
	e.config = sdkagent.Config{
		Authorities: []secret.Authority{{Name: "test", Client: e.ca, RootOverlap: new(time.Duration)}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: spiffe(t, "spiffe://example.org/web"), TTL: time.Hour, Authorities: []string{"test"}},
			{Name: "edge", Kind: secret.KeyPair, Identity: spiffe(t, "spiffe://example.org/edge"), TTL: time.Hour, Authorities: []string{"test"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
		Socket: sds.Config{Path: filepath.Join(dir, "sds")},
		WorkloadAPI: ourapi.Config{Path: filepath.Join(dir, "spiffe"), Offer: ourapi.Offer{
			Identities: []ourapi.Identity{{Certificate: "default", Roots: "ROOTCA", Hint: "internal"}, {Certificate: "edge", Roots: "ROOTCA", Hint: "external"}},
		}},
		Log: slog.New(slog.DiscardHandler),
	}
	change(&e.config)
	e.start()
	t.Cleanup(func() { e.stop() })
	return e
}

func spiffe(t *testing.T, id string) pki.Identity {
	t.Helper()
	identity, err := pki.NewIdentity(id, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func (e *embedded) start() *sdkagent.Agent {
	e.t.Helper()
	a, err := sdkagent.New(e.config)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	e.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			e.t.Error(err)
		}
		e.stop = func() {}
	}
	return a
}

func (e *embedded) source() *workloadapi.X509Source {
	e.t.Helper()
	return x509Source(e.t, e.config.WorkloadAPI.Path)
}

// x509Source is go-spiffe's, as an application has it.
func x509Source(t *testing.T, socket string) *workloadapi.X509Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+socket)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return source
}

// another waits until go-spiffe has another certificate than the one with this serial.
func another(t *testing.T, source *workloadapi.X509Source, serial string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		if now := serialOf(t, source); now != serial {
			return now
		}
		select {
		case <-source.Updated():
		case <-deadline:
			t.Fatal("no other certificate came")
		}
	}
}

func serialOf(t *testing.T, source *workloadapi.X509Source) string {
	t.Helper()
	svid, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	return svid.Certificates[0].SerialNumber.String()
}

func TestGoSPIFFEFollowsRotationsAndRestarts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	e := newEmbedded(t)
	source := e.source()
	svid, err := source.GetX509SVID()
	if err != nil || svid.ID.String() != "spiffe://example.org/web" || svid.Hint != "internal" {
		t.Fatalf("got %v, %v", svid, err)
	}
	e.ca.Rotate()
	second := another(t, source, svid.Certificates[0].SerialNumber.String())
	bundle, err := source.GetX509BundleForTrustDomain(spiffeid.RequireTrustDomainFromString("example.org"))
	if err != nil || len(bundle.X509Authorities()) != 1 || !bundle.X509Authorities()[0].Equal(e.ca.Bundle().Certificates()[0]) {
		t.Errorf("the bundle is not the new root: %v", err)
	}
	e.stop()
	if serialOf(t, source) != second {
		t.Error("the certificate is gone with the agent")
	}
	e.start()
	another(t, source, second)
}

func TestGoSPIFFESurvivesRotationAndKilledAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(proctest.Folder(t), "spiffe")
	a := startAgent(t, agentConfig{selfSigned: true, workloadAPI: map[string]any{
		"socket": socket, "identities": []map[string]any{{"name": "client", "hint": "out"}, {"name": "default", "hint": "in"}},
	}})
	source := x509Source(t, socket)
	svid, err := source.GetX509SVID()
	if err != nil || svid.ID.String() != clientID || svid.Hint != "out" {
		t.Fatalf("got %v, %v", svid, err)
	}
	second := another(t, source, svid.Certificates[0].SerialNumber.String())
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	another(t, source, second)
}

func TestGoSPIFFESeesAllIdentitiesWithHints(t *testing.T) {
	t.Parallel()
	e := newEmbedded(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addr := workloadapi.WithAddr("unix://" + e.config.WorkloadAPI.Path)
	for { // the second may come a moment later
		all, err := workloadapi.FetchX509SVIDs(ctx, addr)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 2 {
			if all[0].Hint != "internal" || all[1].Hint != "external" || all[1].ID.String() != "spiffe://example.org/edge" {
				t.Errorf("got %v and %v", all[0], all[1])
			}
			break
		}
	}
	both, err := workloadapi.NewBundleSource(ctx, workloadapi.WithClientOptions(addr)) // it waits for both kinds
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	if set, err := both.GetBundleForTrustDomain(spiffeid.RequireTrustDomainFromString("example.org")); err != nil || len(set.X509Authorities()) == 0 || len(set.JWTAuthorities()) != 0 {
		t.Errorf("got %v, %v", set, err)
	}
	if bundles, err := workloadapi.FetchX509Bundles(ctx, addr); err != nil || bundles.Len() != 1 {
		t.Errorf("%v", err)
	}
}

// One side is go-spiffe with its own tlsconfig, the other ours.
func TestTLSInteroperatesWithGoSPIFFEThroughRotation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	e := newEmbedded(t)
	theirs := e.source()
	own, err := secret.New(secret.Config{Authorities: e.config.Authorities, Secrets: e.config.Secrets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	for _, name := range []string{"default", "ROOTCA"} {
		if _, err := own.Get(t.Context(), secret.Caller{}, name); err != nil {
			t.Fatal(err)
		}
	}
	options := ourtls.Options{Source: own, Certificate: "default", Roots: "ROOTCA", Peer: ourtls.SPIFFEID("spiffe://example.org/web")}
	member := tlsconfig.AuthorizeMemberOf(spiffeid.RequireTrustDomainFromString("example.org"))
	ourServer, err := ourtls.Server(options)
	if err != nil {
		t.Fatal(err)
	}
	ourClient, err := ourtls.Client(options)
	if err != nil {
		t.Fatal(err)
	}
	toOurs := httpServer(t, ourServer)
	toTheirs := httpServer(t, tlsconfig.MTLSServerConfig(theirs, theirs, member))
	for round := range 3 {
		for what, get := range map[string]error{
			"go-spiffe to us": fetchOnce(toOurs, tlsconfig.MTLSClientConfig(theirs, theirs, member)),
			"we to go-spiffe": fetchOnce(toTheirs, ourClient),
		} {
			if get != nil {
				t.Errorf("round %d, %s: %v", round, what, get)
			}
		}
		serial, held := serialOf(t, theirs), version(t, own)
		e.ca.Rotate()
		another(t, theirs, serial)
		poll(t, "our certificate is new", func() bool { return version(t, own) != held })
	}
}

// go-spiffe 2.9.0 verifies ML-DSA by crypto/x509, and refuses to hold a key of it.
func TestGoSPIFFETrustsMLDSAAndHoldsNoKeyOfIt(t *testing.T) {
	t.Parallel()
	if _, err := pki.ParseKeyType(string(pki.MLDSA44)); err != nil {
		t.Skip(err)
	}
	e := newEmbeddedWith(t, pki.MLDSA65, func(c *sdkagent.Config) {
		c.Secrets[1].KeyType = pki.MLDSA44 // ours, which the Workload API does not offer
		c.WorkloadAPI.Identities = c.WorkloadAPI.Identities[:1]
	})
	theirs := e.source()
	own, err := secret.New(secret.Config{Authorities: e.config.Authorities, Secrets: e.config.Secrets})
	mustDo(t, err)
	t.Cleanup(func() { own.Close() })
	for _, name := range []string{"edge", "ROOTCA"} {
		_, err := own.Get(t.Context(), secret.Caller{}, name)
		mustDo(t, err)
	}
	options := ourtls.Options{Source: own, Certificate: "edge", Roots: "ROOTCA", Peer: ourtls.SPIFFEID("spiffe://example.org/web")}
	ourServer, err := ourtls.Server(options)
	mustDo(t, err)
	ourClient, err := ourtls.Client(options)
	mustDo(t, err)
	member := tlsconfig.AuthorizeMemberOf(spiffeid.RequireTrustDomainFromString("example.org"))
	mustDo(t, fetchOnce(httpServer(t, ourServer), tlsconfig.MTLSClientConfig(theirs, theirs, member)))
	mustDo(t, fetchOnce(httpServer(t, tlsconfig.MTLSServerConfig(theirs, theirs, member)), ourClient))

	e = newEmbeddedWith(t, "", func(c *sdkagent.Config) { c.Secrets[1].KeyType = pki.MLDSA44 })
	addr := workloadapi.WithAddr("unix://" + e.config.WorkloadAPI.Path)
	poll(t, "go-spiffe to refuse all, as one has a key of ML-DSA", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := workloadapi.FetchX509SVIDs(ctx, addr)
		return err != nil && strings.Contains(err.Error(), "unsupported private key type *mldsa.PrivateKey")
	})
}

func version(t *testing.T, source secret.Source) string {
	t.Helper()
	item, err := source.Peek(secret.Caller{}, "default")
	if err != nil {
		t.Fatal(err)
	}
	return item.Version
}

// httpServer answers "hello" over TLS until the test ends.
func httpServer(t *testing.T, cfg *tls.Config) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }),
		TLSConfig: cfg, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ReadHeaderTimeout: time.Minute,
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { server.Close(); <-served })
	return "https://" + listener.Addr().String()
}

// fetchOnce makes a connection of its own.
func fetchOnce(url string, cfg *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
