//go:build e2e

package acmeca

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// blocks returns the blocks of docs/public-certificates.md in one language.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/public-certificates.md")
	must(t, err)
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		found = append(found, block)
	}
	return found
}

// foreign returns the path of a program that scripts/with-programs found.
func foreign(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skip(variable + " names no program") // with CI, that failed before
	}
	return path
}

// pageFolder returns a folder for an agent and its proxy.
func pageFolder(t *testing.T) string {
	t.Helper()
	dir := testkit.Folder(t)
	must(t, os.Chmod(dir, 0o755)) // nginx' workers are another user's
	return dir
}

// startPage runs an agent with the page's configuration, for this Pebble. Its proxy listens
// before, as a failed proof is tried again after minutes.
func (p *pebble) startPage(t *testing.T, dir, listen, executable string) {
	t.Helper()
	eventually(t, "the proxy listens", func() error {
		conn, err := net.Dial("tcp", p.http)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	pairs := []string{
		"https://acme-v02.api.letsencrypt.org/directory", fmt.Sprintf("%s\n      root_file: %s\n      roots: %s", p.url, p.path("server-root.pem"), p.path("roots.pem")),
		"127.0.0.1:8402", listen, "/run/countersign", dir, "/var/lib/countersign", dir, "/etc/countersign", dir,
		// No systemd runs here: tools/packages has the page's reload.
		"reload: {command: [/usr/bin/systemctl, reload, nginx.service]}", fmt.Sprintf("reload: {signal: HUP, pid_file: %s/nginx.pid, executable: %s}", dir, executable),
	}
	must(t, os.WriteFile(filepath.Join(dir, "state.key"), []byte(rand.Text()+rand.Text()), 0o600))
	config := filepath.Join(dir, "countersign.yaml")
	must(t, os.WriteFile(config, []byte(strings.NewReplacer(pairs...).Replace(blocks(t, "yaml")[0])), 0o600))
	agent := testkit.StartAgent(t, dir, testkit.Program(t, "countersign-provider-acme"), []string{"--config", config}, nil)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent:\n%s", agent.Take())
		}
	})
}

// shows returns nil when a server shows the page's certificate.
func (p *pebble) shows(address string) error {
	roots := x509.NewCertPool()
	text, err := os.ReadFile(p.path("roots.pem"))
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return errors.Join(err, errors.New("no roots"))
	}
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: "www.example.org"})
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestRealPageNginx(t *testing.T) {
	nginx, p, listen, secure := foreign(t, "COUNTERSIGN_NGINX"), startPebble(t), testkit.FreeAddress(t), testkit.FreeAddress(t)
	dir := pageFolder(t)
	servers := filepath.Join(dir, "servers.conf")
	put := func(parts ...string) {
		text := strings.NewReplacer("listen 80;", "listen "+p.http+";", "listen 443", "listen "+secure, "127.0.0.1:8402", listen,
			"/var/lib/countersign", dir).Replace(strings.Join(parts, "\n"))
		must(t, os.WriteFile(servers, []byte(text), 0o644))
	}
	all := blocks(t, "nginx")
	put(all[0])
	must(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), fmt.Appendf(nil, `daemon off; pid nginx.pid; error_log stderr; events {}
http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi; include %s; }
`, servers), 0o600))
	process := run(t, nil, nginx, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	p.startPage(t, dir, listen, nginx)
	eventually(t, "the certificate is written", func() error { _, err := os.Stat(filepath.Join(dir, "nginx/current/chain.pem")); return err })
	put(all...)
	must(t, process.Signal(syscall.SIGHUP))
	eventually(t, "nginx shows it", func() error { return p.shows(secure) })
}

func TestRealPageEnvoy(t *testing.T) {
	envoy, p, listen, secure := foreign(t, "COUNTERSIGN_ENVOY"), startPebble(t), testkit.FreeAddress(t), testkit.FreeAddress(t)
	dir := pageFolder(t)
	port := func(address string) string { return fmt.Sprintf("port_value: %d}", portOf(t, address)) }
	config := "node: {id: web, cluster: web}\n" + strings.NewReplacer("port_value: 80}", port(p.http), "port_value: 443}", port(secure),
		"port_value: 8402}", port(listen), "/run/countersign", dir).Replace(blocks(t, "yaml")[1])
	must(t, os.WriteFile(filepath.Join(dir, "envoy.yaml"), []byte(config), 0o600))
	run(t, nil, envoy, "-c", filepath.Join(dir, "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
	p.startPage(t, dir, listen, "/bin/true")
	eventually(t, "Envoy shows the certificate", func() error { return p.shows(secure) })
}
