//go:build e2e && linux

package program

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/template"
	"time"

	"github.com/countersign-dev/countersign/internal/test/pages"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// caOf is how sidecars reach a CA, whose certificate is for caAddress.
type caOf struct {
	address string
	roots   string // the file with the roots to verify it by, as a pod has the ConfigMap istio-ca-root-cert
}

// sidecar is an agent with a real Envoy, as a pod has them.
type sidecar struct {
	name              string   // of its pod
	certs             string   // what the agent writes
	token             string   // its file
	start             func()   // starts the agent anew
	env               []string // further variables of our agent
	peers             []string // what their IDs begin with; default: those of the mesh
	agent, envoy      *proctest.Process
	inbound, outbound string
}

// starter starts the agent of a sidecar, and returns its SDS socket.
type starter func(s *sidecar, t *testing.T, token string, ca caOf, account string) (socket string)

// startSidecar runs this repository's agent and an Envoy.
func startSidecar(t *testing.T, home realm, ca caOf, account, pod string) *sidecar {
	t.Helper()
	return startSidecarWith(t, ourAgent(), home, ca, account, pod)
}

// startSidecarWith runs an agent and an Envoy as a service account's pod in the namespace shop has
// them, and returns when Envoy has its certificate.
func startSidecarWith(t *testing.T, agent starter, home realm, ca caOf, account, pod string) *sidecar {
	t.Helper()
	s := &sidecar{name: pod}
	s.startEnvoy(t, agent(s, t, home.bound(home.pod("shop", account, pod, "n1")), ca, account))
	return s
}

// ourAgent starts this repository's agent, with further arguments.
func ourAgent(more ...string) starter {
	return func(s *sidecar, t *testing.T, token string, ca caOf, account string) string {
		t.Helper()
		return s.startAgent(t, token, ca, account, more...)
	}
}

// startAgent runs this repository's agent as a sidecar has it: by Istio's variables.
func (s *sidecar) startAgent(t *testing.T, token string, ca caOf, account string, more ...string) (socket string) {
	t.Helper()
	dir := proctest.Folder(t)
	s.certs, socket = filepath.Join(dir, "certs"), filepath.Join(dir, "socket")
	write(t, filepath.Join(dir, "token"), token)
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programs.Path(t, "countersign"), "agent", "--dev", "--socket", socket,
		"--runtime-dir", filepath.Join(dir, "run"), "--set", "providers.citadel.token.file="+filepath.Join(dir, "token"))
	cmd.Args = append(cmd.Args, more...)
	cmd.Dir = dir
	cmd.Env = append(proctest.Environ(dir),
		"COUNTERSIGN_PROVIDER_PATH="+programs.Folder(t, "countersign-provider-citadel"),
		"CA_ADDR="+ca.address, "CA_ROOT_CA="+ca.roots, "ISTIOD_SAN="+caAddress, "ISTIO_META_CLUSTER_ID=home", "OUTPUT_CERTS="+s.certs,
		"TRUST_DOMAIN=cluster.local", "POD_NAMESPACE=shop", "SERVICE_ACCOUNT="+account, "SECRET_TTL=30s", "SECRET_GRACE_PERIOD_RATIO=0.9",
	)
	cmd.Env = append(cmd.Env, s.env...)
	s.runAgent(t, cmd)
	return socket
}

func (s *sidecar) runAgent(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	s.agent = proctest.Start(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s's agent:\n%s", s.name, s.agent.Log)
		}
	})
}

