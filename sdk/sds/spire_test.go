package sds_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	webID  = "spiffe://example.org/web"
	edgeID = "spiffe://edge.example/edge"
	ownTD  = "spiffe://example.org"
	edgeTD = "spiffe://edge.example"
	farTD  = "spiffe://far.example"
)

// spireNames is an agent's that has two identities, and peers in a foreign trust domain.
func spireNames() *sds.SPIRE {
	return &sds.SPIRE{
		Identities: []sds.SPIREIdentity{{Certificate: "default", Roots: "ROOTCA"}, {Certificate: "edge", Roots: "edge-roots"}},
		Federated:  map[string]string{"far.example": "far-roots"},
	}
}

func pairOf(t *testing.T, name, id, version string) *secret.Item {
	t.Helper()
	identity, err := pki.NewIdentity(id, nil, nil)
	must(t, err)
	return &secret.Item{
		Name: name, Kind: secret.KeyPair, Identity: identity, Version: version, Chain: []byte("chain " + version), Key: []byte("key " + version),
		RootFingerprint: "root of " + name,
	}
}

func rootsOf(name, version string) *secret.Item {
	return &secret.Item{Name: name, Kind: secret.TrustBundle, Version: version, Roots: []byte(name + " " + version), RootFingerprints: []string{version}}
}

// spireSecrets has all that spireNames names.
func spireSecrets(t *testing.T) *secrettest.Source {
	t.Helper()
	return secrettest.New(
		pairOf(t, "default", webID, "w1"), rootsOf("ROOTCA", "r1"), pairOf(t, "edge", edgeID, "e1"), rootsOf("edge-roots", "er1"), rootsOf("far-roots", "f1"),
	)
}

// key returns the key of a secret.
func key(s *tlsv3.Secret) string {
	return string(s.GetTlsCertificate().GetPrivateKey().GetInlineBytes())
}

// trust returns the bundles of a secret by trust domain; by "" one that is plain.
func trust(t *testing.T, s *tlsv3.Secret) map[string]string {
	t.Helper()
	context := s.GetValidationContext()
	if context.GetCustomValidatorConfig() == nil {
		return map[string]string{"": string(context.GetTrustedCa().GetInlineBytes())}
	}
	if name := context.GetCustomValidatorConfig().GetName(); name != "envoy.tls.cert_validator.spiffe" || context.TrustedCa != nil {
		t.Errorf("the validator is %q, with CAs beside it: %v", name, context.TrustedCa != nil)
	}
	var config tlsv3.SPIFFECertValidatorConfig
	must(t, context.GetCustomValidatorConfig().GetTypedConfig().UnmarshalTo(&config))
	all := map[string]string{}
	for _, domain := range config.GetTrustDomains() {
		all[domain.GetName()] = string(domain.GetTrustBundle().GetInlineBytes())
	}
	return all
}

func trusts(t *testing.T, s *tlsv3.Secret, want map[string]string) {
	t.Helper()
	if got := trust(t, s); !maps.Equal(got, want) {
		t.Errorf("%s trusts %v, want %v", s.GetName(), got, want)
	}
}

// collect reads answers until each of these names came.
func (c *client) collect(names ...string) map[string]*tlsv3.Secret {
	c.t.Helper()
	all := map[string]*tlsv3.Secret{}
	for len(all) < len(names) {
		for name, s := range c.get() {
			if !slices.Contains(names, name) {
				c.t.Fatalf("%s came unasked", name)
			}
			all[name] = s
		}
	}
	return all
}

