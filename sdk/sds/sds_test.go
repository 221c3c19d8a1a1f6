package sds_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

func TestSecretsAreInlineAndResentOnChange(t *testing.T) {
	source := secrettest.New(keyPair("1"), bundle("1"))
	c := open(t, dial(t, start(t, source, sds.Config{})))
	c.ask("default", "ROOTCA")
	first := c.get()
	pair, roots := first["default"].GetTlsCertificate(), first["ROOTCA"].GetValidationContext()
	if string(pair.GetCertificateChain().GetInlineBytes()) != "chain 1" || string(pair.GetPrivateKey().GetInlineBytes()) != "key 1" {
		t.Errorf("default is %d bytes of chain, %d of key", len(pair.GetCertificateChain().GetInlineBytes()), len(pair.GetPrivateKey().GetInlineBytes()))
	}
	if string(roots.GetTrustedCa().GetInlineBytes()) != "roots 1" {
		t.Errorf("ROOTCA is %v", roots)
	}
	source.Put(keyPair("2"))
	second := c.get()
	if len(second) != 1 || string(second["default"].GetTlsCertificate().GetCertificateChain().GetInlineBytes()) != "chain 2" {
		t.Errorf("after the rotation came %d secrets", len(second))
	}
}

// Envoy checks revocation once the field is set, so that an empty one would refuse everybody.
func TestRevocationListsComeWithRoots(t *testing.T) {
	for _, leafOnly := range []bool{false, true} {
		listed := bundle("1")
		listed.CRLs, listed.LeafCRLOnly = []byte("lists"), leafOnly
		source := secrettest.New(bundle("0"))
		c := open(t, dial(t, start(t, source, sds.Config{})))
		c.ask("ROOTCA")
		if bare := c.get()["ROOTCA"].GetValidationContext(); bare.Crl != nil || bare.OnlyVerifyLeafCertCrl {
			t.Errorf("without lists: %v", bare)
		}
		source.Put(listed)
		got := c.get()["ROOTCA"].GetValidationContext()
		if string(got.GetCrl().GetInlineBytes()) != "lists" || got.OnlyVerifyLeafCertCrl != leafOnly || string(got.GetTrustedCa().GetInlineBytes()) != "roots 1" {
			t.Errorf("with lists: %v", got)
		}
	}
}

// MOSN sends a request for each name on one stream, none with a nonce, and lists
// all names in its acknowledgements.
func TestMOSNDialectIsUnderstood(t *testing.T) {
	source := secrettest.New(keyPair("1"), bundle("1"))
	c := open(t, dial(t, start(t, source, sds.Config{})))
	c.ask("default")
	if got := c.get(); got["default"] == nil {
		t.Errorf("got %v", got)
	}
	c.ask("ROOTCA")
	if got := c.get(); got["ROOTCA"] == nil || len(got) != 1 {
		t.Errorf("got %v, want ROOTCA alone", got)
	}
	source.Put(keyPair("2"))
	if got := c.get(); got["default"] == nil || len(got) != 1 {
		t.Errorf("got %v, want default alone", got)
	}
}

func TestUnknownNameIsLeftOutAndOthersServed(t *testing.T) {
	conn := dial(t, start(t, secrettest.New(keyPair("1")), sds.Config{}))
	c := open(t, conn)
	c.ask("kubernetes://stolen", "default")
	if got := c.get(); len(got) != 1 || got["default"] == nil {
		t.Errorf("got %v", got)
	}
	_, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{
		TypeUrl: sds.TypeURL, ResourceNames: []string{"kubernetes://stolen"},
	})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a fetch of it: %v, want NotFound", err)
	}
}

func TestCloseEndsStreamsWithUnavailable(t *testing.T) {
	path := filepath.Join(proctest.Folder(t), "socket")
	server, err := sds.Listen(sds.Config{Path: path}, secrettest.New(keyPair("1")))
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	c := open(t, dial(t, path))
	c.ask("default")
	c.get()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- server.Close(ctx) }()
	if _, err := c.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	_ = c.CloseSend()
	if err := errors.Join(<-closed, <-served); err != nil {
		t.Error(err)
	}
}

func TestNoKeyIsLogged(t *testing.T) {
	var out logtest.Log
	pair := keyPair("1")
	pair.Key = []byte("-----BEGIN PRIVATE KEY-----")
	socket := start(t, secrettest.New(pair), sds.Config{Log: out.Logger()})
	c := open(t, dial(t, socket))
	c.ask("default", "unknown\x00name")
	c.get()
	if text := out.String(); !strings.Contains(text, "unknown") || strings.Contains(text, "PRIVATE KEY") {
		t.Errorf("the log shows the key, or not the refused name: %d bytes", len(text))
	}
}