func (s *sidecar) startEnvoy(t *testing.T, socket string) {
	t.Helper()
	path, dir := programs.Foreign(t, "COUNTERSIGN_ENVOY"), proctest.Folder(t)
	admin, config := filepath.Join(dir, "admin"), filepath.Join(dir, "envoy.yaml")
	parsed, err := template.New("").Option("missingkey=error").Parse(read(t, programs.File(t, "test/e2e/envoy/sidecar.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if s.peers == nil {
		s.peers = []string{"spiffe://cluster.local/ns/shop/sa/"}
	}
	if err := parsed.Execute(&text, map[string]any{"Socket": socket, "Admin": admin, "Peers": s.peers}); err != nil {
		t.Fatal(err)
	}
	write(t, config, text.String())
	cmd := exec.Command(path, "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warn")
	cmd.Dir = dir
	s.envoy = proctest.Start(t, cmd)
	s.envoy.Until(t, patience, "Envoy's ports are open", func() bool {
		ports := portsOf(admin)
		s.inbound, s.outbound = ports["inbound"], ports["outbound"]
		return s.inbound != "" && s.outbound != "" && ask(admin, "/ready") == "LIVE\n"
	})
}

// portsOf returns the addresses of an Envoy's open listeners.
func portsOf(admin string) map[string]string {
	var at struct {
		Listeners []struct {
			Name  string
			Local struct {
				Socket struct {
					Address string
					Port    int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	ports := map[string]string{}
	if json.Unmarshal([]byte(ask(admin, "/listeners?format=json")), &at) == nil {
		for _, l := range at.Listeners {
			ports[l.Name] = fmt.Sprintf("%s:%d", l.Local.Socket.Address, l.Local.Socket.Port)
		}
	}
	return ports
}

// ask returns a page of a program's socket, "" while there is none.
func ask(socket, path string) string {
	code, text := pages.Get(pages.Client("unix:"+socket), path)
	if code == 0 {
		return ""
	}
	return text
}

// awaitLeaf waits until the agent's leaf and roots are as wanted.
func (s *sidecar) awaitLeaf(t *testing.T, r *replica, what string, wanted func(leaf *x509.Certificate, roots []*x509.Certificate) bool) {
	t.Helper()
	began := time.Now()
	r.until(t, s.name+" has "+what, func() bool {
		leaf, roots := pairIn(s.certs)
		return leaf != nil && wanted(leaf, roots)
	})
	t.Logf("%s has %s after %s", s.name, what, time.Since(began).Round(100*time.Millisecond))
}

// awaitRenewals waits until the agent has another certificate, that many times.
func (s *sidecar) awaitRenewals(t *testing.T, r *replica, times int) {
	t.Helper()
	serials := map[string]bool{}
	s.awaitLeaf(t, r, fmt.Sprintf("renewed %d times", times), func(leaf *x509.Certificate, _ []*x509.Certificate) bool {
		serials[leaf.SerialNumber.String()] = true
		return len(serials) > times
	})
}

// traffic are requests from each sidecar to each other one, over mutual TLS between two Envoys.
type traffic struct {
	end  context.CancelFunc
	all  sync.WaitGroup
	well atomic.Int64
	mu   sync.Mutex
	bad  []string
}

// between starts requests, each over a connection of its own between two Envoys. They go on until
// stop is called.
func (f *traffic) between(t *testing.T, sidecars ...*sidecar) {
	t.Helper()
	f.stop(t)
	ctx, end := context.WithCancel(context.Background())
	f.end = end
	t.Cleanup(func() { f.stop(t) }) // before the sidecars end
	for _, from := range sidecars {
		for _, to := range sidecars {
			if from != to {
				f.all.Go(func() { f.run(ctx, from, to) })
			}
		}
	}
}

// stop ends the requests. None may have failed.
func (f *traffic) stop(t *testing.T) {
	t.Helper()
	if f.end == nil {
		return
	}
	f.end()
	f.all.Wait()
	f.end = nil
	for i, line := range f.bad {
		if i < 5 {
			t.Error(line)
		}
	}
	t.Logf("%d requests went well, %d did not", f.well.Load(), len(f.bad))
	f.bad = nil
}

// flow waits for more requests that go well.
func (f *traffic) flow(t *testing.T, r *replica, more int64) {
	t.Helper()
	until := f.well.Load() + more
	r.until(t, "requests go on", func() bool { return f.well.Load() >= until })
}

func (f *traffic) run(ctx context.Context, from, to *sidecar) {
	transport := &http.Transport{DisableKeepAlives: true}
	tick := time.NewTicker(100 * time.Millisecond) // a handshake costs both ends some 5 ms of a core
	defer tick.Stop()
	for ctx.Err() == nil {
		switch err := through(ctx, transport, from.outbound, to.inbound); {
		case err == nil:
			f.well.Add(1)
		case ctx.Err() == nil:
			f.mu.Lock()
			f.bad = append(f.bad, fmt.Sprintf("%s: %s to %s: %v", time.Now().Format(time.StampMilli), from.name, to.name, err))
			f.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func through(ctx context.Context, transport http.RoundTripper, outbound, inbound string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+outbound, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-Envoy-Original-Dst-Host", inbound)
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}
