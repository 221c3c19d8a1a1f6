//go:build e2e && linux

package ingress_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// gate is an Envoy that has all from one service: four types from its folder, and secrets
// from a real API server.
type gate struct {
	*envoy
	t         *testing.T
	cluster   *cluster
	service   *service
	resources string // the folder

	shop     authority
	customer *tls.Config
	address  string // of the listener
}

func TestRealEnvoyGetsAllOnOneStream(t *testing.T) {
	c := newCluster(t)
	for _, api := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(api, func(t *testing.T) {
			c.t = t
			g := openGate(t, c, api)
			g.hasAllOnOneStream()
			g.losesAndRegainsTheRight()
			g.isOneStream()
		})
	}
}

// openGate waits until the listener is open.
func openGate(t *testing.T, c *cluster, api string) *gate {
	t.Helper()
	agents, resources := newAuthority(t), proctest.Folder(t)
	g := &gate{t: t, cluster: c, resources: resources, shop: newAuthority(t)}
	g.customer = g.shop.customer(t)
	for _, name := range []string{"listener.yaml", "routes.yaml", "clusters.yaml"} {
		g.put(name, strings.Replace(g.mesh(name), "name: ingress-cert", "name: kubernetes://web", 1))
	}
	g.put("web.yaml", endpointsOf("web", backend(t, "web 1")))
	g.put("shop.yaml", endpointsOf("shop", backend(t, "shop 1")))
	g.service = newService(t, c, map[string]any{
		"certificate":   map[string]any{"dns_names": []string{"localhost"}},
		"providers":     fileProvider(agents.folder(t)),
		"trust_domains": []any{map[string]any{"name": "cluster.local", "own_ca": true}},
		"resources":     map[string]any{"folder": resources},
		"access":        map[string]any{"allow": "10s", "deny": "10s"},
	})
	_, port, err := net.SplitHostPort(g.service.address)
	must(t, err)
	g.envoy = runEnvoy(t, "ads.yaml", map[string]string{"Service": port, "APIType": api, "Folder": agents.client(t, "/ns/istio-ingress/sa/gateway")})
	return g
}

