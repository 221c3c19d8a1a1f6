package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// child is an Envoy that an agent runs.
type child struct {
	*envoy
	agent   *agent
	folder  string // has its configuration, and is watched
	address string
}

// startChild starts an agent with an Envoy as its child, and returns when that
// serves. More is laid over the settings of the proxy.
func startChild(t *testing.T, more map[string]any, flags ...string) *child {
	t.Helper()
	path, dir, address := needEnvoy(t), proctest.Folder(t), proctest.FreeAddress(t)
	c := &child{folder: filepath.Join(dir, "config"), address: address}
	if err := os.Mkdir(c.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	proxy := map[string]any{
		"command": append([]string{path, "-c", c.config(), "--concurrency", "1", "--log-level", "warn"}, flags...),
	}
	maps.Copy(proxy, more)
	if watch, ok := proxy["watch"].(map[string]any); ok {
		watch["folders"] = []string{c.folder}
	}
	a := prepareAgent(t, agentConfig{proxy: proxy})
	a.status = unixHTTP(t, a.statusSocket())
	admin := filepath.Join(dir, "admin")
	_, port, _ := net.SplitHostPort(address)
	writeBootstrap(t, c.config(), bootstrap, map[string]string{
		"Admin": admin, "Socket": a.socket, "APIType": string(stateOfTheWorld), "Certificate": "default", "Roots": "ROOTCA", "TrustDomain": trustDomain, "Port": port,
	})
	a.start(t)
	c.agent, c.envoy = a, &envoy{process: a.process, admin: unixHTTP(t, admin)}
	if got := c.envoy.address(t); got != address {
		t.Fatalf("Envoy listens on %s, not on %s", got, address)
	}
	return c
}

func (c *child) config() string { return filepath.Join(c.folder, "envoy.yaml") }

// proxyStatus is what /status says of the child.
type proxyStatus struct {
	State    string
	PID      int
	OldPID   int `json:"old_pid"`
	Epoch    int
	Restarts int
	Reloads  int
	Failed   int    `json:"failed_reloads"`
	Last     string `json:"last_error"`
}

func (c *child) status(t *testing.T) proxyStatus {
	t.Helper()
	var page struct{ Proxy proxyStatus }
	if err := json.Unmarshal([]byte(getPage(t, c.agent.status, "/status")), &page); err != nil {
		return proxyStatus{} // not there yet
	}
	return page.Proxy
}

// await waits until the child's status is as it is wanted.
func (c *child) await(t *testing.T, what string, done func(proxyStatus) bool) proxyStatus {
	t.Helper()
	var s proxyStatus
	poll(t, what, func() bool {
		if c.Ended() != nil {
			t.Fatal("the agent has ended")
		}
		s = c.status(t)
		return done(s)
	})
	return s
}

func TestEnvoyChildIsRestartedAndEndsWithAgent(t *testing.T) {
	t.Parallel()
	c := startChild(t, nil, "--disable-hot-restart")
	w := startWorkload(t, c.agent.socket, "client")
	p := startProber(t, w, c.address, envoyID)
	p.awaitRotation(t)
	p.noFailures(t)

	killed := c.status(t).PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := c.await(t, "Envoy to be back", func(s proxyStatus) bool { return s.State == "running" && s.PID != killed })
	if s.Restarts != 1 || c.agent.metric(t, "countersign_proxy_restarts_total") != 1 {
		t.Errorf("the status is %+v", s)
	}
	c.envoy.address(t)
	startProber(t, w, c.address, envoyID).awaitHandshakes(t, 5)

	envoy := c.status(t).PID
	c.stop(t, syscall.SIGTERM)
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("after SIGTERM the agent exits with %d", code)
	}
	if alive(envoy) {
		t.Error("Envoy outlives the agent")
	}
}

func TestKilledAgentTakesItsEnvoyAlong(t *testing.T) {
	t.Parallel()
	c := startChild(t, nil, "--disable-hot-restart")
	envoy := c.status(t).PID
	c.stop(t, syscall.SIGKILL)
	poll(t, "Envoy to have followed the agent", func() bool { return !alive(envoy) })
}

func TestEachEnvoyEpochTakesOverWithoutFailedConnection(t *testing.T) {
	t.Parallel()
	c := startChild(t, map[string]any{
		"watch":  map[string]any{"min_delay": "300ms"},
		"reload": map[string]any{"hot_restart": true, "drain_time": "1s"},
	})
	p := startProber(t, startWorkload(t, c.agent.socket, "client"), c.address, envoyID)
	for epoch := 1; epoch <= 3; epoch++ {
		before := c.status(t)
		c.comment(t, epoch)
		s := c.await(t, "the next epoch to take over", func(s proxyStatus) bool { return s.Reloads == epoch && s.OldPID == 0 })
		if s.Epoch != epoch || s.PID == before.PID || s.Restarts != 0 || alive(before.PID) {
			t.Errorf("after epoch %d the status is %+v", epoch, s)
		}
		p.awaitHandshakes(t, 10)
		p.noFailures(t)
	}
	c.refusesAConfigurationThatIsNotValid(t, p)

	memory := "/dev/shm/envoy_shared_memory_" + c.baseID(t) + "0"
	if _, err := os.Stat(memory); err != nil {
		t.Errorf("the epochs share no memory: %v", err)
	}
	p.awaitRotation(t)
	c.stop(t, syscall.SIGTERM)
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("after SIGTERM the agent exits with %d", code)
	}
	if _, err := os.Stat(memory); err == nil {
		t.Errorf("%s was left", memory)
	}
}

// comment changes the configuration's text, and nothing that it says.
func (c *child) comment(t *testing.T, n int) {
	t.Helper()
	text, err := os.ReadFile(c.config())
	if err != nil {
		t.Fatal(err)
	}
	writeWhole(t, c.config(), append(text, fmt.Sprintf("# %d\n", n)...))
}

func (c *child) refusesAConfigurationThatIsNotValid(t *testing.T, p *prober) {
	t.Helper()
	good, err := os.ReadFile(c.config())
	if err != nil {
		t.Fatal(err)
	}
	before := c.status(t)
	writeWhole(t, c.config(), []byte(strings.Replace(string(good), "stat_prefix", "stat_perfix", 1)))
	s := c.await(t, "a configuration to be refused", func(s proxyStatus) bool { return s.Failed == 1 })
	if s.PID != before.PID || s.Epoch != before.Epoch || s.State != "running" {
		t.Errorf("after a configuration that is not valid the status is %+v", s)
	}
	c.log.await(t, "cannot reload the proxy, it keeps running unchanged")
	writeWhole(t, c.config(), good)
	c.await(t, "the good one to take over", func(s proxyStatus) bool { return s.Epoch == before.Epoch+1 && s.OldPID == 0 })
	p.awaitHandshakes(t, 10)
	p.noFailures(t)
}

func (c *child) baseID(t *testing.T) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(c.agent.runtimeDir(), "countersign-proxy*", "base-id"))
	if len(files) != 1 {
		t.Fatalf("base ids are in %v", files)
	}
	id, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}
