//go:build linux

package kubetest

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Issuer is the issuer of service account tokens and an audience of the server.
const Issuer = "https://kubernetes.default.svc.cluster.local"

// etcd listens on sockets in its folder; it requires names that look like addresses.
const clients, peers = "clients:1", "peers:1"

// etcdFlags returns the flags of a private etcd that does not wait for the disk: its
// data ends with the test.
func (c *Cluster) etcdFlags() []string {
	return []string{
		"--name=etcd", "--data-dir=" + c.file("data"), "--unsafe-no-fsync",
		// The election, of a single member, follows a pause of this many milliseconds.
		"--heartbeat-interval=10", "--election-timeout=50",
		"--listen-client-urls=unix://" + clients, "--advertise-client-urls=unix://" + clients,
		"--listen-peer-urls=unix://" + peers, "--initial-advertise-peer-urls=unix://" + peers, "--initial-cluster=etcd=unix://" + peers,
	}
}

func (c *Cluster) serverFlags() []string {
	flags := []string{
		"--etcd-servers=unix://" + c.file(clients),
		// A socket of the test reserves the port; see reservePort.
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.port), "--permit-port-sharing",
		"--tls-cert-file=" + c.file("server.pem"), "--tls-private-key-file=" + c.file("server-key.pem"),
		"--cert-dir=" + c.folder, "--client-ca-file=" + c.file("ca.pem"), "--anonymous-auth=false",
		"--authorization-mode=" + c.authorization(),
		"--service-account-key-file=" + c.file("accounts-key.pem"), "--service-account-signing-key-file=" + c.file("accounts-key.pem"),
		"--service-account-issuer=" + Issuer,
		"--api-audiences=" + strings.Join(append([]string{Issuer}, c.opts.Audiences...), ","),
		// No controller creates the accounts this plugin requires.
		"--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
	}
	if c.opts.Nodes {
		flags = append(flags, "--enable-admission-plugins=NodeRestriction")
	}
	return append(flags, c.opts.Flags...)
}

func (c *Cluster) authorization() string {
	switch {
	case c.opts.AllowAll:
		return "AlwaysAllow"
	case c.opts.Nodes:
		return "Node,RBAC"
	default:
		return "RBAC"
	}
}

func (c *Cluster) file(name string) string { return filepath.Join(c.folder, name) }
