package program

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/test/pages"
)

// alone is a service without Kubernetes: its own CA, its own trust domain, a folder.
const alone = `
listen: {tls: '127.0.0.1:0'}
certificate: {dns_names: [discovery.test]}
PROVIDERS
trust_domains: [{name: cluster.local, own_ca: true}]
cluster: {disabled: true}
resources: {folder: DIR/resources}
status: {address: 'unix:DIR/page', probes: '127.0.0.1:0'}
times: {drain: 0s}
`

const clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

const web = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: web
type: STATIC
connect_timeout: 1s
load_assignment:
  cluster_name: web
  endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 80}}}}]}]
`

// get asks an address of the page, host:port or unix:PATH.
func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	code, text := pages.Get(pages.Client(address), path)
	if code == 0 {
		t.Fatal(text)
	}
	return code, text
}

// serial is that of the certificate which a handshake shows; "" if the handshake fails.
func serial(address string, cfg *tls.Config) string {
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return ""
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Text(16)
}

func TestKnownCallerGetsFolderAndIsShown(t *testing.T) {
	t.Parallel()
	dir := files(t, alone)
	write(t, filepath.Join(dir, "resources", "web.yaml"), web)
	write(t, filepath.Join(dir, "resources", "bad.yaml"), "name: x\n")
	p := start(t, dir)
	p.ready(t)
	ca := p.authority(t)
	stream, err := ask(t, p.tls(t), ca.client(t, "spiffe://cluster.local/ns/shop/sa/gateway"), clusterURL)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || len(answer.Resources) != 1 {
		t.Fatalf("%v, %v\n%s", answer, err, p.log)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "resources", "web.yaml"), strings.ReplaceAll(web, "connect_timeout: 1s", "connect_timeout: 2s"))
	if _, err = stream.Recv(); err != nil {
		t.Fatal(err)
	}
	shown := strings.Join(strings.Fields(p.status(t)), " ")
	for _, want := range []string{
		", ready ", "default true", "cluster.local 1 the server's own CA", "web.yaml served 1", "bad.yaml refused 0", "spiffe://cluster.local/ns/shop/sa/gateway", "gateway~1",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("status does not show %q:\n%s", want, shown)
		}
	}
	for deadline := time.Now().Add(patience); ; { // the second push may overtake the ACK of the first
		var r struct {
			Server discovery.Status `json:"server"`
		}
		err := json.Unmarshal([]byte(p.status(t, "-o", "json")), &r)
		if err == nil && len(r.Server.Streams) == 1 && r.Server.Streams[0].Types[0].Acked != "" {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v: %+v", err, r.Server)
		}
	}
	if code, page := p.page(t, "/"); code != http.StatusOK || !strings.Contains(page, "spiffe://cluster.local/ns/shop/sa/gateway") || strings.Count(page, "<script") != 1 {
		t.Errorf("the page: %d\n%s", code, page)
	}
}

func TestUnknownCallerGetsNothing(t *testing.T) {
	t.Parallel()
	p := start(t, files(t, alone))
	p.ready(t)
	ca := p.authority(t)
	for name, id := range map[string]string{"nobody": "", "of another trust domain": "spiffe://other/ns/shop/sa/gateway"} {
		stream, err := ask(t, p.tls(t), ca.client(t, id), clusterURL)
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	probes := p.log.await(t, `msg="status page" address=(127\S+)`)
	if _, metrics := get(t, probes, "/metrics"); !strings.Contains(metrics, `countersign_discovery_refused_streams_total{reason="no-credential"} 1`) ||
		!strings.Contains(metrics, "countersign_discovery_ready 1") || !strings.Contains(metrics, `countersign_discovery_trust_domain_roots{trust_domain="cluster.local"} 1`) {
		t.Error(metrics)
	}
	for path, want := range map[string]int{"/readyz": 200, "/healthz": 200, "/status.json": 404, "/": 404} {
		if code, _ := get(t, probes, path); code != want {
			t.Errorf("%s of the probes: %d", path, code)
		}
	}
}

func TestOwnCertificateRotatesUnderListener(t *testing.T) {
	t.Parallel()
	p := start(t, files(t, strings.Replace(alone, "dns_names: [discovery.test]", "dns_names: [discovery.test], ttl: 4s", 1)))
	p.ready(t)
	client := p.authority(t).client(t, "")
	var first string // a busy server may still show one that has ended
	eventually(t, func() bool { first = serial(p.tls(t), client); return first != "" }, "it shows a certificate", p.log)
	eventually(t, func() bool { next := serial(p.tls(t), client); return next != "" && next != first }, "it shows another than "+first, p.log)
}

func TestFileCertificateIsShownAndFollowed(t *testing.T) {
	t.Parallel()
	signed := start(t, files(t, alone)) // only its CA is wanted
	signed.ready(t)
	ca := signed.authority(t)
	dir := files(t, `
