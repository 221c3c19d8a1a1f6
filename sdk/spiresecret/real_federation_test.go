//go:build e2e

package spiresecret_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	sdkagent "github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/catest"
	ourjwt "github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
	ourapi "github.com/countersign-dev/countersign/sdk/workloadapi"
)

const (
	partner   = "partner.example"
	partnerID = "spiffe://partner.example/spire/server"
)

// startPartner starts the server of another trust domain, and returns its bundle endpoint.
func startPartner(t *testing.T) (s *spire, url string) {
	t.Helper()
	port := proctest.FreePort(t)
	return startServer(t, partner, fmt.Sprintf(`federation {
    bundle_endpoint {
      address = "127.0.0.1"
      port = %s
      refresh_hint = "30s"
      profile "https_spiffe" {}
    }
  }`, port)), "https://127.0.0.1:" + port
}

// text returns what a command prints.
func (s *spire) text(args ...string) string {
	s.t.Helper()
	out, err := s.run(args)
	if err != nil {
		s.t.Fatalf("spire-server %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *spire) roots() *pki.Bundle {
	s.t.Helper()
	roots, err := pki.ParseBundle([]byte(s.text("bundle", "show")))
	must(s.t, err)
	return roots
}

// An agent with SPIRE as its source has the bundle that SPIRE's server fetches from another's.
func TestRealFederatedBundleOfSPIREIsFollowed(t *testing.T) {
	theirs, url := startPartner(t)
	ours := startSPIRE(t)
	ours.write("partner.json", "%s", theirs.text("bundle", "show", "-format", "spiffe"))
	ours.command(nil, "federation", "create", "-trustDomain", partner, "-bundleEndpointURL", url, "-bundleEndpointProfile", "https_spiffe",
		"-endpointSpiffeID", partnerID, "-trustDomainBundlePath", ours.path("partner.json"), "-trustDomainBundleFormat", "spiffe")
	ours.attest()
	ours.register(web, "-federatesWith", "spiffe://"+partner)
	f := ours.follow(
		spiresecret.Spec{Name: "default", Kind: secret.KeyPair},
		spiresecret.Spec{Name: "partner", Kind: secret.TrustBundle, TrustDomain: partner})
	first := f.await("the partner's root", "partner", some)
	if !slices.Equal(first.RootFingerprints, theirs.roots().Fingerprints()) {
		t.Errorf("its roots are %v", first.RootFingerprints)
	}
	theirs.command(nil, "localauthority", "x509", "prepare")
	f.await("both of the partner's roots", "partner", func(item *secret.Item) bool {
		_ = ours.try("federation", "refresh", "-id", "spiffe://"+partner)
		return len(item.RootFingerprints) == 2
	})
	theirs.server.Kill()
	_ = ours.try("federation", "refresh", "-id", "spiffe://"+partner)
	f.await("what was held", "partner", func(item *secret.Item) bool { return len(item.RootFingerprints) == 2 })
}

// follows is an agent of two identities that follows a bundle endpoint, and SPIFFE's own client of
// it.
type follows struct {
	t      *testing.T
	source *federation.Source
	client *workloadapi.Client
}

func startFollower(t *testing.T, endpoint federation.Endpoint) *follows {
	t.Helper()
	f := &follows{t: t}
	keys := &ourjwt.Foreign{}
	var err error
	f.source, err = federation.New([]federation.Endpoint{endpoint}, federation.Options{JWTKeys: func(domain string, jwks []byte) {
		if err := keys.Set(domain, jwks); err != nil {
			t.Error(err)
		}
	}})
	must(t, err)
	socket := filepath.Join(proctest.Folder(t), "api.sock") // of SDS, too
	pair := func(name, id string) secret.Spec {
		identity, err := pki.NewIdentity(id, nil, nil)
		must(t, err)
		return secret.Spec{Name: name, Kind: secret.KeyPair, Identity: identity, TTL: ttl, Authorities: []string{"ca"}}
	}
	a, err := sdkagent.New(sdkagent.Config{
		Authorities: []secret.Authority{{Name: "ca", Client: catest.NewCA(catest.Options{})}, {Name: "endpoint", Client: f.source.Authority(partner)}},
		Secrets: []secret.Spec{
			pair("default", web), pair("edge", "spiffe://example.org/edge"), {Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"ca"}},
			{Name: "partner", Kind: secret.TrustBundle, Authorities: []string{"endpoint"}},
		},
		Socket: sds.Config{Path: socket},
		WorkloadAPI: ourapi.Config{Path: socket, Offer: ourapi.Offer{
			Identities: []ourapi.Identity{{Certificate: "default", Roots: "ROOTCA", Hint: "internal"}, {Certificate: "edge", Roots: "ROOTCA", Hint: "external"}},
			Federated:  map[string]string{partner: "partner"}, FederatedJWT: keys,
		}},
		Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	f.client, err = workloadapi.New(t.Context(), workloadapi.WithAddr("unix://"+socket))
	must(t, err)
	t.Cleanup(func() { _ = f.client.Close() })
	return f
}

// await waits until go-spiffe has these roots of the partner, beside two identities.
func (f *follows) await(s *spire, roots *pki.Bundle) {
	f.t.Helper()
	s.poll("the partner's roots by go-spiffe", func() bool {
		x509, err := f.client.FetchX509Context(f.t.Context())
		if err != nil || len(x509.SVIDs) != 2 || x509.SVIDs[0].Hint != "internal" || x509.SVIDs[1].Hint != "external" {
			return false
		}
		bundles, err := f.client.FetchX509Bundles(f.t.Context())
		if err != nil {
			return false
		}
		ofSVIDs, one := x509.Bundles.Get(spiffeid.RequireTrustDomainFromString(partner))
		ofBundles, other := bundles.Get(spiffeid.RequireTrustDomainFromString(partner))
		return one && other && ofSVIDs.Equal(ofBundles) && pki.NewBundle(ofSVIDs.X509Authorities()...).Equal(roots)
	})
}

// accepts checks that go-spiffe and the agent take a token of the partner.
func (f *follows) accepts(token string) {
	f.t.Helper()
	keys, err := f.client.FetchJWTBundles(f.t.Context())
	must(f.t, err)
	for who, validate := range map[string]func() (*jwtsvid.SVID, error){
		"go-spiffe": func() (*jwtsvid.SVID, error) { return jwtsvid.ParseAndValidate(token, keys, []string{"db"}) },
		"the agent": func() (*jwtsvid.SVID, error) { return f.client.ValidateJWTSVID(f.t.Context(), token, "db") },
	} {
		if svid, err := validate(); err != nil || svid.ID.String() != "spiffe://partner.example/web" {
			f.t.Errorf("%s: %v", who, err)
		}
	}
}

func TestRealBundleEndpointIsFollowed(t *testing.T) {
	theirs, url := startPartner(t)
	roots := theirs.roots()
	token := theirs.text("jwt", "mint", "-spiffeID", "spiffe://partner.example/web", "-audience", "db")
	f := startFollower(t, federation.Endpoint{TrustDomain: partner, URL: url, ServerID: partnerID, Initial: roots})
	theirs.poll("the endpoint's answer", func() bool { return !f.source.Status()[0].Fetched.IsZero() })
	f.await(theirs, roots)
	f.accepts(token)
	if _, err := f.client.ValidateJWTSVID(t.Context(), token, "other"); err == nil {
		t.Error("a token for another audience is accepted")
	}

	theirs.command(nil, "localauthority", "x509", "prepare")
	roots = theirs.roots()
	f.await(theirs, roots) // within 30 seconds, as the endpoint hints
	if roots.Len() != 2 {
		t.Errorf("the partner has %d roots", roots.Len())
	}

	theirs.server.Kill()
	if err := f.source.Authority(partner).WatchRoots(t.Context(), nil); err == nil || f.source.Status()[0].Problem == "" {
		t.Errorf("the endpoint is away: %v", err)
	}
	f.await(theirs, roots)
	f.accepts(token)
}

func TestRealBundleEndpointOfAnotherServerIsRefused(t *testing.T) {
	theirs, url := startPartner(t)
	stranger := catest.NewCA(catest.Options{}).Bundle()
	for name, endpoint := range map[string]federation.Endpoint{
		"another SPIFFE ID": {TrustDomain: partner, URL: url, ServerID: "spiffe://partner.example/other", Initial: theirs.roots()},
		"another's roots":   {TrustDomain: partner, URL: url, ServerID: partnerID, Initial: stranger},
		"no SPIFFE ID":      {TrustDomain: partner, URL: url},
	} {
		source, err := federation.New([]federation.Endpoint{endpoint}, federation.Options{Log: slog.New(slog.DiscardHandler), JWTKeys: func(string, []byte) {
			t.Errorf("%s: its keys are taken", name)
		}})
		must(t, err)
		told := 0
		err = source.Authority(partner).WatchRoots(t.Context(), func([]byte) error { told++; return nil })
		if err == nil || !source.Status()[0].Fetched.IsZero() || told > 1 {
			t.Errorf("%s: told %d times, %v", name, told, err)
		}
	}
}
