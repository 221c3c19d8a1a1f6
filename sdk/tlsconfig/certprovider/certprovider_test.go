package certprovider_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	grpcprovider "google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig/certprovider"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(collected{m}) }

// collected ends the sources of dropped configs.
type collected struct{ *testing.M }

func (c collected) Run() int {
	defer runtime.GC()
	return c.M.Run()
}

const id = "spiffe://example.org/web"

var both = grpcprovider.BuildOptions{WantIdentity: true, WantRoot: true}

var must = fatal.If

// open makes a provider as grpc-go does from the bootstrap.
func open(t *testing.T, config string, o grpcprovider.BuildOptions) grpcprovider.Provider {
	t.Helper()
	p, err := grpcprovider.GetProvider(certprovider.Name, json.RawMessage(config), o)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func material(t *testing.T, p grpcprovider.Provider) *grpcprovider.KeyMaterial {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := p.KeyMaterial(ctx)
	must(t, err)
	return m
}

// hold serves a new identity and roots of the authority.
func hold(t *testing.T, m *secret.Map, authority *catest.CA) {
	t.Helper()
	chain, key := authority.Pair(time.Hour, id)
	pair, err := secret.NewKeyPair("default", "test", chain, key)
	must(t, err)
	m.Set("default", pair)
	m.Set("ROOTCA", secret.NewTrustBundle("ROOTCA", "test", authority.Bundle()))
}

func serve(t *testing.T, source secret.Source) (config string) {
	t.Helper()
	stop, err := certprovider.Serve(t.Name(), source)
	must(t, err)
	t.Cleanup(stop)
	return `{"source": "` + t.Name() + `"}`
}

func TestMaterialFollowsRotation(t *testing.T) {
	authority, source := catest.NewCA(catest.Options{}), &secret.Map{}
	hold(t, source, authority)
	p := open(t, serve(t, source), both)
	first := material(t, p)
	if got := first.Certs[0].Leaf.URIs[0].String(); got != id || !first.Roots.Equal(authority.Bundle().Pool()) || first.SPIFFEBundleMap != nil {
		t.Errorf("%s, %+v", got, first)
	}
	if material(t, p) != first {
		t.Error("the same version is parsed twice")
	}
	next := catest.NewCA(catest.Options{})
	hold(t, source, next)
	if second := material(t, p); second.Certs[0].Leaf.Equal(first.Certs[0].Leaf) || !second.Roots.Equal(next.Bundle().Pool()) {
		t.Error("the rotation is not seen")
	}
}

// A trust anchor need not be self-signed (SPIFFE Filesystem Delivery, section 2.2).
func TestTrustAnchorMayBeAnIntermediate(t *testing.T) {
	source := &secret.Map{}
	between := certtest.Root(t).Issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "between"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	})
	anchors := pki.NewBundle(between.Cert)
	source.Set("ROOTCA", secret.NewTrustBundle("ROOTCA", "test", anchors))
	if m := material(t, open(t, serve(t, source), grpcprovider.BuildOptions{WantRoot: true})); !m.Roots.Equal(anchors.Pool()) {
		t.Error("the roots are others")
	}
}

func TestOnlyWhatIsWantedIsNeeded(t *testing.T) {
	authority, source := catest.NewCA(catest.Options{}), &secret.Map{}
	source.Set("partner", secret.NewTrustBundle("partner", "test", authority.Bundle()))
	config := serve(t, source)
	if m := material(t, open(t, config, grpcprovider.BuildOptions{WantRoot: true, CertName: "partner"})); len(m.Certs) > 0 || !m.Roots.Equal(authority.Bundle().Pool()) {
		t.Errorf("%+v", m)
	}
	_, err := open(t, config, grpcprovider.BuildOptions{WantIdentity: true}).KeyMaterial(t.Context())
	if !errors.Is(err, secret.ErrUnknown) {
		t.Error(err)
	}
	_, err = open(t, config, grpcprovider.BuildOptions{WantIdentity: true, CertName: "partner"}).KeyMaterial(t.Context())
	if err == nil || !strings.Contains(err.Error(), "trust-bundle") {
		t.Error(err)
	}
}

func TestMaterialIsWaitedFor(t *testing.T) {
	source := &secret.Map{}
	source.Set("default", nil)
	source.Set("ROOTCA", nil)
	p := open(t, serve(t, source), both)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.KeyMaterial(ctx); !errors.Is(err, secret.ErrNotReady) {
		t.Error(err)
	}
	got := make(chan *grpcprovider.KeyMaterial)
	go func() {
		m, _ := p.KeyMaterial(t.Context())
		got <- m
	}()
	hold(t, source, catest.NewCA(catest.Options{}))
	if m := <-got; m == nil || len(m.Certs) != 1 {
		t.Errorf("%+v", m)
	}
}

// credentialFolder writes a credential of ours, and the trust bundles of ours and theirs.
func credentialFolder(t *testing.T, folder string, ours, theirs *catest.CA) {
	t.Helper()
	chain, key := ours.Pair(time.Hour, id)
	for name, content := range map[string][]byte{
		filesecret.CredentialBundle:               slices.Concat(key, chain),
		filesecret.TrustBundleFile("example.org"): ours.Bundle().PEM(),
		filesecret.TrustBundleFile("example.com"): theirs.Bundle().PEM(),
	} {
		must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
}

func TestCredentialFolderHasMapOfTrustDomains(t *testing.T) {
	ours, theirs, folder := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{}), t.TempDir()
	credentialFolder(t, folder, ours, theirs)
	config := `{"credential_folder": "` + folder + `"}`
	identity, roots := open(t, config, grpcprovider.BuildOptions{WantIdentity: true}), open(t, config, grpcprovider.BuildOptions{WantRoot: true})
	if m := material(t, identity); len(m.Certs) != 1 || m.Roots != nil || m.SPIFFEBundleMap != nil {
		t.Errorf("%+v", m)
	}
	m := material(t, roots)
	for domain, authority := range map[string]*catest.CA{"example.org": ours, "example.com": theirs} {
		bundle := m.SPIFFEBundleMap[domain]
		if bundle == nil || len(bundle.X509Authorities()) != 1 || !authority.Bundle().Contains(bundle.X509Authorities()[0]) {
			t.Errorf("%s has the bundle %v", domain, bundle)
		}
	}
	// The source is that of both, and ends with the last.
	identity.Close()
	material(t, roots)
}

// withoutBundles is a source of SPIFFE that has no trust bundle now.
type withoutBundles struct{ secret.Map }

func (*withoutBundles) Federated() []string { return []string{} }

// No trust bundle does not mean that the roots verify every trust domain.
func TestNoTrustBundleVerifiesNoPeer(t *testing.T) {
	source := &withoutBundles{}
	hold(t, &source.Map, catest.NewCA(catest.Options{}))
	if m := material(t, open(t, serve(t, source), both)); m.SPIFFEBundleMap == nil || len(m.SPIFFEBundleMap) > 0 {
		t.Errorf("the map is %v", m.SPIFFEBundleMap)
	}
}

// workloadAPI serves the secrets of own, with a federated bundle "partner", until end is called.
func workloadAPI(t *testing.T, own secret.Source) (config string, end func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") // a socket's path is short
	must(t, err)
	server, err := workloadapi.Listen(workloadapi.Config{
		Path: filepath.Join(dir, "s"), Offer: workloadapi.Offer{Federated: map[string]string{"example.com": "partner"}},
	}, own)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	end = sync.OnceFunc(func() { must(t, server.Close(context.Background()), <-served, os.RemoveAll(dir)) })
	t.Cleanup(end)
	return `{"workload_api": "unix://` + filepath.Join(dir, "s") + `"}`, end
}

func TestWorkloadAPIHasMapOfTrustDomains(t *testing.T) {
	ours, theirs, own := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{}), &secret.Map{}
	hold(t, own, ours)
	own.Set("partner", secret.NewTrustBundle("partner", "test", theirs.Bundle()))
	config, _ := workloadAPI(t, own)
	m := material(t, open(t, config, both))
	if got := m.Certs[0].Leaf.URIs[0].String(); got != id || len(m.SPIFFEBundleMap) != 2 {
		t.Errorf("%s, %v", got, m.SPIFFEBundleMap)
	}
	if bundle := m.SPIFFEBundleMap["example.com"]; bundle == nil || !theirs.Bundle().Contains(bundle.X509Authorities()[0]) {
		t.Errorf("the federated bundle is %v", bundle)
	}
}

