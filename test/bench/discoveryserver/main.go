// Command discoveryserver serves many proxies over ADS with mutual TLS, for measuring what
// they cost: Kubernetes secrets of a cluster in memory, and a thousand clusters of Envoy's
// (complete, with the wildcard). A proxy of the service account proxy-<n> in the namespace
// gateways watches kubernetes://group-<n> and kubernetes://shared. Its orders (package
// orders), each answered before its watchers are notified:
//
//	open            listens; the answer is [Opened]
//	change <name>   gives a secret a new certificate
//	renew           gives one to all secrets, without a notice
//	swap            notifies all watchers that the cluster has been swapped
//	recluster       changes one of Envoy's clusters
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/test/bench/orders"
)

const (
	clusterID = "local"
	namespace = "gateways"
	shared    = "shared"
)

func main() {
	groups, err := strconv.Atoi(os.Args[1])
	if err == nil {
		err = run(groups)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "discoveryserver:", err)
		os.Exit(1)
	}
}

// service is all that answers.
type service struct {
	authority *catest.CA
	cluster   *cluster
	secrets   *secrets.Source
	catalog   *catalog
	server    *discovery.Server
	failed    chan error
}

func run(groups int) error {
	s := &service{authority: catest.NewCA(catest.Options{Intermediates: 1}), catalog: newCatalog(), failed: make(chan error, 2)}
	if err := s.assemble(groups); err != nil {
		return err
	}
	go func() {
		s.failed <- orders.Obey(map[string]orders.Order{
			"open":      func(string) (any, error) { return s.open(groups) },
			"change":    func(name string) (any, error) { return nil, s.change(name) },
			"renew":     func(string) (any, error) { return nil, s.cluster.renewAll() },
			"swap":      func(string) (any, error) { s.secrets.Changed(secrets.Event{Cluster: clusterID}); return nil, nil },
			"recluster": func(string) (any, error) { return nil, s.catalog.change() },
		})
	}()
	return <-s.failed
}

// assemble is what countersign-discovery does.
func (s *service) assemble(groups int) (err error) {
	if s.cluster, err = newCluster(s.authority, groups); err != nil {
		return err
	}
	rights, err := access.New(access.Config{Reviews: func(string) (access.Reviews, bool) { return yes{}, true }})
	if err != nil {
		return err
	}
	if s.secrets, err = secrets.New(secrets.Config{Clusters: only{s.cluster}, Access: rights}); err != nil {
		return err
	}
	certificate, err := s.certificate("spiffe://cluster.local/ns/system/sa/discovery", "discovery")
	if err != nil {
		return err
	}
	roots := s.authority.Bundle()
	s.server, err = discovery.New(discovery.Config{
		Types:         []discovery.Type{s.catalog.typ(), s.secrets.Type()},
		Authenticator: authn.Certificates{Roots: func(string) *pki.Bundle { return roots }},
		TLS:           &tls.Config{Certificates: []tls.Certificate{certificate}},
		LocalCluster:  clusterID,
	})
	return err
}

func (s *service) certificate(spiffeID string, names ...string) (tls.Certificate, error) {
	chain, key, err := issue(s.authority, spiffeID, names...)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(chain, key)
}

// Opened is what a client needs.
type Opened struct {
	Address string
	Roots   []byte
	Proxies []Pair // by the number of their group
}

// Pair is a certificate with its key, in PEM.
type Pair struct{ Chain, Key []byte }

func (s *service) open(groups int) (out Opened, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return out, err
	}
	go func() { s.failed <- s.server.Run(context.Background(), discovery.Listeners{TLS: listener}) }()
	out.Address, out.Roots = listener.Addr().String(), s.authority.Bundle().PEM()
	for i := range groups {
		chain, key, err := issue(s.authority, fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/proxy-%d", namespace, i))
		if err != nil {
			return out, err
		}
		out.Proxies = append(out.Proxies, Pair{chain, key})
	}
	return out, nil
}

func (s *service) change(name string) error {
	if err := s.cluster.renew(name); err != nil {
		return err
	}
	s.secrets.Changed(secrets.Event{Cluster: clusterID, Namespace: namespace, Name: name})
	return nil
}
