//go:build e2e && linux

package deploy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/catest"
)

const vaultHost = "vault.vault.svc"

// vault is a real server, which scripts/get-vault builds.
type vault struct {
	Address, Token string
	port           string
	root           []byte // PEM, of the server's certificate
	folder         string
}

// startVault runs Vault until the test ends.
func startVault(t *testing.T) *vault {
	t.Helper()
	issuer := &istiod{mesh: catest.NewCA(catest.Options{})}
	chain, key := issuer.files(t, "", vaultHost)
	v := &vault{folder: proctest.Folder(t), root: issuer.roots()}
	for name, content := range map[string][]byte{"server.pem": chain, "key.pem": key, "vault-root.pem": v.root} {
		must(t, os.WriteFile(filepath.Join(v.folder, name), content, 0o600))
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), programs.Foreign(t, "COUNTERSIGN_VAULT"), filepath.Join(v.folder, "server.pem"), filepath.Join(v.folder, "key.pem"))
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close() // it ends with that
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("vault: %v\n%s", err, log.String())
		}
	})
	must(t, json.NewDecoder(stdout).Decode(v))
	v.port = v.Address[strings.LastIndex(v.Address, ":")+1:]
	return v
}

// rootOf returns the CA of a mount, which Vault shows to everybody.
func (v *vault) rootOf(t *testing.T, mount string) string {
	t.Helper()
	answer, err := vaultClient(v.root, vaultHost).Get("https://" + v.Address + "/v1/" + mount + "/ca/pem")
	must(t, err)
	defer answer.Body.Close()
	root, err := io.ReadAll(answer.Body)
	must(t, err)
	return string(root)
}

func vaultClient(root []byte, name string) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12},
	}}
}

// command puts a program vault into a folder, and returns that and the environment of an operator.
// The program is this test's own binary (see TestMain): what is built of Vault is its server alone.
func (v *vault) command(t *testing.T) (folder string, env []string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	folder = t.TempDir()
	must(t, os.Symlink(self, filepath.Join(folder, "vault")))
	return folder, []string{
		"VAULT_ADDR=https://" + v.Address, "VAULT_TLS_SERVER_NAME=" + vaultHost, "VAULT_CACERT=" + filepath.Join(v.folder, "vault-root.pem"), "VAULT_TOKEN=" + v.Token,
	}
}

// vaultMain is the program vault, as far as the documentation uses it.
func vaultMain() int {
	path, body, err := vaultCall(os.Args[1:])
	if err == nil {
		err = vaultWrite(path, body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vault:", err)
		return 1
	}
	return 0
}

// vaultCall translates a command into a call of the HTTP API
// (https://developer.hashicorp.com/vault/docs/commands).
func vaultCall(args []string) (path string, body any, err error) {
	line := strings.Join(args, " ")
	switch {
	case len(args) == 4 && strings.HasPrefix(line, "secrets enable -max-lease-ttl="):
		_, lease, _ := strings.Cut(args[2], "=")
		return "sys/mounts/" + args[3], map[string]any{"type": args[3], "config": map[string]string{"max_lease_ttl": lease}}, nil
	case len(args) == 3 && strings.HasPrefix(line, "auth enable "):
		return "sys/auth/" + args[2], map[string]string{"type": args[2]}, nil
	case len(args) == 4 && strings.HasPrefix(line, "policy write ") && args[3] == "-":
		text, err := io.ReadAll(os.Stdin)
		return "sys/policies/acl/" + args[2], map[string]string{"policy": string(text)}, err
	case len(args) == 3 && args[0] == "write" && args[2] == "-":
		text, err := io.ReadAll(os.Stdin)
		return args[1], json.RawMessage(text), err
	case len(args) > 2 && args[0] == "write":
		fields := map[string]string{}
		for _, field := range args[2:] {
			name, value, ok := strings.Cut(field, "=")
			if !ok {
				return "", nil, fmt.Errorf("%q is no field", field)
			}
			fields[name] = value
		}
		return args[1], fields, nil
	}
	return "", nil, fmt.Errorf("the test does not know the command %q", line)
}

func vaultWrite(path string, body any) error {
	root, err := os.ReadFile(os.Getenv("VAULT_CACERT"))
	if err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, os.Getenv("VAULT_ADDR")+"/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("X-Vault-Token", os.Getenv("VAULT_TOKEN"))
	answer, err := vaultClient(root, os.Getenv("VAULT_TLS_SERVER_NAME")).Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		why, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s: %s: %s", path, answer.Status, why)
	}
	return nil
}
