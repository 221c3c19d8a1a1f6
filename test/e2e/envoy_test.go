package e2e

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"text/template"

	"github.com/countersign-dev/countersign/internal/test/pages"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// What Envoys are started with: on an agent's socket, and on a discovery service.
var (
	//go:embed envoy/bootstrap.yaml
	bootstrap string
	//go:embed envoy/ads.yaml
	adsBootstrap string
)

// envoy is a running Envoy with one mTLS listener.
type envoy struct {
	*process
	admin *http.Client
}

// needEnvoy returns the path of Envoy's binary.
func needEnvoy(t *testing.T) string {
	t.Helper()
	return programs.Foreign(t, "COUNTERSIGN_ENVOY")
}

// apiType is how Envoy asks for secrets.
type apiType string

const (
	stateOfTheWorld apiType = "GRPC"
	incremental     apiType = "DELTA_GRPC"
)

// byEachAPI runs a test with Envoys that ask in the one way, and in the other.
func byEachAPI(t *testing.T, test func(t *testing.T, api apiType)) {
	t.Helper()
	t.Parallel()
	for _, api := range []apiType{stateOfTheWorld, incremental} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			test(t, api)
		})
	}
}

// startEnvoy starts an Envoy that gets the named certificate, and ROOTCA, from socket.
func startEnvoy(t *testing.T, socket string, api apiType, certificate string) *envoy {
	t.Helper()
	return startEnvoyWith(t, socket, api, certificate, "ROOTCA")
}

func startEnvoyWith(t *testing.T, socket string, api apiType, certificate, roots string) *envoy {
	t.Helper()
	return runEnvoy(t, bootstrap, serverFields(socket, api, certificate, roots))
}

// serverFields fill in the bootstrap.
func serverFields(socket string, api apiType, certificate, roots string) map[string]string {
	return map[string]string{
		"Socket": socket, "APIType": string(api), "Certificate": certificate, "Roots": roots, "TrustDomain": trustDomain, "Port": "0",
	}
}

// startADSEnvoy starts an Envoy that has all from the discovery service at address, by
// the keys in a folder.
func startADSEnvoy(t *testing.T, address, keys string, api apiType) *envoy {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return runEnvoy(t, adsBootstrap, map[string]string{"Service": port, "APIType": string(api), "Folder": keys})
}

func runEnvoy(t *testing.T, bootstrap string, fields map[string]string) *envoy {
	t.Helper()
	path, dir := needEnvoy(t), proctest.Folder(t)
	admin, config := filepath.Join(dir, "admin"), filepath.Join(dir, "envoy.yaml")
	fields["Admin"] = admin
	writeBootstrap(t, config, bootstrap, fields)
	e := &envoy{
		// Without hot restart there is no shared memory to be left behind.
		process: startProcess(t, path, "-c", config, "--disable-hot-restart",
			"--concurrency", "1", "--log-level", "warn", "--component-log-level", "config:info"),
		admin: unixHTTP(t, admin),
	}
	poll(t, "Envoy's admin socket", func() bool { _, err := os.Stat(admin); return err == nil || e.Ended() != nil })
	return e
}

func writeBootstrap(t *testing.T, path, bootstrap string, fields map[string]string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	parsed := template.Must(template.New("bootstrap").Option("missingkey=error").Parse(bootstrap))
	if err := parsed.Execute(file, fields); err != nil {
		t.Fatal(err)
	}
}

// address waits until the listener is open, and returns where.
func (e *envoy) address(t *testing.T) string {
	t.Helper()
	var address string
	poll(t, "Envoy's listener", func() bool {
		if e.Ended() != nil {
			t.Fatal("Envoy ended")
		}
		address = e.listener(t)
		return address != "" && e.get(t, "/ready") == "LIVE\n"
	})
	return address
}

// listener returns the listener's address, "" where it is not open yet.
func (e *envoy) listener(t *testing.T) string {
	t.Helper()
	var page struct {
		Listeners []struct {
			Local struct {
				Socket struct {
					Address string
					Port    int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	body := e.get(t, "/listeners?format=json")
	if err := json.Unmarshal([]byte(body), &page); err != nil || len(page.Listeners) == 0 {
		return ""
	}
	socket := page.Listeners[0].Local.Socket
	return fmt.Sprintf("%s:%d", socket.Address, socket.Port)
}

// get returns a page of the admin socket, "" where there is none (yet).
func (e *envoy) get(t *testing.T, path string) string {
	t.Helper()
	return getPage(t, e.admin, path)
}

// unixHTTP returns a client that asks on a unix socket, whatever the host.
func unixHTTP(t *testing.T, socket string) *http.Client {
	t.Helper()
	return pages.Client("unix:" + socket)
}

func getPage(t *testing.T, client *http.Client, path string) string {
	t.Helper()
	code, text := pages.Get(client, path)
	if code == 0 {
		return ""
	}
	return text
}