func TestSPIRENamesAreTheSameSecrets(t *testing.T) {
	secrets := spireSecrets(t)
	c := open(t, dial(t, start(t, secrets, sds.Config{SPIRE: spireNames()})))
	names := []string{"default", webID, edgeID, "ROOTCA", ownTD, edgeTD, farTD, "ALL"}
	c.ask(names...)
	got := c.collect(names...)
	if key(got["default"]) != "key w1" || key(got[webID]) != "key w1" || key(got[edgeID]) != "key e1" {
		t.Errorf("got the keys %q, %q and %q", key(got["default"]), key(got[webID]), key(got[edgeID]))
	}
	trusts(t, got["ROOTCA"], map[string]string{"": "ROOTCA r1"})
	trusts(t, got[ownTD], map[string]string{"example.org": "ROOTCA r1"})
	trusts(t, got[edgeTD], map[string]string{"edge.example": "edge-roots er1"})
	trusts(t, got[farTD], map[string]string{"far.example": "far-roots f1"})
	trusts(t, got["ALL"], map[string]string{"example.org": "ROOTCA r1", "edge.example": "edge-roots er1", "far.example": "far-roots f1"})

	secrets.Put(rootsOf("far-roots", "f2"))
	got = c.collect(farTD, "ALL")
	trusts(t, got["ALL"], map[string]string{"example.org": "ROOTCA r1", "edge.example": "edge-roots er1", "far.example": "far-roots f2"})
	secrets.Put(pairOf(t, "default", webID, "w2"))
	got = c.collect("default", webID)
	if key(got["default"]) != "key w2" || key(got[webID]) != "key w2" {
		t.Errorf("after a rotation the keys are %q and %q", key(got["default"]), key(got[webID]))
	}
}

func TestSPIRENameOfAnotherIsRefusedAlone(t *testing.T) {
	for _, name := range []string{"spiffe://example.org/other", "spiffe://other.example", "spiffe://", "spiffe:///web", webID + "/", "spiffe://EXAMPLE.org/web", "all"} {
		secrets := spireSecrets(t)
		conn := dial(t, start(t, secrets, sds.Config{SPIRE: spireNames()}))
		c := openDelta(t, conn, nil, name, webID)
		got, removed := c.get()
		if len(got) != 1 || got[webID] == nil || !slices.Equal(removed, []string{name}) {
			t.Errorf("got %v and the removal of %v, want that of %q", slices.Collect(maps.Keys(got)), removed, name)
		}
		_, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{ResourceNames: []string{name}})
		if status.Code(err) != codes.NotFound {
			t.Errorf("a fetch of %q ends with %v", name, err)
		}
	}
}

func TestClientThatNamesNothingGetsWhatHasASPIFFEID(t *testing.T) {
	want := []string{edgeTD, edgeID, ownTD, webID, farTD}
	slices.Sort(want)
	secrets := spireSecrets(t)
	conn := dial(t, start(t, secrets, sds.Config{SPIRE: spireNames()}))
	c := open(t, conn)
	c.ask()
	if got := slices.Sorted(maps.Keys(c.collect(want...))); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	d := openDelta(t, conn, nil)
	d.gets(want...)
	secrets.Put(pairOf(t, "edge", "spiffe://edge.example/gateway", "e2"))
	got, removed := d.get()
	for len(got) == 0 || len(removed) == 0 {
		more, gone := d.get()
		maps.Copy(got, more)
		removed = append(removed, gone...)
	}
	if key(got["spiffe://edge.example/gateway"]) != "key e2" || !slices.Equal(removed, []string{edgeID}) {
		t.Errorf("after a change of names came %v and the removal of %v", got, removed)
	}
	answer, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{})
	if err != nil || len(answer.GetResources()) != len(want) {
		t.Errorf("a fetch of nothing by name has %d secrets: %v", len(answer.GetResources()), err)
	}
}

// What has expired without a successor is still the client's: it may come back.
func TestExpiredSecretsAreNotRemovedFromTheList(t *testing.T) {
	names := []string{edgeTD, edgeID, ownTD, webID, farTD}
	secrets := spireSecrets(t)
	conn := dial(t, start(t, secrets, sds.Config{SPIRE: spireNames()}))
	d := openDelta(t, conn, nil)
	d.gets(slices.Sorted(slices.Values(names))...)
	secrets.Empty("default", "edge", "ROOTCA")
	secrets.Put(rootsOf("far-roots", "f2"))
	d.gets(farTD)
	secrets.Put(rootsOf("far-roots", "f3"))
	after := openDelta(t, conn, d.versions) // as after a restart
	after.gets(farTD)
	secrets.Put(pairOf(t, "default", webID, "w2"))
	if got := after.gets(webID); key(got[webID]) != "key w2" {
		t.Errorf("got %q", key(got[webID]))
	}
	secrets.Forget("edge", "edge-roots")
	secrets.Put(rootsOf("ROOTCA", "r1"))
	gone := []string{edgeTD, edgeID}
	slices.Sort(gone)
	if got, removed := after.get(); len(got) > 0 || !slices.Equal(removed, gone) {
		t.Errorf("got %v and the removal of %v, want %v", slices.Collect(maps.Keys(got)), removed, gone)
	}
}

