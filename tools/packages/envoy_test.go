//go:build systemd

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	envoyProgram = "/srv/envoy"
	envoySocket  = "/run/envoy/socket"
	wantRequests = 600
)

// envoyConfig has Envoy answer on a socket, which the test reaches from outside, with the certificate
// "default".
const envoyConfig = `
node: {id: web, cluster: web}
static_resources:
  listeners:
  - name: https
    address: {pipe: {path: ` + envoySocket + `, mode: 511}}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            tls_certificate_sds_secret_configs:
            - name: default
              sds_config:
                resource_api_version: V3
                initial_fetch_timeout: 0s
                api_config_source:
                  api_type: GRPC
                  transport_api_version: V3
                  grpc_services: [{envoy_grpc: {cluster_name: countersign}}]
      filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: https
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: /}, direct_response: {status: 200, body: {inline_string: served}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: countersign
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: countersign
      endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: /run/countersign/socket}}}}]}]
`

// envoyServesThroughUpgrade replaces the package below a running Envoy, and then the certificate. Each
// request has a connection of its own.
func (m *machine) envoyServesThroughUpgrade(t *testing.T, deb string) {
	m.copyIn(t, foreign(t, "COUNTERSIGN_ENVOY"), envoyProgram)
	defer m.run(t, "rm", envoyProgram)
	installed := m.read(t, configFile)
	defer m.write(t, configFile, installed)
	m.write(t, configFile, strings.Replace(installed, "# allow_uids: [101]", "allow_uids: [33]", 1))
	m.restart(t)
	m.write(t, "/etc/envoy.yaml", envoyConfig)
	m.run(t, "install", "-d", "-o", "www-data", filepath.Dir(envoySocket))
	m.background(t, "runuser", "-u", "www-data", "--", envoyProgram, "-c", "/etc/envoy.yaml", "--disable-hot-restart", "--concurrency", "1")
	m.eventually(t, "Envoy", func() error { _, err := m.request(); return err })

	load := m.load()
	before := m.agentProcess(t)
	since := m.now(t)
	m.install(t, deb)
	if now := m.agentProcess(t); now == before {
		t.Errorf("the upgrade did not restart the agent, process %s", now)
	}
	m.logs(t, since, "secrets are served")
	m.run(t, "countersign", "secrets", "renew", "default")
	m.eventually(t, "Envoy shows the certificate of the new agent", load.changed)
	load.end(t)
}

func (m *machine) agentProcess(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(m.run(t, "systemctl", "show", "--property=MainPID", "--value", "countersign"))
}

// request has Envoy answer one request, and returns the certificate that it showed.
func (m *machine) request() (*x509.Certificate, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", m.path(envoySocket))
	}
	// The certificate has a SPIFFE ID and no name, so the client cannot verify it: its ID is compared below.
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get("https://web/")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	leaf := answer.TLS.PeerCertificates[0]
	if err == nil && (string(text) != "served" || len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://example.org/ns/default/sa/web") {
		err = fmt.Errorf("%s %q by %v", answer.Status, text, leaf.URIs)
	}
	return leaf, err
}

// load is requests, one after the other.
type load struct {
	stop, ended chan struct{}
	mu          sync.Mutex
	answered    int
	failed      error
	shown       map[string]bool // serial numbers
}

func (m *machine) load() *load {
	l := &load{stop: make(chan struct{}), ended: make(chan struct{}), shown: map[string]bool{}}
	go func() {
		defer close(l.ended)
		for {
			select {
			case <-l.stop:
				return
			default:
			}
			leaf, err := m.request()
			l.count(leaf, err)
		}
	}()
	return l
}

func (l *load) count(leaf *x509.Certificate, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = errors.Join(l.failed, err)
		return
	}
	l.answered++
	l.shown[leaf.SerialNumber.String()] = true
}

func (l *load) changed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil && (len(l.shown) < 2 || l.answered < wantRequests) {
		return fmt.Errorf("%d certificates in %d requests", len(l.shown), l.answered)
	}
	return nil
}

func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	<-l.ended
	if l.failed != nil || l.answered < wantRequests {
		t.Errorf("%d requests were answered: %v", l.answered, l.failed)
	}
	t.Logf("%d requests were answered, by %d certificates", l.answered, len(l.shown))
}
