package e2e

import (
	_ "embed"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

//go:embed envoy/slow.yaml
var slowBootstrap string

// A request in flight takes this long after SIGTERM.
const inFlight = 3 * time.Second

// slowServer answers a request when it is told to.
type slowServer struct {
	asked, release chan struct{}
	port           string
}

func startSlowServer(t *testing.T) *slowServer {
	t.Helper()
	s := &slowServer{asked: make(chan struct{}), release: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(s.asked)
		<-s.release
		_, _ = io.WriteString(w, "served")
	}))
	t.Cleanup(server.Close)
	_, s.port, _ = net.SplitHostPort(server.Listener.Addr().String())
	return s
}

// TestRequestInFlightSurvivesSIGTERM ends an agent the way systemd does with KillMode=mixed,
// and as process 1 of a container.
func TestRequestInFlightSurvivesSIGTERM(t *testing.T) {
	t.Run("as a service", func(t *testing.T) { t.Parallel(); survivesSIGTERM(t, nil, "") })
	t.Run("as process 1", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("needs root for a PID namespace")
		}
		survivesSIGTERM(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}, "mount --make-rprivate / && mount -t proc none /proc && ")
	})
}

func survivesSIGTERM(t *testing.T, attr *syscall.SysProcAttr, first string) {
	path, dir, address, server := needEnvoy(t), proctest.Folder(t), proctest.FreeAddress(t), startSlowServer(t)
	admin, bootstrap := filepath.Join(dir, "admin"), filepath.Join(dir, "envoy.yaml")
	_, port, _ := net.SplitHostPort(address)
	writeBootstrap(t, bootstrap, slowBootstrap, map[string]string{"Admin": admin, "Port": port, "Server": server.port})
	a := prepareAgent(t, agentConfig{proxy: map[string]any{
		"command": []string{path, "-c", bootstrap, "--concurrency", "1", "--log-level", "warn", "--disable-hot-restart", "--drain-strategy", "immediate", "--drain-time-s", "1"},
		"drain":   map[string]any{"admin": "unix:" + admin, "time": patience.String(), "when_idle": true},
	}})
	p := prepareProcess(t, nil, "/bin/sh", "-c", first+`exec "$0" "$@"`, filepath.Join(a.bin, "countersign"), "agent", "--config", a.config())
	p.cmd.SysProcAttr = attr
	p.begin(t)

	answer := make(chan string, 1)
	poll(t, "Envoy to listen", func() bool { return listensAt(address) })
	go func() { answer <- fetchPage("http://" + address) }()
	<-server.asked
	terminated := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.log.await(t, "draining the proxy")
	if attr == nil { // who asks from outside of its namespace is nobody there
		startWorkload(t, a.socket, "client")
	}
	poll(t, "Envoy to refuse new connections", func() bool { return !listensAt(address) })
	<-time.After(time.Until(terminated.Add(inFlight)))
	close(server.release)
	if got := <-answer; got != "served" {
		t.Errorf("the request in flight ended with %q", got)
	}
	p.stop(t, 0) // it is ending
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the agent exits with %d", code)
	}
	p.log.await(t, "the proxy is idle, ending its drain")
}

// listensAt reports whether somebody listens there.
func listensAt(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// fetchPage returns the page, or why there is none.
func fetchPage(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
