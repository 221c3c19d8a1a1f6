package settings

import (
	"net"
	"regexp"
	"strings"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/unixsocket"
)

// StatusAddress is the default address of a program's page.
const StatusAddress = "127.0.0.1:15014"

// Status serves the operator page, probes and metrics, without authentication.
type Status struct {
	// Address is a loopback host:port or unix:PATH. Default: 127.0.0.1:15014.
	Address string `json:"address"`
	// Probes is host:port, reachable by others, for /readyz, /healthz and /metrics only.
	// Default: off.
	Probes string `json:"probes"`
}

// Check checks both addresses.
func (s Status) Check(p *Problems) {
	p.HostPort("status.probes", s.Probes)
	if strings.HasPrefix(s.Address, "unix:") {
		if _, err := unixsocket.ParsePath(s.Address); err != nil {
			p.Say("status.address", s.Address, err.Error())
		}
		return
	}
	host, _, err := net.SplitHostPort(s.Address)
	ip := net.ParseIP(host)
	if s.Address != "" && (err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback())) {
		p.Say("status.address", s.Address, "write a loopback address, such as 127.0.0.1:15014, or unix:PATH: the page has no authentication; to serve only probes and metrics elsewhere, set status.probes")
	}
}

// CheckLog checks the settings of the log.
func CheckLog(p *Problems, l agent.Log) {
	p.OneOf("log.level", l.Level, "debug", "info", "warn", "error")
	p.OneOf("log.format", l.Format, "text", "json")
}

// Kubeconfigs are further clusters, besides those in labelled Secrets.
type Kubeconfigs struct {
	// Folder contains one kubeconfig per file, named after its cluster. Default: none.
	Folder string `json:"folder"`
	// Allow lists kubeconfig fields that are accepted although they are not inline data,
	// such as exec. Default: none.
	Allow []string `json:"allow"`
	// Servers lists the allowed API servers: host names, *.example.org, addresses,
	// networks. Default: all except cloud metadata servers.
	Servers []string `json:"servers"`
}

// clusterID matches the keys of a Secret's data.
var clusterID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,253}$`)

// IsClusterID reports whether a cluster can have that ID.
func IsClusterID(text string) bool { return clusterID.MatchString(text) }

// label matches a Kubernetes namespace: a DNS label (RFC 1123).
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// IsNamespace reports whether a namespace can have that name.
func IsNamespace(text string) bool { return label.MatchString(text) }

// WriteNamespace is what to write where a namespace is wrong.
const WriteNamespace = "write a namespace: 1 to 63 of a-z, 0-9 and -"