func TestWithoutSPIRENamesNothingSubscribesToNothing(t *testing.T) {
	c := open(t, dial(t, start(t, spireSecrets(t), sds.Config{})))
	c.ask()
	c.ask(webID, ownTD, "ALL", "ROOTCA")
	c.collect("ROOTCA")
}

func TestTrustDomainComesBeforeItsCertificate(t *testing.T) {
	secrets := secrettest.New(rootsOf("ROOTCA", "r1"))
	secrets.Empty("default")
	names := &sds.SPIRE{Identities: []sds.SPIREIdentity{{Certificate: "default", Roots: "ROOTCA", TrustDomain: "example.org"}}}
	c := open(t, dial(t, start(t, secrets, sds.Config{SPIRE: names})))
	c.ask(webID, "spiffe://example.org/other", ownTD)
	c.collect(ownTD)
	secrets.Put(pairOf(t, "default", webID, "w1"))
	c.collect(webID) // and nothing for the other
}

func TestConfiguredNameComesBeforeSPIREs(t *testing.T) {
	secrets := spireSecrets(t)
	secrets.Put(pairOf(t, webID, webID, "own"))
	c := open(t, dial(t, start(t, secrets, sds.Config{SPIRE: spireNames()})))
	c.ask(webID)
	if got := c.collect(webID); key(got[webID]) != "key own" {
		t.Errorf("got %q", key(got[webID]))
	}
}

func TestValidatorIsAsConfigured(t *testing.T) {
	revocable := rootsOf("ROOTCA", "r2")
	revocable.CRLs = []byte("lists")
	for name, c := range map[string]struct {
		validator  sds.Validator
		roots      *secret.Item
		rootca     map[string]string
		own        map[string]string
		refusesAll bool
	}{
		"always":                {sds.ValidatorAlways, rootsOf("ROOTCA", "r1"), map[string]string{"example.org": "ROOTCA r1"}, map[string]string{"example.org": "ROOTCA r1"}, false},
		"never":                 {sds.ValidatorNever, rootsOf("ROOTCA", "r1"), map[string]string{"": "ROOTCA r1"}, map[string]string{"": "ROOTCA r1"}, true},
		"with revocation lists": {sds.ValidatorAlways, revocable, map[string]string{"": "ROOTCA r2"}, map[string]string{"": "ROOTCA r2"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var log logtest.Log
			names, secrets := spireNames(), spireSecrets(t)
			names.Validator = c.validator
			secrets.Put(c.roots)
			conn := dial(t, start(t, secrets, sds.Config{SPIRE: names, Log: slog.New(slog.NewTextHandler(&log, nil))}))
			all := openDelta(t, conn, nil, "ROOTCA", ownTD, "ALL")
			got, removed := all.get()
			trusts(t, got["ROOTCA"], c.rootca)
			trusts(t, got[ownTD], c.own)
			if refused := slices.Contains(removed, "ALL"); refused != c.refusesAll || refused != strings.Contains(log.String(), "of several trust domains need") {
				t.Errorf("ALL is refused: %t; the log:\n%s", refused, &log)
			}
			if lists := got[ownTD].GetValidationContext().GetCrl().GetInlineBytes(); !bytes.Equal(lists, c.roots.CRLs) {
				t.Errorf("the lists are %q", lists)
			}
		})
	}
}

