package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/discovery/folder"
)

// backend answers with its name.
func backend(t *testing.T, name string) (port int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// endpointsFile has one endpoint of a cluster.
func endpointsFile(cluster string, port int) string {
	return fmt.Sprintf(`"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: %s
endpoints:
- locality: {region: here}
  load_balancing_weight: 1
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
`, cluster, port)
}

// visitor asks an Envoy again and again, each time on a new connection.
type visitor struct {
	*prober
	address string
	saying  chan string // what the last answer said
}

// visit starts one. Its handshakes verify nothing but that there is a certificate.
func (m *mesh) visit(t *testing.T, address string) *visitor {
	t.Helper()
	v := &visitor{address: address, saying: make(chan string, 1)}
	v.saying <- ""
	client := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
		return m.root.verifies(state.PeerCertificates[0])
	}}
	w := &workload{changed: newNotice(), pair: &tls.Certificate{Leaf: m.root.Cert}}
	v.prober = startProberBy(t, w, func(ctx context.Context) (*x509.Certificate, error) {
		said, shown, err := askOver(ctx, &tls.Dialer{Config: client}, address)
		<-v.saying
		v.saying <- said
		return shown, err
	})
	return v
}

// hears waits until the answers are those of a backend.
func (v *visitor) hears(t *testing.T, name string) {
	t.Helper()
	poll(t, "an answer of "+name, func() bool {
		said := <-v.saying
		v.saying <- said
		return said == name
	})
	v.awaitHandshakes(t, 3)
}

func (a *authority) verifies(leaf *x509.Certificate) error {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots})
	return err
}

func askOver(ctx context.Context, dialer *tls.Dialer, address string) (said string, shown *x509.Certificate, err error) {
	transport := &http.Transport{DisableKeepAlives: true, DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://envoy/", http.NoBody)
	if err != nil {
		return "", nil, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s: %s", resp.Status, body)
	}
	return string(body), resp.TLS.PeerCertificates[0], err
}

// stats returns Envoy's counters and gauges whose name matches a pattern.
func (e *envoy) stats(t *testing.T, pattern string) map[string]int {
	t.Helper()
	var page struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	body := e.get(t, "/stats?format=json&type=All&filter="+pattern)
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	all := map[string]int{}
	for _, s := range page.Stats {
		all[s.Name] = s.Value
	}
	return all
}

// tookAll holds Envoy to having refused nothing, and to having missed no cluster.
func (e *envoy) tookAll(t *testing.T) {
	t.Helper()
	for name, value := range e.stats(t, "(update_rejected|no_cluster|init_fetch_timeout|create_failure|warming)") {
		if value != 0 && !strings.Contains(name, "_ms") {
			t.Errorf("Envoy has %s: %d", name, value)
		}
	}
}

// updates returns how often the endpoints of a cluster came.
func (e *envoy) updates(t *testing.T, cluster string) int {
	t.Helper()
	name := "cluster." + cluster + ".update_success"
	return e.stats(t, "update_success")[name]
}

func TestEnvoyGetsEverythingFromOneService(t *testing.T) {
	byEachAPI(t, hasAllOfOneService)
}

func hasAllOfOneService(t *testing.T, api apiType) {
	m, e, v := visited(t, api)
	web, shop := e.updates(t, "web"), e.updates(t, "shop")
	m.write(t, "web.yaml", endpointsFile("web", backend(t, "web 2")))
	v.hears(t, "web 2")
	if got := e.updates(t, "web"); got != web+1 {
		t.Errorf("the changed endpoints of web came %d times", got-web)
	}
	if got := e.updates(t, "shop"); got != shop {
		t.Errorf("the endpoints of shop, which had not changed, came %d times", got-shop)
	}

	m.write(t, "routes.yaml", strings.Replace(routesFile, "cluster: web", "cluster: shop", 1))
	v.hears(t, "shop 1")

	// A changed cluster warms anew, which needs its endpoints again.
	m.write(t, "clusters.yaml", strings.ReplaceAll(clustersFile, "connect_timeout: 1s", "connect_timeout: 2s"))
	poll(t, "Envoy to have warmed the changed clusters", func() bool {
		return strings.Count(e.get(t, "/config_dump?resource=dynamic_active_clusters"), `"connect_timeout": "2s"`) == 2
	})
	v.hears(t, "shop 1")

	v.rotates(t, m)

	m.write(t, "routes.yaml", strings.Replace(routesFile, "prefix:", "prefx:", 1))
	poll(t, "the bad file to be seen", func() bool { return m.fileState("routes.yaml") == folder.Kept })
	v.hears(t, "shop 1")

	// A route and the cluster that it needs come in one file.
	m.write(t, "routes.yaml", strings.Join([]string{
		strings.Replace(routesFile, "cluster: web", "cluster: new", 1), strings.ReplaceAll(strings.Split(clustersFile, "---\n")[1], "shop", "new"),
		endpointsFile("new", backend(t, "new 1")),
	}, "---\n"))
	v.hears(t, "new 1")
	e.tookAll(t)
	v.noFailures(t)

	m.remove(t, "listener.yaml")
	poll(t, "the listener to be closed", func() bool {
		conn, err := net.Dial("tcp", v.address)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	e.tookAll(t)
}

// rotates holds new handshakes to showing a secret that is put.
func (v *visitor) rotates(t *testing.T, m *mesh) {
	t.Helper()
	second := m.root.secret(t, "ingress-cert", "/second")
	m.secrets.put(t, second)
	if got := v.awaitRotation(t).URIs[0].Path; got != "/second" {
		t.Errorf("Envoy shows %s", got)
	}
}

// fileState returns how the service has taken a file.
func (m *mesh) fileState(name string) folder.State {
	files := m.folder.Status().Files
	i := slices.IndexFunc(files, func(f folder.FileStatus) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	return files[i].State
}
