package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// starter starts a server with what it has stored.
type starter func(context.Context) (*demandServer, error)

// demandServer is a running TLS server that gets certificates on demand.
type demandServer struct {
	tlsServer
	processes []*exec.Cmd
	// restartAgent ends and starts the agent beside a proxy that goes on; nil: there is none.
	restartAgent func() error
}

// contestant is a server that can be started again.
type contestant struct {
	*caddyBench
	starter
	*demandServer
}

func (c *contestant) start(ctx context.Context) (err error) {
	c.demandServer, err = c.starter(ctx)
	return err
}

// stop ends it; one that did not start has nothing to end.
func (s *demandServer) stop() {
	if s == nil {
		return
	}
	for _, p := range s.processes {
		end(p)
	}
}

// peak returns the most memory that each of its processes had, children included, in MiB.
func (s *demandServer) peak() (sum float64, each []string, err error) {
	for _, p := range s.processes {
		own := 0.0
		for _, pid := range append(childrenOf(p.Process.Pid), p.Process.Pid) {
			mib, err := peakOf(pid)
			if err != nil {
				return 0, nil, err
			}
			own += mib
		}
		sum, each = sum+own, append(each, fmt.Sprintf("%.0f", own))
	}
	return sum, each, nil
}

func childrenOf(pid int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		list, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

func (c *caddyBench) caddyWithOwnCA() (starter, error) {
	return c.startCaddy(map[string]any{"module": "internal"})
}

func (c *caddyBench) caddyWithPebble(p *pebble) (starter, error) {
	return c.startCaddy(map[string]any{
		"module": "acme", "ca": p.url, "trusted_roots_pem_files": []string{p.path("server-root.pem")},
		"challenges": map[string]any{
			"bind_host": "127.0.0.1", "http": map[string]any{"alternate_port": p.answers}, "tls-alpn": map[string]any{"disabled": true},
		},
	})
}

// startCaddy returns how to start Caddy with an issuer. It needs an ask, and calls it for each new name.
func (c *caddyBench) startCaddy(issuer map[string]any) (starter, error) {
	home, err := os.MkdirTemp(c.dir, "caddy")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	config, err := json.Marshal(map[string]any{
		"admin":   map[string]any{"disabled": true, "config": map[string]any{"persist": false}},
		"logging": map[string]any{"logs": map[string]any{"default": map[string]any{"writer": map[string]any{"output": "discard"}}}},
		"storage": map[string]any{"module": "file_system", "root": filepath.Join(home, "storage")},
		"apps": map[string]any{
			"http": map[string]any{"servers": map[string]any{"on-demand": map[string]any{
				"listen": []string{address}, "protocols": []string{"h1", "h2"}, "automatic_https": map[string]any{"disable": true}, "tls_connection_policies": []any{map[string]any{}},
				"routes": []any{map[string]any{"handle": []any{map[string]any{"handler": "static_response", "body": "hello\n"}}}},
			}}},
			"pki": map[string]any{"certificate_authorities": map[string]any{"local": map[string]any{"install_trust": false}}},
			"tls": map[string]any{"automation": map[string]any{
				"on_demand": map[string]any{"permission": map[string]any{"module": "http", "endpoint": c.ask.URL}},
				"policies":  []any{map[string]any{"on_demand": true, "issuers": []any{issuer}, "disable_ocsp_stapling": true}},
			}},
		},
	})
	file := filepath.Join(home, "caddy.json")
	if err = errors.Join(err, os.WriteFile(file, config, 0o644), c.giveAway(home)); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*demandServer, error) {
		cmd, err := c.command(c.caddy, "run", "--config", file)
		if err != nil {
			return nil, err
		}
		cmd.Stderr = nil
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		s := &demandServer{tlsServer: tlsServer{address}, processes: []*exec.Cmd{cmd}}
		if err := listening(ctx, address); err != nil {
			s.stop()
			return nil, err
		}
		return s, nil
	}, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// listening waits until a server accepts connections.
func listening(ctx context.Context, address string) error {
	for ; ; time.Sleep(5 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

// envoyWithOwnCA has a rule without ask, as the calls for new names are bounded by a rate, and one with.
func (c *caddyBench) envoyWithOwnCA() (starter, error) {
	return c.startEnvoy(func(string) string {
		return fmt.Sprintf(`secrets:
- {name: fresh, match: "*.fresh.example.org", ttl: 24h, on_demand: {names: 50000}}
- {name: asked, match: "*.asked.example.org", ttl: 24h, on_demand: {names: 50000, ask: {url: %q}}}
`, c.ask.URL)
	})
}

func (c *caddyBench) envoyWithPebble(p *pebble) (starter, error) {
	pin, err := sha256Of(filepath.Join(c.root, "countersign-provider-acme"))
	if err != nil {
		return nil, err
	}
	return c.startEnvoy(func(dir string) string {
		return fmt.Sprintf(`default_provider: file
providers:
- {name: file}
- name: acme
  sha256: %[1]s
  settings: {url: %[2]q, root_file: %[3]s/server-root.pem, roots: %[3]s/roots.pem, accept_terms: true, state_dir: %[4]s/acme, listen: "127.0.0.1:%[5]d"}
secrets:
- {name: fresh, match: "*.fresh.example.org", provider: acme, on_demand: {names: 50000, wait: 1m, ask: {url: %[6]q}, budget: {new: 1000/min, burst: 1000, per_registered_domain: 10000/week}}}
`, pin, p.url, p.dir, dir, p.answers, c.ask.URL)
	})
}

// startEnvoy returns how to start the agent and Envoy, both at once.
func (c *caddyBench) startEnvoy(config func(dir string) string) (starter, error) {
	dir, err := os.MkdirTemp(c.dir, "demand")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "agent.yaml")
	text := fmt.Sprintf("state: {dir: %[1]s/state, key_file: %[1]s/key}\n", dir) + config(dir)
	err = errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "state"), 0o700), os.Mkdir(filepath.Join(dir, "acme"), 0o700),
		os.WriteFile(filepath.Join(dir, "key"), []byte(rand.Text()+rand.Text()), 0o400), c.giveAway(dir))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*demandServer, error) {
		agent, err := c.shippedAgent("--config", file)
		if err != nil {
			return nil, err
		}
		envoy, err := c.startDemandEnvoy(ctx, c.envoy, filepath.Join(agent.Dir, "s"), runtime.NumCPU())
		if err != nil {
			end(agent)
			return nil, err
		}
		s := &demandServer{tlsServer: envoy.tlsServer, processes: []*exec.Cmd{envoy.cmd, agent}}
		s.restartAgent = func() error {
			old := s.processes[1]
			end(old)
			fresh := asUser(exec.Command(old.Path, old.Args[1:]...), c.uid)
			fresh.Dir, fresh.Env = old.Dir, old.Env
			s.processes[1] = fresh
			return fresh.Start()
		}
		return s, nil
	}, nil
}
