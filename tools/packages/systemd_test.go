//go:build systemd

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	configFile = "/etc/countersign/countersign.yaml"
	dropIns    = "/etc/systemd/system/countersign.service.d"
	rules      = "/etc/polkit-1/rules.d"
	documents  = "/usr/share/doc/countersign/examples"
)

// What an operator does on a machine that systemd has booted, one step after the other.
func TestSystemdMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		foreign(t, "COUNTERSIGN_MACHINE")
		t.Skip("only root boots a machine")
	}
	m, stage := boot(t), stageOf(t)
	packages := debs(t, packed(t, wholeStage(t), "v0.1.0", "deb"))
	first := packages["countersign"]
	m.install(t, first)
	t.Run("serves after two commands", m.servesAfterTwoCommands)
	secondBuild(t, stage)
	second := one(t, packed(t, stage, "v0.2.0", "deb"), "countersign_*.deb")
	t.Run("Envoy serves through an upgrade", func(t *testing.T) { m.envoyServesThroughUpgrade(t, second) })
	t.Run("init configures nginx", m.initConfiguresNginx)
	t.Run("init leads to a certificate of an ACME CA", m.initLeadsToACME)
	t.Run("init leads to a certificate of Vault", m.initLeadsToVault)
	for name, shown := range map[string]func() (string, error){
		"nginx":      m.shownBy("-connect", "localhost:443"),
		"haproxy":    m.shownBy("-connect", "localhost:444"),
		"postgresql": m.shownBy("-connect", "localhost:5432", "-starttls", "postgres"),
	} {
		t.Run(name+" is reloaded", func(t *testing.T) { m.reloads(t, name, shown) })
	}
	t.Run("missing rights are named", m.missingRightsAreNamed)
	t.Run("signals with capabilities", m.signals)
	t.Run("provider has a user", m.providerHasUser)
	for _, name := range []string{"countersign-discovery", "countersign-ra"} {
		t.Run(name+" is a unit", func(t *testing.T) { m.runsServer(t, name, packages[name]) })
	}
	t.Run("is upgraded", func(t *testing.T) { m.isUpgraded(t, second) })
	t.Run("is removed and installed again", func(t *testing.T) { m.comesBack(t, first) })
	t.Run("is purged", m.isPurged)
}

func (m *machine) servesAfterTwoCommands(t *testing.T) {
	m.run(t, "systemctl", "enable", "--now", "countersign")
	said := m.run(t, "countersign", "secrets", "watch", "--for", "2m", "--count", "2")
	if !strings.Contains(said, "spiffe://example.org/ns/default/sa/web") {
		t.Errorf("served: %s", said)
	}
	m.eventually(t, "the status of the unit", func() error {
		said, err := m.try("systemctl", "show", "--property=StatusText", "--value", "countersign")
		if err == nil && said != "2 of 2 secrets held\n" {
			err = fmt.Errorf("it is %s", said)
		}
		return err
	})
	m.run(t, "countersign", "secrets", "renew", "default")
	m.run(t, "countersign", "config", "validate")
	m.run(t, "countersign", "top", "--output", "json")
	since := m.now(t)
	if said, err := m.try("runuser", "-u", "www-data", "--", "countersign", "secrets", "get"); err == nil {
		t.Errorf("another user got %s", said)
	}
	m.logs(t, since, "refused a peer of the socket", "uid=33")
}

// The configuration is as the package installed it, so that it is replaced.
func (m *machine) initConfiguresNginx(t *testing.T) {
	m.run(t, "countersign", "init", "file", "--nginx", "www.example.org")
	m.run(t, "countersign", "config", "validate")
	m.logs(t, m.restart(t), "files written", "reloaded consumer")
	m.run(t, "rm", rules+"/50-countersign-nginx.rules", configFile+".old")
}

// copyExample copies a file of the package's examples. polkit would read one that "install" makes
// before it may.
func (m *machine) copyExample(t *testing.T, file, to string) {
	t.Helper()
	m.run(t, "mkdir", "-p", to)
	m.run(t, "cp", documents+"/"+file, to)
}

// withoutDropIns makes the unit the package's again.
func (m *machine) withoutDropIns(t *testing.T) {
	t.Helper()
	m.run(t, "rm", "-rf", dropIns)
	m.run(t, "systemctl", "daemon-reload")
}

func (m *machine) restart(t *testing.T) (since string) {
	t.Helper()
	since = m.now(t)
	m.run(t, "systemctl", "reset-failed", "countersign") // a quick machine restarts it more often than systemd allows
	m.run(t, "systemctl", "restart", "countersign")
	return since
}