// client writes what a client of cluster.local has into a folder.
func (a authority) client(t *testing.T, path string) string {
	t.Helper()
	dir := proctest.Folder(t)
	made := a.sign(t, &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: path}}})
	for name, content := range map[string][]byte{"chain.pem": made.PEM(), "key.pem": made.KeyPEM(t), "roots.pem": a.PEM()} {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

// backend answers with its name.
func backend(t *testing.T, name string) (port int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

func endpointsOf(cluster string, port int) string {
	return fmt.Sprintf(`"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: %s
endpoints:
- lb_endpoints:
  - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
`, cluster, port)
}

// mesh is a file of the folder test/e2e/mesh.
func (g *gate) mesh(name string) string {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(programs.File(g.t, "test/e2e/mesh"), name))
	must(g.t, err)
	return string(text)
}

func (g *gate) put(name, text string) {
	g.t.Helper()
	write(g.t, filepath.Join(g.resources, name), []byte(text))
}

// hears makes requests, each of which must go well, until it is that backend that answers.
func (g *gate) hears(name string) {
	g.t.Helper()
	poll(g.t, "an answer of "+name, func() bool {
		_, said, err := visit(g.customer, g.address)
		must(g.t, err)
		return said == name
	})
}

func (g *gate) shows(want site) {
	g.t.Helper()
	awaitShown(g.t, g.customer, g.address, want)
}

func (g *gate) hasAllOnOneStream() {
	first, second := g.shop.site(g.t), g.shop.site(g.t)
	g.cluster.put(first)
	g.address = g.envoy.address(g.t)
	g.hears("web 1")
	g.shows(first)
	g.isOneStream()

	g.cluster.put(second)
	g.shows(second)
	g.put("web.yaml", endpointsOf("web", backend(g.t, "web 2")))
	g.hears("web 2")
	g.put("routes.yaml", strings.Replace(g.mesh("routes.yaml"), "cluster: web", "cluster: shop", 1))
	g.hears("shop 1")
	g.refusesAListener()
	g.refusesASecret(second)
}

// isOneStream holds the service to having a single client, which has everything of it.
func (g *gate) isOneStream() {
	g.t.Helper()
	streams := g.status().Streams
	if len(streams) != 1 {
		g.t.Fatalf("there are %d streams", len(streams))
	}
	if got := streams[0]; got.Identity != "spiffe://cluster.local/ns/istio-ingress/sa/gateway" || !strings.HasPrefix(got.Service, "ADS") {
		g.t.Errorf("the client is %s, on %s", got.Identity, got.Service)
	}
	for _, url := range []string{folder.ListenerURL, folder.RouteURL, folder.ClusterURL, folder.EndpointURL, secretType} {
		if got := typeOf(streams, url); got.Acked == "" {
			g.t.Errorf("of %s the client has taken nothing: %+v", url, got)
		}
	}
}

// refusesAListener: which addresses the machine has, no rule of Envoy's messages knows.
func (g *gate) refusesAListener() {
	g.t.Helper()
	elsewhere := strings.NewReplacer("name: ingress\n", "name: elsewhere\n", "address: 127.0.0.1", "address: 192.0.2.1").Replace(g.mesh("listener.yaml"))
	g.put("elsewhere.yaml", strings.Replace(elsewhere, "name: ingress-cert", "name: kubernetes://web", 1))
	g.refuses(folder.ListenerURL, "cannot bind '192.0.2.1:0'")
	g.hears("shop 1")
	must(g.t, os.Remove(filepath.Join(g.resources, "elsewhere.yaml")))
	g.put("routes.yaml", g.mesh("routes.yaml"))
	g.hears("web 2")
}

// refusesASecret: Go takes keys that Envoy does not.
func (g *gate) refusesASecret(before site) {
	g.t.Helper()
	g.cluster.put(g.shop.oddSite(g.t))
	g.refuses(secretType, "Failed to load certificate chain")
	g.shows(before)
	after := g.shop.site(g.t)
	g.cluster.put(after)
	g.shows(after)
}

// losesAndRegainsTheRight: an Envoy keeps what it has had, and is given nothing new.
func (g *gate) losesAndRegainsTheRight() {
	g.t.Helper()
	before, after := g.shop.site(g.t), g.shop.site(g.t)
	g.cluster.put(before)
	g.shows(before)
	g.cluster.revoke()
	poll(g.t, "the right to be gone", func() bool { return g.service.denials(g.t) > 0 })
	g.cluster.put(after)
	asked := g.service.denials(g.t)
	poll(g.t, "the service to ask again", func() bool {
		cert, err := shown(g.customer, g.address)
		must(g.t, err)
		if !cert.Equal(before.shown) {
			g.t.Fatal("without the right, Envoy has a new secret")
		}
		return g.service.denials(g.t) > asked
	})
	g.cluster.grant()
	g.shows(after)
}

// oddSite has a key on a curve that hardly anybody takes.
func (a authority) oddSite(t *testing.T) site {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	must(t, err)
	odd := a.site(t)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	odd.data["tls.crt"] = (&certtest.Pair{Cert: a.Sign(t, odd.shown, key.Public())}).PEM()
	odd.data["tls.key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
	return odd
}

// refuses waits until the command says which version Envoy has not taken, and why, as text
// and in JSON.
func (g *gate) refuses(url, why string) {
	g.t.Helper()
	var of discovery.TypeStatus
	poll(g.t, "a refusal of "+url, func() bool {
		of = typeOf(g.status().Streams, url)
		return of.Refused != nil
	})
	if !strings.Contains(of.Refused.Reason, why) || of.Refused.Version == "" || of.Acked == "" || of.Acked == of.Refused.Version || of.Sent != of.Refused.Version {
		g.t.Errorf("of %s the status says %+v, refused %+v", url, of, of.Refused)
	}
	table, short := g.service.ask(g.t, "status"), url[strings.LastIndex(url, ".")+1:]
	for line := range strings.Lines(table) {
		if strings.Contains(line, " "+short+" ") && strings.Contains(line, of.Acked) && strings.Contains(line, of.Refused.Version+" "+of.Refused.Text()) {
			return
		}
	}
	g.t.Errorf("of %s the command says nothing:\n%s", url, table)
}

func (g *gate) status() discovery.Status {
	g.t.Helper()
	var report struct{ Server discovery.Status }
	must(g.t, json.Unmarshal([]byte(g.service.ask(g.t, "status", "-o", "json")), &report))
	return report.Server
}

// typeOf is what the streams have of a type.
func typeOf(streams []discovery.StreamStatus, url string) discovery.TypeStatus {
	for _, s := range streams {
		if i := slices.IndexFunc(s.Types, func(of discovery.TypeStatus) bool { return of.Type == url }); i >= 0 {
			return s.Types[i]
		}
	}
	return discovery.TypeStatus{}
}

// denials is how often an API server has said that a service account may not read secrets.
func (s *service) denials(t *testing.T) float64 {
	t.Helper()
	return valueOf(t, page(s.file("page"), "/metrics"), `countersign_discovery_access_reviews_total{answer="denied"}`)
}

// ask runs a command that asks the service's page.
func (s *service) ask(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Path(t, "countersign-discovery"), append(args, "--address", "unix:"+s.file("page"))...)
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
