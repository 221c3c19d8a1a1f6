package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// pebble is an ACME CA for which each name leads to this machine.
type pebble struct {
	dir, url  string
	answers   int // the port at which it looks for those to http-01
	log       countedLog
	processes []*exec.Cmd
}

// countedLog counts the orders in Pebble's log.
type countedLog struct {
	mu     sync.Mutex
	orders int
}

func (l *countedLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders += bytes.Count(text, []byte("Added order ")) // the log writes whole lines
	return len(text), nil
}

// orders returns how many orders there were.
func (p *pebble) orders() int {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	return p.log.orders
}

func (p *pebble) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pebble) stop() {
	for _, cmd := range p.processes {
		end(cmd)
	}
}

func (b *bench) startPebble(ctx context.Context, tb testing.TB) (*pebble, error) {
	bin := programs.Foreign(tb, "COUNTERSIGN_PEBBLE")
	var ports [5]int
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	p := &pebble{dir: filepath.Join(b.dir, "pebble"), url: "https://" + at(0) + "/dir", answers: ports[4]}
	root := certtest.Root(tb)
	pair := root.Issue(tb, &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": at(0), "managementListenAddress": at(1), "certificate": p.path("cert.pem"), "privateKey": p.path("key.pem"), "httpPort": p.answers,
		"keyAlgorithm": "ecdsa", "retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles": map[string]any{"default": map[string]any{"description": "usual", "validityPeriod": 7776000}},
	}})
	err = errors.Join(err, os.Mkdir(p.dir, 0o755))
	for name, content := range map[string][]byte{"config.json": config, "server-root.pem": root.PEM(), "cert.pem": pair.PEM(), "key.pem": pair.KeyPEM(tb)} {
		err = errors.Join(err, os.WriteFile(p.path(name), content, 0o644))
	}
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{filepath.Join(bin, "pebble-challtestsrv"), "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-dnsserver", at(2), "-management", at(3), "-defaultIPv6", ""},
		{filepath.Join(bin, "pebble"), "-strict", "-config", p.path("config.json"), "-dnsserver", at(2)},
	} {
		cmd := asUser(exec.Command(args[0], args[1:]...), uint32(os.Geteuid()))
		cmd.Stdout, cmd.Stderr = &p.log, nil
		cmd.Env = []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0"}
		if err := cmd.Start(); err != nil {
			p.stop()
			return nil, err
		}
		p.processes = append(p.processes, cmd)
	}
	if err := p.saveRoots(ctx, "https://"+at(1)+"/roots/0", root.Cert); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// saveRoots writes the roots of what it issues, once it answers.
func (p *pebble) saveRoots(ctx context.Context, url string, server *x509.Certificate) error {
	pool := x509.NewCertPool()
	pool.AddCert(server)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for ; ; time.Sleep(20 * time.Millisecond) {
		resp, err := client.Get(url)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			continue
		}
		roots, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		return errors.Join(err, os.WriteFile(p.path("roots.pem"), roots, 0o644))
	}
}