// shownBy returns the fingerprint of the certificate that a server on the machine shows.
func (m *machine) shownBy(args ...string) func() (string, error) {
	return func() (string, error) {
		return m.try("sh", "-c", "openssl s_client "+strings.Join(args, " ")+" </dev/null 2>/dev/null | openssl x509 -noout -fingerprint")
	}
}

// servers has each server use the example's files.
var servers = map[string]string{
	"nginx":      `cp ` + documents + `/nginx/nginx.conf /etc/nginx/conf.d/ && systemctl restart nginx`,
	"haproxy":    `sed 's/:443/:444/' ` + documents + `/haproxy/haproxy.cfg >>/etc/haproxy/haproxy.cfg && systemctl restart haproxy`,
	"postgresql": `cp ` + documents + `/postgresql/postgresql.conf /etc/postgresql/15/main/conf.d/ && systemctl restart postgresql`,
}

// reloads has the agent of an example write two certificates, of which the server shows the second.
func (m *machine) reloads(t *testing.T, name string, shown func() (string, error)) {
	m.run(t, "cp", documents+"/"+name+"/countersign.yaml", configFile)
	if files, _ := filepath.Glob(m.path(documents + "/" + name + "/*.conf")); len(files) > 0 && name == "postgresql" {
		m.copyExample(t, name+"/countersign-postgresql.conf", dropIns)
		m.run(t, "systemctl", "daemon-reload")
		defer m.withoutDropIns(t)
	}
	m.copyExample(t, name+"/50-countersign-"+name+".rules", rules)
	m.logs(t, m.restart(t), "files written", "reloaded consumer")
	m.run(t, "sh", "-c", servers[name])
	var before string
	m.eventually(t, "a first certificate", func() (err error) { before, err = shown(); return err })
	m.run(t, "find", "/var/lib/countersign", "-name", ".record-*", "-delete") // the next start orders another certificate
	m.logs(t, m.restart(t), "files written", "reloaded consumer")
	m.eventually(t, "the second certificate", func() error {
		now, err := shown()
		if err == nil && now == before {
			err = fmt.Errorf("still %s", now)
		}
		return err
	})
}

// signalling is a configuration whose agent signals nginx.
const signalling = `
socket: {path: /run/countersign/socket}
providers: [{name: file, settings: {dir: /var/lib/countersign/ca, self_signed: true}}]
secrets: [{name: default, dns_names: [web.example.org]}]
outputs:
- name: nginx
  folder: /var/lib/countersign/nginx
  link: current
  reload: {signal: HUP, pid_file: /run/nginx.pid, executable: /usr/sbin/nginx, user: root}
`

func (m *machine) missingRightsAreNamed(t *testing.T) {
	m.write(t, configFile, signalling)
	m.logs(t, m.restart(t), "runs, and /proc hides it", "ProtectProc=", "CAP_SYS_PTRACE", "systemctl")
	if said := m.run(t, "journalctl", "--no-pager", "--output=cat", "--unit=countersign", "--priority=err"); !strings.Contains(said, "cannot reload consumer") || strings.Contains(said, "level=INFO") {
		t.Errorf("the errors of the journal: %s", said)
	}
}

func (m *machine) signals(t *testing.T) {
	m.copyExample(t, "systemd/signal.conf", dropIns)
	m.run(t, "systemctl", "daemon-reload")
	defer m.withoutDropIns(t)
	m.logs(t, m.restart(t), "reloaded consumer")
	status := m.run(t, "sh", "-c", `for p in /proc/[0-9]*; do ! tr '\0' ' ' <$p/cmdline | grep -q '^/usr/lib/countersign' || cat $p/status; done`)
	if !strings.Contains(status, "CapEff:\t0000000000000000") {
		t.Errorf("the provider has capabilities: %s", status)
	}
}

func (m *machine) providerHasUser(t *testing.T) {
	m.copyExample(t, "systemd/provider-user.conf", dropIns)
	m.run(t, "systemctl", "daemon-reload")
	defer m.withoutDropIns(t)
	m.run(t, "useradd", "--system", "ca-file")
	m.write(t, configFile, `
socket: {path: /run/countersign/socket}
state: {dir: /var/lib/countersign/state, key_file: /etc/countersign/state.key}
providers: [{name: file, user: ca-file, settings: {dir: /var/lib/countersign/ca-file/ca, self_signed: true}}]
secrets: [{name: default, dns_names: [web.example.org]}]
`)
	m.restart(t) // which gives the whole folder to root
	m.run(t, "install", "-d", "-o", "ca-file", "/var/lib/countersign/ca-file")
	m.logs(t, m.restart(t), "provider=file state=ready")
	if owner := m.run(t, "stat", "-c", "%U", "/var/lib/countersign/ca-file/ca"); owner != "ca-file\n" {
		t.Errorf("the CA's folder belongs to %s", owner)
	}
}

