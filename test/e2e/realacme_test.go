//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// pebble is a real ACME CA for which each name leads to this machine. Its certificate is for "server".
type pebble struct {
	*process
	dir, url string
	answers  string // where it looks for those to http-01
	names    string // the URL of its name server's management
	client   *http.Client
}

func startPebble(t *testing.T) *pebble {
	t.Helper()
	bin := programs.Foreign(t, "COUNTERSIGN_PEBBLE")
	at, management, names, control := proctest.FreeAddress(t), proctest.FreeAddress(t), proctest.FreeAddress(t), proctest.FreeAddress(t)
	p := &pebble{dir: proctest.Folder(t), url: "https://" + at + "/dir", answers: proctest.FreeAddress(t), names: "http://" + control}
	p.writePair(t)
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": at, "managementListenAddress": management, "certificate": p.path("cert.pem"), "privateKey": p.path("key.pem"),
		"httpPort": portOf(t, p.answers), "keyAlgorithm": "ecdsa",
		// The provider looks at an order that many seconds after the CA was asked for the certificate.
		"retryAfter": map[string]int{"authz": 1, "order": 3},
		"profiles":   map[string]any{"default": map[string]any{"description": "usual", "validityPeriod": 7776000}},
	}})
	mustDo(t, err)
	writeWhole(t, p.path("config.json"), config)
	startProcess(t, filepath.Join(bin, "pebble-challtestsrv"), "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "",
		"-dnsserver", names, "-management", control, "-defaultIPv6", "")
	p.process = prepareProcess(t, nil, filepath.Join(bin, "pebble"), "-strict", "-config", p.path("config.json"), "-dnsserver", names)
	p.cmd.Env = append(p.cmd.Env, "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0")
	p.begin(t)
	poll(t, "Pebble's roots", func() bool { return p.writeRoots(t, "https://"+management+"/roots/0") })
	return p
}

func (p *pebble) path(name string) string { return filepath.Join(p.dir, name) }

// writePair writes the certificate of its server.
func (p *pebble) writePair(t *testing.T) {
	t.Helper()
	root := certtest.Root(t)
	pair := root.Leaf(t, time.Hour)
	key, err := pki.EncodeKey(pair.Key)
	mustDo(t, err)
	for name, certificate := range map[string]*x509.Certificate{"server-root.pem": root.Cert, "cert.pem": pair.Cert} {
		writeWhole(t, p.path(name), pki.EncodeCertificates([]*x509.Certificate{certificate}))
	}
	writeWhole(t, p.path("key.pem"), key)
	p.client = &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pki.NewBundle(root.Cert).Pool(), ServerName: "server", MinVersion: tls.VersionTLS12},
	}}
}

// writeRoots writes the roots of what it issues, once it answers.
func (p *pebble) writeRoots(t *testing.T, url string) bool {
	t.Helper()
	resp, err := p.client.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	roots, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return false
	}
	writeWhole(t, p.path("roots.pem"), roots)
	return true
}

// misleads has a name lead to where nothing answers.
func (p *pebble) misleads(t *testing.T, name string) {
	t.Helper()
	resp, err := http.Post(p.names+"/add-a", "application/json", strings.NewReader(`{"host": "`+name+`.", "addresses": ["127.0.0.2"]}`))
	mustDo(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

// count returns how often its log has a text.
func (p *pebble) count(text string) int { return strings.Count(p.Log.String(), text) }

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	mustDo(t, err)
	number, err := strconv.Atoi(port)
	mustDo(t, err)
	return number
}

// startOnDemandACME starts an agent with a rule for *.shop.example.org, whose names p signs. An agent that
// shares a store shares the folder of its provider, too.
func startOnDemandACME(t *testing.T, p *pebble, shares store, folder string) (*agent, *shop) {
	t.Helper()
	s := openShop(t)
	a := prepareAgent(t, agentConfig{selfSigned: true, state: true})
	if folder == "" {
		folder = filepath.Join(a.dir, "acme")
	} else {
		shares.share(t, a)
	}
	a.bin = programs.Folder(t, "countersign", "countersign-provider-file", "countersign-provider-acme")
	a.edit(t, func(c map[string]any) {
		c["default_provider"] = "file"
		c["providers"] = append(c["providers"].([]any), map[string]any{
			"name": "acme", "sha256": pinOf(t, filepath.Join(a.bin, "countersign-provider-acme")),
			"settings": map[string]any{
				"url": p.url, "root_file": p.path("server-root.pem"), "server_name": "server", "roots": p.path("roots.pem"),
				"accept_terms": true, "state_dir": folder, "listen": p.answers,
			},
		})
		c["secrets"] = append(c["secrets"].([]any), map[string]any{
			"name": "shops", "match": "*.shop.example.org", "provider": "acme",
			"on_demand": map[string]any{"ask": map[string]any{"url": s.URL}, "wait": "1m"},
		})
	})
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a, s
}

const (
	ordered = "Added order "
	issued  = "Issued certificate serial "
)

// Names that no configuration lists get certificates of a real ACME CA in the middle of their first
// handshakes. One of these outlives a kill -9 of the agent in the middle of its order, which is not
// placed a second time.
func TestRealACMEIssuesOnDemandOnceOverAKill(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	p := startPebble(t)
	a, s := startOnDemandACME(t, p, store{}, "")
	_, address := startOnDemandEnvoy(t, a.socket)

	began := time.Now()
	mustShakeHands(t, address, "a1.shop.example.org")
	t.Logf("a new name took %s", time.Since(began))
	if asked, orders := s.asked.Load(), p.count(ordered); asked != 1 || orders != 1 {
		t.Fatalf("the first name was asked for %d times and ordered %d times, want once", asked, orders)
	}

	handshake := make(chan error, 1)
	go func() {
		_, err := shakeHands(t.Context(), address, "a2.shop.example.org")
		handshake <- err
	}()
	p.Log.Await(t, patience, "the second certificate", func(text string) bool { return strings.Count(text, issued) == 2 })
	a.stop(t, syscall.SIGKILL)
	select {
	case err := <-handshake:
		t.Fatalf("the handshake ended before the agent was killed: %v", err)
	default:
	}
	a.start(t)
	if err := <-handshake; err != nil {
		t.Errorf("the handshake in whose middle the agent was killed: %v", err)
	}
	mustShakeHands(t, address, "a2.shop.example.org")
	if asked, orders := s.asked.Load(), p.count(ordered); asked != 2 || orders != 2 || p.count(issued) != 2 {
		t.Errorf("after a kill in the middle of the second order, %d questions, %d orders and %d certificates; want two of each", asked, orders, p.count(issued))
	}

	// A name whose proof fails is ordered seldom, however often clients ask for it, and delays no other.
	p.misleads(t, "a-fails.shop.example.org")
	before, misled := p.count(ordered), time.Now()
	for time.Since(misled) < 4*time.Second {
		if _, err := shakeHands(t.Context(), address, "a-fails.shop.example.org"); err == nil {
			t.Fatal("a name whose proof fails is served")
		}
		time.Sleep(200 * time.Millisecond)
	}
	most := 2
	if time.Since(misled) > 6*time.Second { // on a busy machine, the last handshake waits for more of them
		most = 5 // of an hour
	}
	if orders := p.count(ordered) - before; orders < 1 || orders > most {
		t.Errorf("a name whose proof fails was ordered %d times in %s, want once to %d times", orders, time.Since(misled), most)
	}
	mustShakeHands(t, address, "a3.shop.example.org")
}
