package e2e

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

const (
	trustDomain = "e2e.test"
	envoyID     = "spiffe://e2e.test/ns/e2e/sa/envoy"  // of the secret "default"
	clientID    = "spiffe://e2e.test/ns/e2e/sa/client" // of the secret "client"

	// A rotation comes every 1.2 to 2.8 s, and the old certificate lives on for 37 s more: a machine
	// that is busy with other things fails no test.
	ttl         = 40 * time.Second
	renewRatio  = 0.95
	renewJitter = 0.02
)

// agent is `countersign agent` with one provider, on a socket of its own. It can
// be stopped and started again.
type agent struct {
	*process
	bin, dir string
	socket   string
	ca       string // the CA's folder
	outage   string // while this file exists, the CA is away
	status   *http.Client
	user     *syscall.Credential
	fds      int
	env      []string // besides a minimal one
}

// agentConfig is what a test may want otherwise; the zero value will do.
type agentConfig struct {
	secrets []map[string]any // besides "default" and "client"
	// workload is the secret "default"; nil: Envoy's.
	workload map[string]any
	// selfSigned has the file provider make a CA, instead of the moody one that
	// reads the test's.
	selfSigned bool
	user       *syscall.Credential // whom it runs as; nil: the test's own
	// descriptors that the agent and its provider may each have; 0: the machine's.
	descriptors int
	limits      map[string]any   // of its provider
	token       string           // what its token file holds; empty: there is none
	exchange    []map[string]any // of the token
	files       map[string]any
	outputs     []map[string]any
	crl         []map[string]any
	proxy       map[string]any   // the settings of its child; nil: it has none
	workloadAPI map[string]any   // nil: it is off
	oneSocket   bool             // the Workload API is on the socket of SDS
	spire       map[string]any   // nil: it is off
	endpoints   []map[string]any // of foreign trust domains' bundles
	experiments []string         // that are on
	domain      string           // its trust domain; empty: trustDomain
	publish     map[string]any   // the agent's own bundle endpoint; nil: it is off
	validator   string           // socket.spiffe_validator; empty: the default
	// gateway has it serve the socket of a gateway alone; nil: the workload's.
	gateway map[string]any
	// state has it keep its secrets over a restart.
	state bool
	// ttl of its certificates, and the ratio of it that is left when they are renewed; 0: ttl, renewRatio.
	ttl   time.Duration
	ratio float64
	// standIn is the folder of a CA that signs, by the file provider, while the moody
	// one, whose CA is in the folder first, is away.
	first, standIn string
	// fallbackAfter is how long the moody one has been away then; empty: a second.
	fallbackAfter string
}

// startAgent starts an agent with a CA of its own. It returns when there is a
// socket, and before any secret is there.
func startAgent(t *testing.T, config agentConfig) *agent {
	t.Helper()
	a := prepareAgent(t, config)
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a
}

// prepareAgent makes all that an agent needs, and starts nothing.
func prepareAgent(t *testing.T, config agentConfig) *agent {
	t.Helper()
	dir := proctest.Folder(t)
	a := &agent{
		bin: binaries(t), dir: dir, socket: filepath.Join(dir, "sds", "socket"),
		ca: filepath.Join(dir, "ca"), outage: filepath.Join(dir, "outage"), user: config.user, fds: config.descriptors,
	}
	for _, folder := range []string{a.ca, a.runtimeDir(), filepath.Dir(a.socket)} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if config.first != "" {
		a.ca = config.first
	} else if !config.selfSigned {
		writeCA(t, a.ca, "first root")
	}
	a.writeConfig(t, config)
	giveTo(t, a.user, a.dir)
	return a
}

func (a *agent) runtimeDir() string { return filepath.Join(a.dir, "run") }

// tokenFile writes it, where there is one.
func (a *agent) tokenFile(t *testing.T, token string) string {
	t.Helper()
	if token == "" {
		return ""
	}
	path := filepath.Join(a.dir, "token")
	writeWhole(t, path, []byte(token))
	return path
}

func (a *agent) mood() string         { return filepath.Join(a.dir, "mood") }
func (a *agent) statusSocket() string { return filepath.Join(a.dir, "status") }
func (a *agent) config() string       { return filepath.Join(a.dir, "countersign.yaml") }

// limit is what a shell does before it is the agent.
func (a *agent) limit() string {
	if a.fds == 0 {
		return ""
	}
	return fmt.Sprintf("ulimit -n %d; ", a.fds)
}

