package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/workloads"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// references are the types by their names in the configuration.
var references = map[string]broker.Reference{config.ReferencePID: broker.PID}

// openBroker has the agent serve the Broker API, if so configured. Its own certificate is one of the
// agent's identities.
func (s *start) openBroker(context.Context) error {
	b := s.c.Broker
	if !b.On() {
		return nil
	}
	set, source := s.agent.Workloads()
	own, err := set.JoinAs(secret.Caller{}, b.SPIFFEID)
	if err != nil {
		return errors.Join(fmt.Errorf("broker.spiffe_id: %w", err), s.agent.Close())
	}
	offer := s.cfg.WorkloadAPI.Offer
	offer.Identities = []workloadapi.Identity{{Certificate: config.DefaultSecret, Roots: config.RootCA}}
	var server *broker.Server
	observe := s.counts.Broker(func() int { return server.Streams() })
	server, err = broker.Listen(broker.Config{
		Path: b.Path, Address: b.Address, Mode: os.FileMode(s.c.Socket.Mode), Brokers: brokersOf(b), Own: b.SPIFFEID,
		TLS:       tlsconfig.Options{Source: source, Caller: own, Certificate: config.DefaultSecret, Roots: config.RootCA, Federated: offer.Federated},
		Resolvers: s.resolvers(), Sessions: set, Secrets: source, Offer: offer, Observe: observe, Log: s.log,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("broker.socket: %w", err), s.agent.Close())
	}
	s.agent.Add(server)
	return nil
}

func brokersOf(b config.Broker) (all []broker.Broker) {
	for _, one := range b.Brokers {
		out := broker.Broker{SPIFFEID: one.SPIFFEID}
		for _, name := range one.References {
			out.References = append(out.References, references[name])
		}
		all = append(all, out)
	}
	return all
}

func (s *start) resolvers() map[broker.Reference]broker.Resolver {
	all := map[broker.Reference]broker.Resolver{}
	if s.c.Broker.Uses(config.ReferencePID) {
		all[broker.PID] = broker.Processes{Identify: s.identify(workloads.Peers(s.c.Workloads.Peers))}
		if runtime.GOOS != "linux" {
			s.log.Warn("brokers cannot refer to processes on this system: only Linux can hold a process by its descriptor")
		}
	}
	return all
}

// identify returns the identity of a process. This process and its providers have none.
func (s *start) identify(peers workloads.Peers) func(broker.Process) (string, bool, error) {
	return func(p broker.Process) (string, bool, error) {
		uid, gid, err := p.User()
		if err != nil || int(p.PID()) == os.Getpid() || s.providers.refuse(sds.Peer{UID: uid, GID: gid, PID: p.PID()}) != nil {
			return "", false, err
		}
		return peers.OfProcess(p)
	}
}
