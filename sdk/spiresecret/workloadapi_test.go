package spiresecret_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

const patience = 2 * time.Minute

// pairOf returns a key pair below the root, as a source has it.
func pairOf(t *testing.T, root *certtest.Pair, name, id string) *secret.Item {
	t.Helper()
	leaf := root.Leaf(t, time.Hour, id)
	key, err := pki.EncodeKey(leaf.Key)
	must(t, err)
	chain := pki.EncodeCertificates(pki.NewBundle(leaf.Cert).Certificates())
	return &secret.Item{Name: name, Kind: secret.KeyPair, Version: string(chain), Chain: chain, Key: key}
}

func bundleOf(name string, root *certtest.Pair) *secret.Item {
	return secret.NewTrustBundle(name, "test", pki.NewBundle(root.Cert))
}

// What one agent serves on its socket, another takes.
func TestOurOwnWorkloadAPIIsASource(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	own, foreign := certtest.Root(t), certtest.Root(t)
	fakeSource := secrettest.New(pairOf(t, own, "default", web), pairOf(t, own, "api", api2), bundleOf("ROOTCA", own), bundleOf("partner", foreign))
	socket := filepath.Join(proctest.Folder(t), "socket")
	log := &logtest.Log{}
	source, err := spiresecret.New(spiresecret.Config{Socket: "unix://" + socket, Log: log.Logger(), Secrets: []spiresecret.Spec{
		{Name: "default", Kind: secret.KeyPair}, {Name: "other", Kind: secret.KeyPair, Hint: "internal"},
		{Name: "ROOTCA", Kind: secret.TrustBundle}, {Name: "foreign", Kind: secret.TrustBundle, TrustDomain: "example.com"},
	}})
	must(t, err)
	defer source.Close()
	serve(t, socket, fakeSource) // the source has begun before it
	for name, fingerprint := range map[string]string{"ROOTCA": pki.Fingerprint(own.Cert), "foreign": pki.Fingerprint(foreign.Cert)} {
		if got := await(t, source, name, ""); got.RootFingerprints[0] != fingerprint {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := await(t, source, "other", ""); got.Identity.String() != api2+", server" {
		t.Errorf("other is %s", got)
	}
	first := await(t, source, "default", "")
	fakeSource.Put(pairOf(t, own, "default", web))
	await(t, source, "default", first.Version)
}

func serve(t *testing.T, socket string, secrets secret.Source) {
	t.Helper()
	server, err := workloadapi.Listen(workloadapi.Config{Path: socket, Offer: workloadapi.Offer{
		Identities: []workloadapi.Identity{{Certificate: "default", Roots: "ROOTCA"}, {Certificate: "api", Roots: "ROOTCA", Hint: "internal"}},
		Federated:  map[string]string{"example.com": "partner"},
	}}, secrets)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(server.Close(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
}

// await waits for an item with another version.
func await(t *testing.T, source secret.Source, name, old string) *secret.Item {
	t.Helper()
	changed := make(chan struct{}, 1)
	stop, err := source.Watch(agent, name, func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	must(t, err)
	defer stop()
	for deadline := time.After(patience); ; {
		item, err := source.Peek(agent, name)
		if err == nil && item.Version != old {
			return item
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s was not seen: %v", name, err)
		}
	}
}
