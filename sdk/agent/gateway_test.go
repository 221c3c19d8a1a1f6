package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// withGateway adds a gateway's socket; no server is at the address of its service.
func withGateway(cfg agent.Config) agent.Config {
	cfg.Gateway = agent.Gateway{
		Socket:  sds.Config{Path: filepath.Join(filepath.Dir(cfg.Socket.Path), "gateway")},
		Service: gateway.Config{Address: "127.0.0.1:1", NodeID: "test"},
	}
	return cfg
}

// run runs an agent until the test ends, and checks that it leaves no socket.
func run(t *testing.T, cfg agent.Config) *agent.Agent {
	t.Helper()
	a, err := agent.New(cfg)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		for _, path := range []string{cfg.Socket.Path, cfg.WorkloadAPI.Path, cfg.Gateway.Socket.Path} {
			if _, err := os.Lstat(path); path != "" && err == nil {
				t.Errorf("%s is still there", path)
			}
		}
	})
	return a
}

func TestEachSocketRefusesNamesOfTheOther(t *testing.T) {
	cfg := withGateway(config(t, catest.NewCA(catest.Options{})))
	run(t, cfg)
	if n := len(fetch(t, cfg.Socket.Path, "default", "ROOTCA").Resources); n != 2 {
		t.Errorf("the workload's socket answers %d of its names", n)
	}
	for socket, names := range map[string][]string{
		cfg.Socket.Path:         {"kubernetes://web", "kubernetes-gateway://shop/web", "kubernetes://web-cacert"},
		cfg.Gateway.Socket.Path: {"default", "ROOTCA", "file-root:system", "file-cert:/a~/b"},
	} {
		for _, name := range names {
			if _, err := tryFetch(t, socket, name); status.Code(err) != codes.NotFound {
				t.Errorf("%s at %s: got %v", name, socket, err)
			}
		}
	}
}

func TestAgentCanServeGatewayAlone(t *testing.T) {
	cfg := withGateway(config(t, catest.NewCA(catest.Options{})))
	cfg.Socket.Path = ""
	a := run(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := secret.Get(ctx, a.Secrets(), secret.Caller{}, "default"); err != nil {
		t.Errorf("its own certificate is not obtained: %v", err)
	}
	if _, err := tryFetch(t, cfg.Gateway.Socket.Path, "default"); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
	if s, ok := a.Gateway(); !ok || s.Connected {
		t.Errorf("%t, %+v", ok, s)
	}
}

func TestAgentWithoutGatewayHasNoGatewayState(t *testing.T) {
	a := run(t, config(t, catest.NewCA(catest.Options{})))
	if _, ok := a.Gateway(); ok {
		t.Error("there is one")
	}
}

func TestPolicyAppliesToBothSockets(t *testing.T) {
	cfg := withGateway(config(t, catest.NewCA(catest.Options{})))
	a := run(t, cfg)
	a.SetPolicy(sds.Policy{Refuse: func(sds.Peer) error { return os.ErrPermission }})
	for _, socket := range []string{cfg.Socket.Path, cfg.Gateway.Socket.Path} {
		if _, err := tryFetch(t, socket, "kubernetes://web"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: got %v", socket, err)
		}
	}
}

func TestInvalidGatewayLeavesNoSocket(t *testing.T) {
	for want, spoil := range map[string]func(*agent.Config){
		"Address":         func(c *agent.Config) { c.Gateway.Service.Address = "nowhere" },
		"many identities": func(c *agent.Config) { c.Identities = &identities.Config{}; c.Secrets = c.Secrets[1:] },
		"is not a socket": func(c *agent.Config) { _ = os.WriteFile(c.Gateway.Socket.Path, nil, 0o600) },
	} {
		cfg := withGateway(config(t, catest.NewCA(catest.Options{})))
		spoil(&cfg)
		if _, err := agent.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if _, err := os.Lstat(cfg.Socket.Path); err == nil {
			t.Errorf("%s: the workload's socket was left", want)
		}
	}
}
