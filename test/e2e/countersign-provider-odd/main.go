// Command countersign-provider-odd is a provider with a setting of each kind, for the tests of the
// agent's commands. Under other names it misdescribes itself, crashes or hangs.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// oddSettings have a word for each column of the table.
type oddSettings struct {
	Address string   `json:"address" jsonschema:"where the CA is" default:"ca.example:443"`
	Mode    string   `json:"mode,omitempty" jsonschema:"how it signs | what" enum:"sign,away,deny"`
	Key     string   `json:"key,omitempty" secret:"true"`
	Zone    string   `json:"zone"`
	Names   []string `json:"names,omitempty"`
}

type oddCA struct {
	*catest.CA
	mode string
}

// ValidateOnline calls no server, but names the one that cannot be called.
func (s oddSettings) ValidateOnline(ctx context.Context) error {
	switch s.Zone {
	case "down":
		slog.Info("asking the CA", "key", s.Key)
		_, err := new(net.Dialer).DialContext(ctx, "unix", "/nowhere/ca.sock")
		return err
	case "panic":
		panic("an unwritten branch")
	}
	return nil
}

func openOdd(_ context.Context, s oddSettings) (*oddCA, error) {
	if _, err := os.Stat(s.Address); s.Zone == "fragile" && err != nil {
		os.Exit(3)
	}
	if s.Zone == "closed" {
		return nil, provider.Unavailable(fmt.Errorf("no server is at %s", s.Address))
	}
	return &oddCA{catest.NewCA(catest.Options{}), s.Mode}, nil
}

// CSRSign does as the settings say.
func (o *oddCA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if o.mode == "deny" {
		return ca.Certificate{}, provider.Denied(fmt.Errorf("no entry matches %s", req.SubjectID))
	}
	return o.CA.CSRSign(ctx, req)
}

// lying is a provider whose description of itself is wrong.
type lying struct {
	wire.Provider
	metadata wire.Metadata
}

func (l lying) Metadata(context.Context) (wire.Metadata, error) { return l.metadata, nil }

// main is the provider odd of its file's version, or what is wrong with its file's name. That of
// 9.9.9 lies.
func main() {
	name := strings.TrimPrefix(filepath.Base(os.Args[0]), "countersign-provider-")
	good := wire.Metadata{Name: name, Version: "1.2.0", Abilities: []wire.Ability{wire.CertificateAuthority}}
	switch name {
	case "nameless":
		good.Name = "../x"
	case "versionless":
		good.Version = ""
	case "schemaless":
		good.SettingsSchema = `{"properties": 7}`
	case "unable":
		good.Abilities = nil
	case "crash":
		fmt.Fprintln(os.Stderr, "no licence was found")
		os.Exit(3)
	case "silent":
		time.Sleep(24 * time.Hour) // with select {} the runtime could report a deadlock
	default:
		_, version, _ := strings.Cut(name, "@")
		if version == "" || version == "9.9.9" {
			version = "1.2.0"
		}
		provider.Main("odd", version, openOdd)
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{1: {wire.PluginName: served{provider: lying{provider.Define(name, "1", openOdd).Provider(), good}}}},
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}

// served is a provider as any go-plugin program has one.
type served struct {
	plugin.NetRPCUnsupportedPlugin
	provider wire.Provider
}

func (s served) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error { //nolint:unparam // the signature is of go-plugin
	wire.Register(server, wire.V1(), s.provider)
	return nil
}

func (served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no host")
}