// start starts the binary, the first time or again.
func (a *agent) start(t *testing.T) {
	t.Helper()
	a.process = prepareProcess(t, a.user, "/bin/sh", "-c", a.limit()+`exec "$0" "$@"`,
		filepath.Join(a.bin, "countersign"), "agent", "--config", a.config())
	a.cmd.Env = append(a.cmd.Env, a.env...)
	a.begin(t)
	poll(t, "the agent's socket", func() bool {
		if a.Ended() != nil {
			t.Fatal("the agent has ended")
		}
		conn, err := net.Dial("unix", a.socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (a *agent) writeConfig(t *testing.T, c agentConfig) {
	t.Helper()
	signers := map[string]any{}
	if c.standIn != "" {
		signers = map[string]any{"providers": []string{"moody", "file"}, "fallback_after": cmp.Or(c.fallbackAfter, "1s")}
	}
	secrets := append([]map[string]any{
		{"name": "default", "spiffe_id": envoyID},
		{"name": "client", "spiffe_id": clientID},
	}, c.secrets...)
	if c.workload != nil {
		secrets[0] = c.workload
	}
	for _, s := range secrets[:2] {
		maps.Copy(s, signers)
	}
	if c.oneSocket {
		shared := map[string]any{"socket": a.socket}
		maps.Copy(shared, c.workloadAPI)
		c.workloadAPI = shared
	}
	content, err := json.Marshal(map[string]any{ // JSON is YAML
		"trust_domain": cmp.Or(c.domain, trustDomain), "publish_bundle": c.publish,
		"ttl":          cmp.Or(c.ttl, ttl).String(),
		"rotation":     map[string]any{"ratio": cmp.Or(c.ratio, renewRatio), "jitter": renewJitter},
		"runtime_dir":  a.runtimeDir(),
		"secrets":      secrets,
		"socket":       a.socketEntry(c),
		"status":       map[string]any{"address": "unix:" + a.statusSocket()},
		"files":        c.files,
		"outputs":      c.outputs,
		"crl":          c.crl,
		"providers":    a.providerEntries(t, c),
		"proxy":        c.proxy,
		"workload_api": c.workloadAPI, "spire": c.spire, "bundle_endpoints": c.endpoints,
		"experimental": c.experiments,
		"gateway":      a.gatewayEntry(c),
		"state":        a.stateEntry(t, c),
	})
	if err != nil {
		t.Fatal(err)
	}
	writeWhole(t, a.config(), content)
}

func (a *agent) socketEntry(c agentConfig) map[string]any {
	if c.gateway != nil {
		return map[string]any{"enabled": false}
	}
	return map[string]any{"path": a.socket, "spiffe_validator": cmp.Or(c.validator, "auto")}
}

// gatewayEntry moves the agent's socket to the gateway.
func (a *agent) gatewayEntry(c agentConfig) map[string]any {
	if c.gateway == nil {
		return nil
	}
	entry := maps.Clone(c.gateway)
	entry["enabled"], entry["socket"] = true, a.socket
	return entry
}

func (a *agent) stateDir() string { return filepath.Join(a.dir, "state") }

func (a *agent) stateEntry(t *testing.T, c agentConfig) map[string]any {
	t.Helper()
	if !c.state {
		return nil
	}
	key := filepath.Join(a.dir, "state.key")
	if err := os.WriteFile(key, []byte(rand.Text()+rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"dir": a.stateDir(), "key_file": key}
}

func (a *agent) providerEntries(t *testing.T, c agentConfig) []map[string]any {
	t.Helper()
	entries := []map[string]any{a.providerEntry(t, c)}
	if c.standIn != "" {
		c.selfSigned, a.ca = true, c.standIn
		entries = append(entries, a.providerEntry(t, c))
		a.ca = c.first
	}
	return entries
}

func (a *agent) providerEntry(t *testing.T, c agentConfig) map[string]any {
	t.Helper()
	name, settings := "moody", map[string]any{"dir": a.ca, "outage": a.outage, "asks": a.socket, "mood": a.mood(), "accept": filepath.Join(a.dir, "accept")}
	if c.selfSigned {
		name, settings = "file", map[string]any{"dir": a.ca, "self_signed": true}
	}
	entry := map[string]any{"name": name, "sha256": pinOf(t, filepath.Join(a.bin, "countersign-provider-"+name)), "settings": settings, "limits": c.limits}
	if file := a.tokenFile(t, c.token); c.exchange != nil {
		entry["token"] = map[string]any{"file": file, "exchange": c.exchange}
	} else {
		entry["token"] = map[string]any{"file": file}
	}
	return entry
}

// provider waits until the agent has its one provider process, other than not,
// and returns the pid.
func (a *agent) provider(t *testing.T, not int) int {
	t.Helper()
	var pid int
	poll(t, "the agent to have a provider", func() bool {
		if a.Ended() != nil {
			t.Fatal("the agent has ended")
		}
		pids := children(t, a.PID())
		if len(pids) == 1 {
			pid = pids[0]
		}
		return len(pids) == 1 && pid != not
	})
	return pid
}

// killProvider kills the provider's process and waits until it is gone.
func (a *agent) killProvider(t *testing.T) (pid int) {
	t.Helper()
	pid = a.provider(t, 0)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	poll(t, "the provider to be dead", func() bool { return !alive(pid) })
	return pid
}

// setOutage takes the CA away, or brings it back.
func (a *agent) setOutage(t *testing.T, away bool) {
	t.Helper()
	if away {
		writeWhole(t, a.outage, nil)
	} else if err := os.Remove(a.outage); err != nil {
		t.Fatal(err)
	}
}

// metric returns the sum of a metric's series that have all of the labels, each
// as name="value".
func (a *agent) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	var sum float64
	lines := bufio.NewScanner(strings.NewReader(getPage(t, a.status, "/metrics")))
	for lines.Scan() {
		end := max(0, strings.LastIndexByte(lines.Text(), ' ')) // a label may have spaces
		series, value := lines.Text()[:end], lines.Text()[end:]
		base, _, _ := strings.Cut(series, "{")
		if base != name || !containsAll(series, labels) {
			continue
		}
		number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			t.Fatalf("/metrics has the line %q: %v", lines.Text(), err)
		}
		sum += number
	}
	return sum
}
