package program

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/oidctest"
)

// publisher is a SPIFFE bundle endpoint on loopback. It answers 503 until it has roots.
type publisher struct {
	*httptest.Server
	roots atomic.Pointer[authority]
	asked atomic.Int32
}

// startPublisher starts one that shows a certificate.
func startPublisher(t *testing.T, certificate tls.Certificate) *publisher {
	t.Helper()
	p := &publisher{}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) serve(w http.ResponseWriter, _ *http.Request) {
	p.asked.Add(1)
	roots := p.roots.Load()
	if roots == nil {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	root := oidctest.JWK(roots.Key)
	root["use"], root["x5c"] = "x509-svid", []string{base64.StdEncoding.EncodeToString(roots.Cert.Raw)}
	_ = json.NewEncoder(w).Encode(map[string]any{"spiffe_refresh_hint": 30, "keys": []any{root}})
}

const partner = "spiffe://partner.example/ns/shop/sa/gateway"

// federated is a service that has the roots of partner.example from an endpoint.
func federated(t *testing.T, content map[string]string, bundle string) *program {
	t.Helper()
	text := strings.Replace(alone, "own_ca: true}", "own_ca: true}, {name: partner.example, bundle: {"+bundle+"}}", 1)
	dir := files(t, text)
	for name, text := range content {
		write(t, filepath.Join(dir, name), text)
	}
	write(t, filepath.Join(dir, "resources", "web.yaml"), web)
	p := start(t, dir)
	p.ready(t)
	return p
}

// comes is a caller of partner.example, and how its stream begins.
func (p *program) comes(t *testing.T, of authority) codes.Code {
	t.Helper()
	cfg := of.client(t, partner)
	cfg.RootCAs = p.authority(t).roots
	_, err := caller{tls: cfg}.first(t, p.tls(t), clusterURL)
	return status.Code(err)
}

func TestFederatedTrustDomainIsKnownAfterFetch(t *testing.T) {
	t.Parallel()
	theirs, webCA := newAuthority(t), newAuthority(t)
	loopback := net.IPv4(127, 0, 0, 1)
	const server = "spiffe://partner.example/bundles"
	for name, c := range map[string]struct {
		shows  tls.Certificate
		bundle string
	}{
		"https_web":    {webCA.sign(t, certificate{ip: loopback}), "root_file: DIR/web.pem"},
		"https_spiffe": {theirs.sign(t, certificate{id: server}), "server_id: '" + server + "', initial_file: DIR/initial.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			e := startPublisher(t, c.shows)
			p := federated(t, map[string]string{"web.pem": string(webCA.PEM()), "initial.pem": string(theirs.PEM())}, "url: '"+e.URL+"/bundle', "+c.bundle)
			later := theirs
			if name == "https_web" { // nothing is known of it before
				if got := p.comes(t, theirs); got != codes.Unauthenticated {
					t.Errorf("before it was fetched: %s", got)
				}
			} else {
				later = newAuthority(t) // the first roots are those of initial_file
				if got := p.comes(t, theirs); got != codes.OK {
					t.Errorf("by the initial roots: %s", got)
				}
				if got := p.comes(t, later); got != codes.Unauthenticated {
					t.Errorf("before it was fetched: %s", got)
				}
			}
			eventually(t, func() bool {
				return strings.Contains(p.metrics(t), `trust_domain_problem{trust_domain="partner.example"} 1`)
			}, "the endpoint's failure is shown", p.log)
			e.roots.Store(&later)
			eventually(t, func() bool { return p.comes(t, later) == codes.OK }, "it is known when it was fetched", p.log)
			if metrics := p.metrics(t); !strings.Contains(metrics, `trust_domain_problem{trust_domain="partner.example"} 0`) {
				t.Error(metrics)
			}
		})
	}
}

// Nothing is taken from a server that presents another certificate than the endpoint's.
func TestImpostorRootsAreIgnored(t *testing.T) {
	t.Parallel()
	theirs, impostor := newAuthority(t), newAuthority(t)
	e := startPublisher(t, impostor.sign(t, certificate{id: "spiffe://partner.example/bundles", ip: net.IPv4(127, 0, 0, 1)}))
	e.roots.Store(&impostor)
	p := federated(t, map[string]string{"initial.pem": string(theirs.PEM())},
		"url: '"+e.URL+"/bundle', server_id: 'spiffe://partner.example/bundles', initial_file: DIR/initial.pem")
	eventually(t, func() bool {
		return strings.Contains(p.metrics(t), `trust_domain_problem{trust_domain="partner.example"} 1`)
	}, "the failure is shown", p.log)
	if got := p.comes(t, impostor); got != codes.Unauthenticated {
		t.Errorf("of the impostor: %s", got)
	}
	if got := p.comes(t, theirs); got != codes.OK || e.asked.Load() != 0 {
		t.Errorf("of those known before: %s; the impostor was asked %d times", got, e.asked.Load())
	}
}
