//go:build systemd

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	configLock = "/etc/countersign/countersign.lock"
	nginxSite  = "/etc/nginx/conf.d/site.conf"
	serverPair = "/srv/server.pem"
)

// What "countersign init" prints for a real ACME CA leads to a certificate that nginx shows, and that
// "secrets renew" replaces.
func (m *machine) initLeadsToACME(t *testing.T) {
	programs := foreign(t, "COUNTERSIGN_PEBBLE")
	m.copyIn(t, filepath.Join(programs, "pebble"), "/srv/pebble")
	m.copyIn(t, filepath.Join(programs, "pebble-challtestsrv"), "/srv/challtestsrv")
	m.serverPair(t)
	m.write(t, "/srv/pebble.json", `{"pebble": {"listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
		"certificate": "`+serverPair+`", "privateKey": "/srv/server.key", "httpPort": 80, "tlsPort": 443, "keyAlgorithm": "ecdsa",
		"retryAfter": {"authz": 1, "order": 1}, "profiles": {"default": {"description": "usual", "validityPeriod": 7776000}}}}`)
	m.background(t, "/srv/challtestsrv", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-dnsserver", "127.0.0.1:8053", "-management", "127.0.0.1:8055", "-defaultIPv6", "")
	m.background(t, "env", "PEBBLE_VA_NOSLEEP=1", "/srv/pebble", "-strict", "-config", "/srv/pebble.json", "-dnsserver", "127.0.0.1:8053")
	m.eventually(t, "Pebble's root", func() error {
		root, err := m.https("127.0.0.1:15000", "GET", "/roots/0", "", "")
		if err == nil {
			m.write(t, "/etc/countersign/acme-roots.pem", root)
		}
		return err
	})
	m.run(t, "systemctl", "stop", "countersign") // as after the installation
	m.run(t, "rm", "-rf", "/var/lib/countersign")
	m.run(t, "install", "-d", "-o", "countersign", "-g", "countersign", "-m", "0700", "/var/lib/countersign")
	m.lockProvider(t, "acme")
	steps := m.initialize(t, "acme", "--accept-terms", "--set", "url=https://localhost:14000/dir", "--set", "root_file="+serverPair, "--set", "roots=/etc/countersign/acme-roots.pem")
	site := fmt.Sprintf("server {\n  listen 80;\n  server_name www.example.org;\n%s}\n", steps.lines("location"))
	m.write(t, nginxSite, site)
	m.run(t, "systemctl", "reload-or-restart", "nginx")
	m.showsCertificate(t, steps, site)
}

// The same for Vault. The file with the secret is first the operator's alone.
func (m *machine) initLeadsToVault(t *testing.T) {
	m.copyIn(t, foreign(t, "COUNTERSIGN_VAULT"), "/srv/vault")
	m.serverPair(t)
	m.background(t, "sh", "-c", "sleep infinity | /srv/vault "+serverPair+" /srv/server.key >/srv/vault.json")
	var vault struct{ Address, Token string }
	m.eventually(t, "Vault's address", func() error {
		text, err := os.ReadFile(m.path("/srv/vault.json"))
		if err == nil {
			err = json.Unmarshal(text, &vault)
		}
		return err
	})
	for _, one := range [][2]string{
		{"sys/mounts/pki", `{"type":"pki","config":{"max_lease_ttl":"87600h"}}`},
		{"pki/root/generate/internal", `{"common_name":"First","key_type":"ec","ttl":"87600h"}`},
		{"pki/roles/web", `{"require_cn":false,"key_type":"ec","max_ttl":"24h","allowed_domains":"example.org","allow_subdomains":true}`},
		{"sys/policies/acl/agent", `{"policy":"path \"pki/sign/web\" { capabilities = [\"update\"] }"}`},
		{"sys/auth/approle", `{"type":"approle"}`},
		{"auth/approle/role/agent", `{"token_policies":"agent","token_ttl":"1h","token_max_ttl":"24h"}`},
		{"auth/approle/role/agent/role-id", `{"role_id":"the-agent"}`},
	} {
		_, err := m.https(vault.Address, "POST", "/v1/"+one[0], vault.Token, one[1])
		check(t, err)
	}
	said, err := m.https(vault.Address, "POST", "/v1/auth/approle/role/agent/secret-id", vault.Token, "{}")
	check(t, err)
	const secretFile = "/etc/countersign/vault-secret-id"
	m.write(t, secretFile, regexp.MustCompile(`"secret_id":"([^"]*)"`).FindStringSubmatch(said)[1])
	m.run(t, "chmod", "600", secretFile)
	m.lockProvider(t, "vault")
	_, port, _ := strings.Cut(vault.Address, ":")
	steps := m.initialize(t, "vault", "--set", "url=https://localhost:"+port, "--set", "root_file="+serverPair,
		"--set", "role=web", "--set", "login.method=approle", "--set", "login.role_id=the-agent", "--set", "login.secret_id_file="+secretFile)
	said, err = m.try("sh", "-c", steps.command("next"))
	if err == nil || !strings.Contains(said, secretFile) || !strings.Contains(said, "permission denied") {
		t.Errorf("with a file that the agent may not read: %s, %v", said, err)
	}
	m.run(t, "chgrp", "countersign", secretFile)
	m.run(t, "chmod", "440", secretFile)
	m.showsCertificate(t, steps, "")
}

// printed is what "countersign init" printed.
type printed string

// command returns the command of a step.
func (p printed) command(step string) string {
	_, rest, _ := strings.Cut(string(p), "\n"+step+": ")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// lines returns the indented lines, to copy, that begin with a text.
func (p printed) lines(begin string) (all string) {
	for line := range strings.Lines(string(p)) {
		if strings.HasPrefix(line, "  "+begin) {
			all += line
		}
	}
	return all
}

func (m *machine) initialize(t *testing.T, provider string, settings ...string) printed {
	t.Helper()
	args := append([]string{"countersign", "init", provider, "--nginx", "www.example.org", "--force"}, settings...)
	return printed("\n" + m.run(t, args...))
}

// showsCertificate runs the commands that were printed, adds the lines that were printed to nginx, and
// has the certificate renewed.
func (m *machine) showsCertificate(t *testing.T, steps printed, site string) {
	t.Helper()
	m.run(t, "sh", "-c", steps.command("next"))
	since := m.now(t)
	m.run(t, "systemctl", "reset-failed", "countersign")
	m.run(t, "sh", "-c", steps.command("then"))
	m.logs(t, since, "files written")
	server := fmt.Sprintf("server {\n  listen 443 ssl;\n  server_name www.example.org;\n%s}\n", steps.lines("ssl_certificate"))
	m.write(t, nginxSite, site+server)
	m.run(t, "systemctl", "reload-or-restart", "nginx")
	shown := m.shownBy("-connect", "localhost:443", "-servername", "www.example.org")
	var before string
	m.eventually(t, "nginx shows the certificate", func() (err error) { before, err = shown(); return err })
	said := m.run(t, "countersign", "secrets", "renew", "default")
	if !strings.Contains(said, "default is renewed") {
		t.Errorf("renew printed %s", said)
	}
	m.eventually(t, "nginx shows the next certificate", func() error {
		now, err := shown()
		if err == nil && now == before {
			err = fmt.Errorf("still %s", now)
		}
		return err
	})
	m.run(t, "systemctl", "stop", "countersign")
	m.run(t, "rm", "-rf", "/var/lib/countersign/nginx")
	if said, err := m.try("countersign", "agent", "--config", configFile, "--once"); err == nil || !strings.Contains(said, "runuser -u countersign -- COMMAND") {
		t.Errorf("--once as root: %s, %v", said, err)
	}
	m.run(t, "runuser", "-u", "countersign", "--", "countersign", "agent", "--config", configFile, "--once")
	if !m.exists("/var/lib/countersign/nginx/current/chain.pem") {
		t.Error("--once wrote no file")
	}
	m.run(t, "rm", "-rf", nginxSite, rules+"/50-countersign-nginx.rules", configFile+".old", configLock, "/var/lib/countersign",
		"/etc/countersign/acme-roots.pem", "/etc/countersign/vault-secret-id")
	m.run(t, "systemctl", "reload-or-restart", "nginx")
}

// lockProvider installs a provider that the package of these tests lacks.
func (m *machine) lockProvider(t *testing.T, name string) {
	t.Helper()
	program := "/usr/lib/countersign/providers/countersign-provider-" + name
	m.copyIn(t, filepath.Join(os.Getenv("COUNTERSIGN_PROGRAMS"), filepath.Base(program)), program)
	m.run(t, "countersign", "provider", "lock", name, "--config", configFile)
	t.Cleanup(func() { _ = os.Remove(m.path(program)) })
}

func (m *machine) copyIn(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	check(t, err)
	m.write(t, to, string(text))
	m.run(t, "chmod", "755", to)
}

// background has systemd run a program until the test ends.
func (m *machine) background(t *testing.T, args ...string) {
	t.Helper()
	m.units++
	unit := fmt.Sprintf("test-%d", m.units)
	m.run(t, append([]string{"systemd-run", "--quiet", "--collect", "--unit=" + unit, "--"}, args...)...)
	t.Cleanup(func() { _, _ = m.try("systemctl", "stop", unit) })
}

// serverPair makes the certificate of a CA's server, which is its own root.
func (m *machine) serverPair(t *testing.T) {
	t.Helper()
	m.run(t, "mkdir", "-p", filepath.Dir(serverPair))
	m.run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
		"-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2", "-keyout", "/srv/server.key", "-out", serverPair)
}

// https makes a request, and returns the body of an answer that is a success.
func (m *machine) https(address, method, path, token, body string) (string, error) {
	request := fmt.Sprintf("%s %s HTTP/1.0\r\nHost: localhost\r\nX-Vault-Token: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, token, len(body), body)
	if err := os.WriteFile(m.path("/srv/request"), []byte(request), 0o600); err != nil {
		return "", err
	}
	said, _ := m.try("sh", "-c", "openssl s_client -quiet -connect "+address+" </srv/request 2>/dev/null")
	head, answer, _ := strings.Cut(said, "\r\n\r\n")
	if !regexp.MustCompile(`^HTTP/1\.[01] 2`).MatchString(head) {
		return "", fmt.Errorf("%s %s: %s", method, path, said)
	}
	return answer, nil
}
