package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/workloads"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/broker/pods"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/token"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// references are the types by their names in the configuration.
var references = map[string]broker.Reference{config.ReferencePID: broker.PID, config.ReferenceKubernetes: broker.Kubernetes}

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
	resolvers, err := s.resolvers()
	if err != nil {
		return errors.Join(fmt.Errorf("broker: %w", err), s.agent.Close())
	}
	var server *broker.Server
	observe := s.counts.Broker(func() int { return server.Streams() })
	server, err = broker.Listen(broker.Config{
		Path: b.Path, Address: b.Address, Mode: os.FileMode(s.c.Socket.Mode), Brokers: brokersOf(b), Own: b.SPIFFEID,
		TLS:       tlsconfig.Options{Source: source, Caller: own, Certificate: config.DefaultSecret, Roots: config.RootCA, Federated: offer.Federated},
		Resolvers: resolvers, Sessions: set, Secrets: source, Offer: offer, Observe: observe, Log: s.log,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("broker.socket: %w", err), s.agent.Close())
	}
	s.broker = server
	s.agent.Add(server)
	return nil
}

// brokersWait reports whether changed brokers wait for a restart: they use references that this agent
// does not resolve. Then the previous ones stay.
func (s *start) brokersWait(b config.Broker) bool {
	return s.broker != nil && slices.ContainsFunc(slices.Collect(maps.Keys(references)), func(name string) bool {
		return b.Uses(name) && !s.c.Broker.Uses(name)
	})
}

// setBrokers replaces the brokers that are served.
func (s *start) setBrokers(b config.Broker) {
	if s.broker == nil || !b.On() || s.brokersWait(b) {
		return
	}
	if err := s.broker.SetBrokers(brokersOf(b)); err != nil {
		s.log.Error("failed to replace the brokers, keeping the previous ones", "error", err)
	}
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

func (s *start) resolvers() (all map[broker.Reference]broker.Resolver, err error) {
	all = map[broker.Reference]broker.Resolver{}
	if s.c.Broker.Uses(config.ReferencePID) {
		all[broker.PID] = broker.Processes{Identify: s.identify(workloads.Peers(s.c.Workloads.Peers))}
		if runtime.GOOS != "linux" {
			s.log.Warn("brokers cannot refer to processes on this system: only Linux can hold a process by its descriptor")
		}
	}
	if s.c.Broker.Uses(config.ReferenceKubernetes) {
		all[broker.Kubernetes], err = s.followPods()
	}
	return all, err
}

// followPods has the pods of the node followed until the agent stops.
func (s *start) followPods() (*pods.Pods, error) {
	access := kubeapi.InCluster()
	if review := s.c.Workloads.TokenReview; review.URL != "" {
		access = kubeapi.Config{URL: review.URL, RootFile: review.RootFile, Token: token.File{Path: review.TokenFile}}
	}
	client, err := kubeapi.New(access)
	if err != nil {
		return nil, err
	}
	identify, err := workloads.OfPod(s.c.Workloads.SPIFFEID)
	if err != nil {
		return nil, err
	}
	followed, err := pods.New(pods.Config{Client: client, Node: strings.TrimPrefix(s.c.Broker.Node, "*"), Identify: identify, Log: s.log})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { followed.Run(ctx) })
	s.later(func() error { cancel(); running.Wait(); client.Close(); return nil })
	return followed, nil
}

// identify returns the identity of a process. This process and its providers have none.
func (s *start) identify(peers workloads.Peers) func(workloadapi.Process) (string, bool, error) {
	return func(p workloadapi.Process) (string, bool, error) {
		uid, gid, err := p.User()
		if err != nil || int(p.PID()) == os.Getpid() || s.providers.refuse(sds.Peer{UID: uid, GID: gid, PID: p.PID()}) != nil {
			return "", false, err
		}
		return peers.OfProcess(p)
	}
}