listen: {tls: '127.0.0.1:0'}
certificate: {chain_file: DIR/chain.pem, key_file: DIR/key.pem}
trust_domains: [{name: cluster.local, roots_file: DIR/roots.pem}]
cluster: {disabled: true}
resources: {folder: DIR/resources}
status: {address: 'unix:DIR/page'}
times: {drain: 0s}
`)
	chain, key := filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem")
	roots := filepath.Join(dir, "roots.pem")
	write(t, roots, read(t, filepath.Join(signed.dir, "ca", "ca-cert.pem")))
	p := start(t, dir)
	p.tls(t)
	eventually(t, func() bool {
		code, text := p.page(t, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "the server's own certificate is missing")
	}, "/readyz says that there is no certificate", p.log)
	for want, number := range map[string]int64{"11": 0x11, "12": 0x12} {
		ca.write(t, certificate{serial: number, dns: "discovery.test"}, chain, key)
		p.ready(t)
		eventually(t, func() bool { return serial(p.tls(t), ca.client(t, "")) == want }, "it shows the certificate "+want, p.log)
	}
	stream, err := ask(t, p.tls(t), ca.client(t, "spiffe://cluster.local/ns/shop/sa/gateway"), clusterURL)
	if err != nil {
		t.Fatal(err)
	}
	// Other roots: whoever was known by the old ones is ended.
	other := start(t, files(t, alone))
	other.ready(t)
	write(t, roots, read(t, filepath.Join(other.dir, "ca", "ca-cert.pem")))
	if _, err = stream.Recv(); err == nil {
		_, err = stream.Recv() // the first answer had been on its way
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of whom nobody vouches for any more: %v", err)
	}
}

func TestCommandOutputAndExitCodes(t *testing.T) {
	t.Parallel()
	good := filepath.Join(files(t, alone), "c.yaml")
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"config", "validate"}, "--config is required", 2},
		{[]string{"config", "validate", "--config", "/none"}, "--config: open /none", 2},
		{[]string{"config", "validate", "--config", good, "x"}, `unexpected argument "x"`, 2},
		{[]string{"config", "explain", "--config", good}, "providers.file.settings.dir", 0},
		{[]string{"config", "schema"}, `"title": "The configuration of countersign-discovery"`, 0},
		{[]string{"version"}, "countersign-discovery devel", 0},
		{[]string{"status", "--address", "unix:/none"}, "no countersign-discovery is listening on unix:/none", 1},
		{[]string{"dance"}, `unknown command "dance"`, 2},
		{[]string{"validate"}, `did you mean "config validate"?`, 2},
		{[]string{"config", "valdate"}, `did you mean "validate"?`, 2},
		{[]string{"--version"}, "countersign-discovery devel", 0},
		{[]string{"config", "explain", "--config", good, "-o", "json"}, `"setting":"providers.file.settings.dir"`, 0},
		{[]string{"serve", "--confg", "x"}, "unknown flag", 2},
		{nil, "Available Commands", 0},
	} {
		if out, code := says(t, nil, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d\n%s", c.args, code, out)
		}
	}
}
