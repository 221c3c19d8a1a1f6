package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/sdk/secret"
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
	if s.Metrics == "" && (s.MetricsSecret != "" || s.MetricsTokenFile != "" || len(s.MetricsFrom) > 0) {
		c.say(p, "status.metrics", "", "metrics_secret, metrics_token_file and metrics_from are of that address: write host:port or :port")
	}
	if s.MetricsTokenFile != "" && s.MetricsSecret == "" {
		c.say(p, "status.metrics_token_file", s.MetricsTokenFile, "a token needs TLS: write a key pair in status.metrics_secret, such as default")
	}
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
	if path, ok := strings.CutPrefix(from, "unix:"); ok {
		return path != "" && len(path) <= maxSocketPath
	}
	at, err := url.Parse(from)
	return err == nil && at.Scheme == "http" && at.User == nil && checkStatusAddress(at.Host) == nil && at.Port() != ""
}

// checkMetricsSecret demands a key pair of this agent.
func (c *Config) checkMetricsSecret(p *problems) {
	name := c.Status.MetricsSecret
	isIt := func(s Source) bool {
		return s.Name == name && s.Kind == secret.KeyPair.String() && !c.elsewhere(name)
	}
	if name != "" && !slices.ContainsFunc(c.Sources(), isIt) {
		c.say(p, "status.metrics_secret", name, "write the name of a key pair of this agent, such as default")
	}
}

// checkStatusAddress lets nobody but this machine reach the page: it has no
// authentication.
func checkStatusAddress(address string) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" || len(path) > maxSocketPath {
			return fmt.Errorf("write unix:PATH with a path of 1 to %d bytes", maxSocketPath)
		}
		return nil
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
