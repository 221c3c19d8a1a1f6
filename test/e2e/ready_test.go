package e2e

import (
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// TestAgentIsReadyWhileItsEnvoyIsLive has an Envoy wait for a secret, fail its health check,
// hang and end.
func TestAgentIsReadyWhileItsEnvoyIsLive(t *testing.T) {
	t.Parallel()
	path, dir, address := needEnvoy(t), proctest.Folder(t), proctest.FreeAddress(t)
	admin, file := filepath.Join(dir, "admin"), filepath.Join(dir, "envoy.yaml")
	_, port, _ := net.SplitHostPort(address)
	config := agentConfig{proxy: map[string]any{
		"command": []string{path, "-c", file, "--concurrency", "1", "--log-level", "warn", "--disable-hot-restart"},
		"drain":   map[string]any{"admin": "unix:" + admin, "time": "1s"},
	}}
	a := prepareAgent(t, config)
	writeBootstrap(t, file, bootstrap, map[string]string{
		"Admin": admin, "Socket": a.socket, "APIType": string(stateOfTheWorld), "Certificate": "late", "Roots": "ROOTCA", "TrustDomain": trustDomain, "Port": port,
	})
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	c := &child{agent: a, envoy: &envoy{process: a.process, admin: unixHTTP(t, admin)}}
	says := func(want string) {
		t.Helper()
		poll(t, "the page to say "+want, func() bool { return getPage(t, a.status, "/readyz") == want+"\n" || a.Ended() != nil })
	}

	says("the proxy is INITIALIZING")
	config.secrets = []map[string]any{{"name": "late", "spiffe_id": envoyID}}
	a.writeConfig(t, config)
	says("ok")
	c.post(t, "/healthcheck/fail")
	says("the proxy is DRAINING")
	c.post(t, "/healthcheck/ok")
	says("ok")

	running := c.await(t, "Envoy", func(s proxyStatus) bool { return s.PID != 0 }).PID
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(running, s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	says("the proxy's admin address does not say that it is LIVE")
	signal(syscall.SIGCONT)
	says("ok")
	signal(syscall.SIGKILL)
	c.await(t, "Envoy to be back", func(s proxyStatus) bool { return s.State == "running" && s.PID != running })
	says("ok")
}

// post asks Envoy's admin socket to do something.
func (e *envoy) post(t *testing.T, path string) {
	t.Helper()
	resp, err := e.admin.Post("http://unix"+path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("POST %s is answered %s", path, resp.Status)
	}
}
