// Command vault is a HashiCorp Vault server for tests: Vault's own core, HTTP API, PKI
// engine and auth methods, kept in memory, initialized and unsealed. Its arguments are
// the PEM files of the listener's certificate and key. One line of JSON says where it
// is and what its root token is; it ends with its standard input.
//
// Vault 1.14 is the last version under a free licence (MPL 2.0), and the one that
// OpenBao is made from.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/credential/cert"
	"github.com/hashicorp/vault/builtin/logical/pki"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: vault CERT-FILE KEY-FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(certFile, keyFile string) error {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	core, token, err := start()
	if err != nil {
		return err
	}
	// A client certificate is looked at by the auth method "cert" alone.
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert})
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core: core, ListenerConfig: &configutil.Listener{Address: listener.Addr().String(), MaxRequestDuration: time.Minute},
	})}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"address": listener.Addr().String(), "token": token}); err != nil {
		return err
	}
	if err := serve(server, listener); err != nil {
		return err
	}
	return core.Shutdown()
}

func serve(server *http.Server, listener net.Listener) error {
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// start returns a core that serves, and its root token.
func start() (*vault.Core, string, error) {
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn})
	storage, err := inmem.NewInmem(nil, log)
	if err != nil {
		return nil, "", err
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical: storage, Logger: log, DisableMlock: true, BuiltinRegistry: builtins{},
		LogicalBackends: map[string]logical.Factory{"pki": pki.Factory},
		CredentialBackends: map[string]logical.Factory{
			"approle": approle.Factory, "cert": cert.Factory, "kubernetes": kubeauth.Factory,
		},
	})
	if err != nil {
		return nil, "", err
	}
	one := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}
	made, err := core.Initialize(context.Background(), &vault.InitParams{BarrierConfig: one, RecoveryConfig: one})
	if err != nil {
		return nil, "", err
	}
	if open, err := core.Unseal(made.SecretShares[0]); err != nil || !open {
		return nil, "", fmt.Errorf("it cannot be unsealed: %w", err)
	}
	return core, made.RootToken, nil
}

// builtins is Vault's register of plugins. There are none: what is built in is what
// the core was made with.
type builtins struct{}

func (builtins) Contains(string, consts.PluginType) bool { return false }

func (builtins) Get(string, consts.PluginType) (func() (any, error), bool) { return nil, false }

func (builtins) Keys(consts.PluginType) []string { return nil }

func (builtins) DeprecationStatus(string, consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, true
}

func (builtins) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }
