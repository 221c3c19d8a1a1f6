package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stockHost is the host's end as any go-plugin host has it.
type stockHost struct{ plugin.NetRPCUnsupportedPlugin }

func (stockHost) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("a host is no provider")
}

func (stockHost) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return wire.NewRemote(conn, wire.RemoteOptions{}), nil
}

// start builds the binary and starts it by a stock go-plugin host.
func start(t *testing.T) *wire.Remote {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "countersign-provider-file")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	host := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{1: {wire.PluginName: stockHost{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		Cmd:              exec.Command(binary),
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: t.TempDir()},
	})
	t.Cleanup(host.Kill)
	client, err := host.Client()
	if err != nil {
		t.Fatal(err)
	}
	remote, err := client.Dispense(wire.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	return remote.(*wire.Remote)
}

func TestAsAProcessItIsConfiguredSignsAndTellsItsRoots(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	remote := start(t)
	metadata, err := remote.Metadata(ctx)
	if err != nil || metadata.Name != "file" || !slices.Equal(metadata.Abilities, []wire.Ability{wire.CertificateAuthority, wire.RootSource, wire.RootWatcher}) {
		t.Errorf("%v, %v", metadata, err)
	}
	for _, setting := range []string{`"dir"`, `"self_signed"`, `"max_ttl"`, `"trust_domain"`, `"poll_interval"`} {
		if !strings.Contains(metadata.SettingsSchema, setting) || strings.Contains(metadata.SettingsSchema, "Log") {
			t.Errorf("the schema lacks %s or has the log: %s", setting, metadata.SettingsSchema)
		}
	}
	dir := filepath.Join(t.TempDir(), "ca")
	mustRefuse(ctx, t, remote, dir)
	if err := remote.Configure(ctx, map[string]any{"dir": dir, "self_signed": true, "max_ttl": "1h"}); err != nil {
		t.Fatal(err)
	}
	mustSign(ctx, t, remote)
}

// mustRefuse demands that wrong settings are refused with what is wrong.
func mustRefuse(ctx context.Context, t *testing.T, remote *wire.Remote, dir string) {
	t.Helper()
	for says, settings := range map[string]map[string]any{
		filepath.Join(dir, "ca-cert.pem"): {"dir": dir},
		"dir is not set":                    {},
		`max_ttl is "soon"`:               {"dir": dir, "max_ttl": "soon"},
		"max_ttl is a number":             {"dir": dir, "max_ttl": 24},
		"did you mean self_signed":        {"dir": dir, "self_singed": true},
	} {
		if err := remote.Configure(ctx, settings); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", settings, err, says)
		}
	}
}

func mustSign(ctx context.Context, t *testing.T, remote *wire.Remote) {
	t.Helper()
	id, err := pki.NewIdentity("spiffe://example.org/ns/shop/sa/web", []string{"web.shop.svc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := pki.GenerateKey("")
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		t.Fatal(err)
	}
	request := ca.SignRequest{ID: "5ff3a8c4-5c46-4f0b-a7e7-4a6d8a9b2a11", CSR: csr, SubjectID: id.SPIFFEID.String(), DNSNames: id.DNSNames}
	reply, err := remote.CSRSign(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	var roots *pki.Bundle
	if err := remote.WatchRoots(ctx, func(told []byte) error {
		roots, _ = pki.ParseBundle(told)
		return enough
	}); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	check := pki.Check{Key: key.Public(), Identity: id, Roots: roots, Now: time.Now(), AskedUntil: time.Now().Add(time.Hour)}
	if _, err := check.Chain(reply.Chain); err != nil {
		t.Error(err)
	}
	request.DNSNames = []string{"admin.shop.svc"}
	if _, err := remote.CSRSign(ctx, request); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("another name than the CSR's: %v", err)
	}
}
