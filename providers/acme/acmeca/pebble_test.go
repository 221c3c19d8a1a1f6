//go:build e2e

package acmeca

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// patience is how long a test waits for what real processes do.
const patience = 2 * time.Minute

// pebble is a running Pebble, whose DNS resolves every name to this machine.
type pebble struct {
	folder     string
	url        string
	management string // its URL
	dns        string // the URL of the DNS server's management
	http, tls  string // where the CA looks for answers
	client     *http.Client
}

// odd changes how Pebble runs.
type odd struct {
	env    []string
	config map[string]any
	names  string // address of a name server; empty: the challenge server's
}

// startPebble runs Pebble and its challenge server until the test ends.
func startPebble(t *testing.T, odds ...odd) *pebble {
	t.Helper()
	programs := os.Getenv("COUNTERSIGN_PEBBLE")
	if programs == "" {
		t.Fatal("COUNTERSIGN_PEBBLE does not name the folder of Pebble: `make check NAME=acme` builds it")
	}
	p := &pebble{folder: t.TempDir(), http: testkit.FreeAddress(t), tls: testkit.FreeAddress(t)}
	at, management, dns, control := testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t)
	p.url, p.management, p.dns = "https://"+at+"/dir", "https://"+management, "http://"+control
	p.serverPair(t)
	config := map[string]any{
		"listenAddress": at, "managementListenAddress": management, "certificate": p.path("cert.pem"), "privateKey": p.path("key.pem"),
		"httpPort": portOf(t, p.http), "tlsPort": portOf(t, p.tls), "keyAlgorithm": "ecdsa", "domainBlocklist": []string{"blocked.example"},
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles": map[string]any{
			"default": map[string]any{"description": "usual", "validityPeriod": 7776000}, "shortlived": map[string]any{"description": "short", "validityPeriod": 518400},
		},
	}
	env := []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0"}
	names := dns
	for _, o := range odds {
		names = cmp.Or(o.names, names)
		env = append(env, o.env...)
		maps.Copy(config, o.config)
	}
	text, err := json.Marshal(map[string]any{"pebble": config})
	must(t, err)
	must(t, os.WriteFile(p.path("config.json"), text, 0o600))
	run(t, nil, filepath.Join(programs, "pebble-challtestsrv"), "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "",
		"-dnsserver", dns, "-management", control, "-defaultIPv6", "")
	run(t, env, filepath.Join(programs, "pebble"), "-strict", "-config", p.path("config.json"), "-dnsserver", names)
	p.client = (&rest.Transport{NewTLS: func() (*tls.Config, error) { return setting.TLS{RootFile: p.path("server-root.pem")}.Config() }}).Client()
	eventually(t, "Pebble answers", func() error { return p.get(p.url, nil) })
	eventually(t, "DNS answers", func() error { return p.tell("/clear-txt", map[string]string{"host": "none.example."}) })
	var root bytes.Buffer
	must(t, p.get(p.management+"/roots/0", &root))
	must(t, os.WriteFile(p.path("roots.pem"), root.Bytes(), 0o600))
	return p
}

func (p *pebble) path(name string) string { return filepath.Join(p.folder, name) }

// serverPair writes the certificate of Pebble's own server.
func (p *pebble) serverPair(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	chain, key := testkit.Pair(t, authority, testkit.Identity(t, "", []string{"localhost"}, []string{"127.0.0.1"}))
	for name, content := range map[string][]byte{"cert.pem": chain, "key.pem": key, "server-root.pem": authority.Bundle().PEM()} {
		must(t, os.WriteFile(p.path(name), content, 0o600))
	}
}

func (p *pebble) get(url string, into io.Writer) error {
	resp, err := p.client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	if into != nil {
		_, err = io.Copy(into, resp.Body)
	}
	return err
}

// tell changes the records of the DNS server.
func (p *pebble) tell(path string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	resp, err := http.Post(p.dns+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
}

// advise changes Pebble's renewal information of a certificate.
func (p *pebble) advise(leaf []byte, advice string) error {
	text, err := json.Marshal(map[string]string{"certificate": string(leaf), "ariResponse": advice})
	if err != nil {
		return err
	}
	resp, err := p.client.Post(p.management+"/set-renewal-info/", "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("set renewal info: %s", resp.Status)
	}
	return nil
}

// dnsTool as the first argument makes this program a dns_command: it notes what it was called
// with, the environment included, and updates Pebble's DNS server.
const dnsTool = "dns-tool"

func init() {
	if len(os.Args) == 7 && os.Args[1] == dnsTool {
		notes, server, do, host, value := os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
		if err := tellDNS(notes, server, do, host, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func tellDNS(notes, server, do, host, value string) error {
	file, err := os.OpenFile(notes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "%s %s%s\n", do, host, os.Getenv("SESAME")); err != nil {
		return err
	}
	path := map[string]string{"present": "/set-txt", "cleanup": "/clear-txt"}[do]
	return (&pebble{dns: server}).tell(path, map[string]string{"host": host, "value": value})
}

// settings are those for http-01 at the port that Pebble asks.
func (p *pebble) settings(t *testing.T) Settings {
	t.Helper()
	url, err := setting.ParseURL(p.url)
	must(t, err)
	return Settings{
		URL: url, TLS: setting.TLS{RootFile: p.path("server-root.pem")}, Roots: setting.Certificates(p.path("roots.pem")),
		StateDir: filepath.Join(t.TempDir(), "acme"), AcceptTerms: true, Listen: p.http,
	}
}

func (p *pebble) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(settings)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// run runs a program until the test ends.
func run(t *testing.T, env []string, program string, args ...string) *os.Process {
	t.Helper()
	var output buffer
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &output, time.Second
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // nginx' workers outlive a master that was killed
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(program), output.String())
		}
	})
	return cmd.Process
}

type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	number, err := strconv.Atoi(port)
	must(t, err)
	return number
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}