// Foreign bundles that are late do not go missing from the "ALL" of a client that had them before
// the agent was restarted, and do not keep it waiting either.
func TestAllWaitsForForeignBundlesAtTheStartAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secrets := spireSecrets(t)
		secrets.Empty("far-roots")
		service, err := sds.NewService(sds.ServiceConfig{
			Secrets: secrets, SPIRE: spireNames(), Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{}, nil },
		})
		must(t, err)
		defer service.Close()
		began := time.Now()
		answer, err := service.FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"ALL"}})
		if err != nil || len(answer.GetResources()) != 1 || time.Since(began) != 5*time.Second {
			t.Errorf("after %s came %v, %v", time.Since(began), answer, err)
		}
		if secrets.Watchers() != 0 {
			t.Errorf("%d watches are left", secrets.Watchers())
		}
	})
}

func TestRootIsAcknowledgedByAllItsNames(t *testing.T) {
	for _, name := range []string{"ROOTCA", ownTD, "ALL"} {
		secrets := spireSecrets(t)
		server, socket := startServer(t, secrets, sds.Config{SPIRE: spireNames()})
		c := open(t, dial(t, socket))
		c.ask(name)
		c.collect(name)
		awaitTold(t, server, "r1")
		secrets.Put(rootsOf("ROOTCA", "r2"))
		if _, err := c.Recv(); err != nil { // not acknowledged
			t.Fatal(err)
		}
		if server.RootAcknowledged([]string{"ROOTCA"}, "r2") {
			t.Errorf("a client that has %s has not acknowledged it", name)
		}
	}
}

// awaitTold waits until the server has read the acknowledgement.
func awaitTold(t *testing.T, server *sds.Server, root string) {
	t.Helper()
	polling.Until(t, patience, "the acknowledgement is seen", func() bool { return server.RootAcknowledged([]string{"ROOTCA"}, root) })
}

// households gives each caller the secrets of its own identity.
type households struct{ *secrettest.Source }

func (h households) Join(_ context.Context, _ secret.Caller, token ca.Token) (secret.Caller, error) {
	return secret.Caller{ID: token.Reveal()}, nil
}

func (h households) Leave(secret.Caller) {}

func (h households) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	if strings.HasPrefix(name, "edge") != (caller.ID == "edge") {
		return nil, secret.ErrUnknown
	}
	return h.Source.Peek(caller, name)
}

func TestRootIsAcknowledgedByTheNamesOfEachSecretWithIt(t *testing.T) {
	h := households{secrettest.New(pairOf(t, "default", webID, "w1"), rootsOf("ROOTCA", "r1"), pairOf(t, "edge", "spiffe://example.org/edge", "e1"), rootsOf("edge-roots", "r1"))}
	server, socket := startServer(t, h, sds.Config{SPIRE: spireNames(), Sessions: h})
	for _, caller := range []string{"web", "edge"} {
		stream, err := secretv3.NewSecretDiscoveryServiceClient(dial(t, socket)).StreamSecrets(with(t, "authorization", "Bearer "+caller))
		must(t, err)
		c := &client{SecretDiscoveryService_StreamSecretsClient: stream, t: t}
		c.ask(ownTD)
		c.collect(ownTD)
	}
	for _, roots := range []string{"ROOTCA", "edge-roots"} {
		if server.RootAcknowledged([]string{roots}, "r2") {
			t.Errorf("no stream has acknowledged r2 in %s", roots)
		}
	}
}

func TestWrongSPIRENamesAreRefused(t *testing.T) {
	one := []sds.SPIREIdentity{{Certificate: "default"}}
	for want, names := range map[string]sds.SPIRE{
		"Identities is required":    {},
		"needs a Certificate":       {Identities: []sds.SPIREIdentity{{Roots: "ROOTCA"}}},
		"is not valid":              {Identities: one, Federated: map[string]string{"Far.example": "x"}},
		"name a trust bundle":       {Identities: one, Federated: map[string]string{"far.example": ""}},
		"use auto, always or never": {Identities: one, Validator: "sometimes"},
	} {
		_, err := sds.NewService(sds.ServiceConfig{
			Secrets: secrettest.New(), SPIRE: &names, Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{}, nil },
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
