//go:build linux

package kubetest

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Issuer is who the tokens of service accounts are from, and an audience of the server.
const Issuer = "https://kubernetes.default.svc.cluster.local"

// What etcd listens on are sockets in its folder; it wants names that look like addresses.
const clients, peers = "clients:1", "peers:1"

// etcdFlags are those of an etcd that nobody else reaches and that does not wait for the
// disk: what it holds is gone with the test.
func (c *Cluster) etcdFlags() []string {
	return []string{
		"--name=etcd", "--data-dir=" + c.file("data"), "--unsafe-no-fsync",
		// A leader is elected among one after a pause of this many milliseconds.
		"--heartbeat-interval=10", "--election-timeout=50",
		"--listen-client-urls=unix://" + clients, "--advertise-client-urls=unix://" + clients,
		"--listen-peer-urls=unix://" + peers, "--initial-advertise-peer-urls=unix://" + peers, "--initial-cluster=etcd=unix://" + peers,
	}
}

func (c *Cluster) serverFlags() []string {
	authorization := "RBAC"
	if c.opts.AllowAll {
		authorization = "AlwaysAllow"
	}
	flags := []string{
		"--etcd-servers=unix://" + c.file(clients),
		// The port is held by a socket of the test; see reservePort.
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.port), "--permit-port-sharing",
		"--tls-cert-file=" + c.file("server.pem"), "--tls-private-key-file=" + c.file("server-key.pem"),
		"--cert-dir=" + c.folder, "--client-ca-file=" + c.file("ca.pem"), "--anonymous-auth=false",
		"--authorization-mode=" + authorization,
		"--service-account-key-file=" + c.file("accounts-key.pem"), "--service-account-signing-key-file=" + c.file("accounts-key.pem"),
		"--service-account-issuer=" + Issuer,
		"--api-audiences=" + strings.Join(append([]string{Issuer}, c.opts.Audiences...), ","),
		// No controller makes the accounts that it would want.
		"--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
	}
	return append(flags, c.opts.Flags...)
}

func (c *Cluster) file(name string) string { return filepath.Join(c.folder, name) }