// A gRPC server closes its providers with each connection, and builds others for the next.
func TestHeldMaterialOutlastsConnections(t *testing.T) {
	own := &secret.Map{}
	hold(t, own, catest.NewCA(catest.Options{}))
	config, end := workloadAPI(t, own)
	built, err := grpcprovider.ParseConfig(certprovider.Name, json.RawMessage(config))
	must(t, err)
	first, err := built.Build(both)
	must(t, err)
	material(t, first)
	first.Close()
	end()
	second, err := built.Build(both)
	must(t, err)
	defer second.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := second.KeyMaterial(ended); err != nil {
		t.Errorf("while the Workload API is away: %v", err)
	}
}

// The roots of one trust domain, named by the control plane, verify no peer of another.
func TestNamedTrustBundleVerifiesItsTrustDomain(t *testing.T) {
	ours, theirs, folder := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{}), t.TempDir()
	credentialFolder(t, folder, ours, theirs)
	m := material(t, open(t, `{"credential_folder": "`+folder+`"}`, grpcprovider.BuildOptions{WantRoot: true, CertName: "spiffe://example.com"}))
	if bundle := m.SPIFFEBundleMap["example.com"]; len(m.SPIFFEBundleMap) != 1 || bundle == nil || !theirs.Bundle().Contains(bundle.X509Authorities()[0]) {
		t.Errorf("the map is %v", m.SPIFFEBundleMap)
	}
}

// An item of a source may have no version.
func TestRotationIsSeenWithoutVersions(t *testing.T) {
	source := &secret.Map{}
	hold(t, source, catest.NewCA(catest.Options{}))
	p := open(t, serve(t, unversioned{source}), both)
	first := material(t, p)
	hold(t, source, catest.NewCA(catest.Options{}))
	if second := material(t, p); second.Certs[0].Leaf.Equal(first.Certs[0].Leaf) || second.Roots.Equal(first.Roots) {
		t.Error("the rotation is not seen")
	}
}

type unversioned struct{ *secret.Map }

func (u unversioned) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	item, err := u.Map.Peek(caller, name)
	if err != nil {
		return nil, err
	}
	bare := *item
	bare.Version = ""
	return &bare, nil
}

// gRPC keeps a provider that it has built.
func TestSourceMayBeServedLater(t *testing.T) {
	source := &secret.Map{}
	hold(t, source, catest.NewCA(catest.Options{}))
	p := open(t, `{"source": "`+t.Name()+`"}`, both)
	if _, err := p.KeyMaterial(t.Context()); err == nil {
		t.Error("there is a source")
	}
	stop, err := certprovider.Serve(t.Name(), source)
	must(t, err)
	first := material(t, p)
	stop()
	if material(t, p) != first {
		t.Error("the source is not kept")
	}
}

func TestInvalidConfigIsExplained(t *testing.T) {
	t.Setenv("SPIFFE_ENDPOINT_SOCKET", "")
	t.Setenv("SPIFFE_CREDENTIAL_FOLDER", "")
	for config, want := range map[string]string{
		`{}`:                                    "SPIFFE_CREDENTIAL_FOLDER",
		`{"soource"`:                            "EOF",
		`{"certificate_file": "/x"}`:            "certificate_file",
		`{"source": "a", "workload_api": "b"}`:  "name one of",
		`{"workload_api": "tcp://127.0.0.1:1"}`: "unix socket",
	} {
		if _, err := grpcprovider.ParseConfig(certprovider.Name, json.RawMessage(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
	if _, err := open(t, `{"source": "none"}`, both).KeyMaterial(t.Context()); err == nil || !strings.Contains(err.Error(), "certprovider.Serve") {
		t.Error(err)
	}
	serve(t, &secret.Map{})
	for _, name := range []string{"", t.Name()} {
		if _, err := certprovider.Serve(name, &secret.Map{}); err == nil {
			t.Errorf("a source is served as %q", name)
		}
	}
}

func TestEnvironmentNamesSource(t *testing.T) {
	t.Setenv("SPIFFE_ENDPOINT_SOCKET", "")
	t.Setenv("SPIFFE_CREDENTIAL_FOLDER", "/run/spiffe/web")
	for _, want := range []string{`{"credential_folder":"/run/spiffe/web"}`, `{"workload_api":"unix:///run/api.sock"}`} {
		got, err := grpcprovider.ParseConfig(certprovider.Name, json.RawMessage(nil))
		must(t, err)
		if got.String() != certprovider.Name+":"+want {
			t.Error(got)
		}
		t.Setenv("SPIFFE_ENDPOINT_SOCKET", "unix:///run/api.sock")
	}
}
