package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxMetricsFrom limits the memory that a scrape takes.
const maxMetricsFrom = 4

func (c *Config) checkStatus(p *problems) {
	s := c.Status
	if err := checkStatusAddress(s.Address); err != nil {
		c.say(p, "status.address", s.Address, err.Error())
	}
	for path, address := range map[string]string{"status.probes": s.Probes, "status.metrics": s.Metrics} {
		if address != "" && !isHostPort(address) {
			c.say(p, path, address, "write host:port, or :port for all addresses of this machine")
		}
	}
	if s.Probes != "" && s.Probes == s.Metrics {
		c.say(p, "status.metrics", s.Metrics, "that is status.probes; write another port")
	}
	if s.Metrics == "" && (s.MetricsSecret+s.MetricsTokenFile+s.MetricsClientRoots != "" || len(s.MetricsFrom) > 0) {
		c.say(p, "status.metrics", "", "metrics_secret, metrics_token_file, metrics_client_roots and metrics_from are of that address: write host:port or :port")
	}
	if s.MetricsTokenFile != "" && s.MetricsSecret == "" {
		c.say(p, "status.metrics_token_file", s.MetricsTokenFile, "a token needs TLS: write a key pair in status.metrics_secret, such as default")
	}
	c.checkMetricsClients(p)
	if len(s.MetricsFrom) > maxMetricsFrom {
		c.say(p, "status.metrics_from", len(s.MetricsFrom), fmt.Sprintf("write %d programs at most", maxMetricsFrom))
	}
	for _, from := range s.MetricsFrom {
		if !isLocalMetrics(from) {
			c.say(p, "status.metrics_from", from, "write http:// with a loopback host, port and path, or unix:PATH of Envoy's admin socket")
		}
	}
}

func isHostPort(text string) bool {
	_, port, err := net.SplitHostPort(text)
	_, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && wrong == nil
}

func isLocalMetrics(from string) bool {
	if strings.HasPrefix(from, "unix:") {
		_, err := unixsocket.ParsePath(from)
		return err == nil
	}
	at, err := url.Parse(from)
	return err == nil && at.Scheme == "http" && at.User == nil && checkStatusAddress(at.Host) == nil && at.Port() != ""
}

// checkMetricsClients demands what a client certificate takes, apart from the trust bundle.
func (c *Config) checkMetricsClients(p *problems) {
	s := c.Status
	if s.MetricsClientRoots != "" && s.MetricsSecret == "" {
		c.say(p, "status.metrics_client_roots", s.MetricsClientRoots, "a client certificate needs TLS: write a key pair in status.metrics_secret, such as default")
	}
	if s.MetricsClientRoots == "" && len(s.MetricsClientNames) > 0 {
		c.say(p, "status.metrics_client_roots", "", "metrics_client_names need the trust bundle of those clients: write its name, such as ROOTCA")
	}
	for _, name := range s.MetricsClientNames {
		id, dns := name, []string(nil)
		if !strings.HasPrefix(name, "spiffe://") {
			id, dns = "", []string{name}
		}
		if _, err := pki.NewIdentity(id, dns, nil); err != nil {
			c.say(p, "status.metrics_client_names", name, "write SPIFFE IDs and DNS names of clients")
		}
	}
}

// checkMetricsSecrets demands a key pair and a trust bundle of this agent.
func (c *Config) checkMetricsSecrets(p *problems) {
	c.needOwn(p, "status.metrics_secret", c.Status.MetricsSecret, KeyPair, "a key pair of this agent, such as default")
	c.needOwn(p, "status.metrics_client_roots", c.Status.MetricsClientRoots, TrustBundle, "a trust bundle of this agent, such as ROOTCA")
}

// needOwn demands that a name, if there is one, is that of a secret which this agent holds itself.
func (c *Config) needOwn(p *problems, path, name, kind, what string) {
	own := func(s Source) bool { return s.Name == name && s.Kind == kind && !c.elsewhere(name) }
	if name != "" && !slices.ContainsFunc(c.Sources(), own) {
		c.say(p, path, name, "write the name of "+what)
	}
}

// checkStatusAddress allows only loopback addresses for the page: it has no
// authentication.
func checkStatusAddress(address string) error {
	if strings.HasPrefix(address, "unix:") {
		_, err := unixsocket.ParsePath(address)
		return err
	}
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return errors.New("write a loopback address, such as 127.0.0.1:9901, or unix:PATH; the page has no authentication")
	}
	return nil
}