// runsServer starts, reloads and stops a server with the configuration of the examples.
func (m *machine) runsServer(t *testing.T, name, deb string) {
	m.install(t, deb)
	program, err := os.ReadFile(filepath.Join(os.Getenv("COUNTERSIGN_PROGRAMS"), name))
	check(t, err)
	m.run(t, "rm", "/usr/bin/"+name) // the package has a small one in its place
	m.write(t, "/usr/bin/"+name, string(program))
	m.run(t, "chmod", "755", "/usr/bin/"+name)
	m.write(t, "/etc/countersign/kubeconfig", awayKubeconfig)
	m.run(t, "mkdir", "-p", "/etc/countersign/resources")
	config := "/etc/countersign/" + name + ".yaml"
	m.run(t, "cp", documents+"/systemd/"+name+".yaml", config)
	m.run(t, "systemctl", "enable", "--now", name) // which returns when it is ready
	m.run(t, name, "status", "--address", "unix:/run/"+name+"/status")
	m.eventually(t, "the provider is ready", func() error {
		said, err := m.try(name, "status", "--address", "unix:/run/"+name+"/status", "--output", "json")
		if err == nil && !strings.Contains(said, `"state": "ready"`) {
			err = errors.New(said)
		}
		return err
	})
	if can := m.run(t, "systemctl", "show", "--property=CanReload", "--value", name); can != map[bool]string{true: "yes\n", false: "no\n"}[name == "countersign-ra"] {
		t.Errorf("CanReload is %s", can)
	} else if can == "yes\n" {
		since := m.now(t)
		m.run(t, "systemctl", "reload", name)
		m.eventually(t, "the reload", func() error {
			said, err := m.try("journalctl", "--no-pager", "--output=cat", "--unit="+name, "--after-cursor="+since)
			if err == nil && !strings.Contains(said, "configuration applied") {
				err = errors.New(said)
			}
			return err
		})
	}
	m.run(t, "sh", "-c", "echo 'wrong: true' >>"+config)
	if said, err := m.try("systemctl", "restart", name); err == nil {
		t.Errorf("it starts with an unknown setting: %s", said)
	}
	if said := m.run(t, "systemctl", "show", "--property=ActiveState,NRestarts,ExecMainStatus", name); said != "NRestarts=0\nExecMainStatus=2\nActiveState=failed\n" {
		t.Errorf("with an unknown setting it is %s", said)
	}
	m.run(t, "dpkg", "--purge", name)
	if m.exists("/var/lib/" + name) {
		t.Error("its folder is left")
	}
	m.run(t, "rm", config, "/etc/countersign/kubeconfig")
	m.run(t, "rmdir", "/etc/countersign/resources")
}

// awayKubeconfig is of an API server that does not answer.
const awayKubeconfig = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: false}}], users: [{name: u, user: {token: t}}]}`

func (m *machine) isUpgraded(t *testing.T, deb string) {
	m.write(t, configFile, signalling)
	m.restart(t)
	pid := m.agentProcess(t)
	m.write(t, configFile, signalling+"wrong: true\n")
	if said := m.install(t, deb); !strings.Contains(said, "countersign.service was not restarted") {
		t.Errorf("the upgrade printed %s", said)
	}
	if now := m.agentProcess(t); now != pid {
		t.Errorf("process %s was replaced by %s although its configuration is refused", pid, now)
	}
	m.write(t, configFile, signalling)
	since := m.now(t)
	m.install(t, deb)
	m.logs(t, since, "secrets are served", "serving certificate restored")
}

func (m *machine) comesBack(t *testing.T, deb string) {
	m.run(t, "dpkg", "--remove", "countersign")
	if _, err := m.try("systemctl", "is-active", "--quiet", "countersign"); err == nil {
		t.Error("the agent runs after its removal")
	}
	since := m.now(t)
	m.install(t, deb)
	m.run(t, "systemctl", "is-enabled", "countersign")
	m.logs(t, since, "secrets are served")
}

func (m *machine) isPurged(t *testing.T) {
	m.run(t, "dpkg", "--purge", "countersign")
	for _, path := range []string{"/etc/countersign", "/var/lib/countersign", "/usr/lib/countersign", "/etc/systemd/system/multi-user.target.wants/countersign.service"} {
		if m.exists(path) {
			t.Errorf("%s is left, with %s", path, m.run(t, "ls", "-A", path))
		}
	}
}
