package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/publish"
	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// service is the running service.
type service struct {
	config  config.Config
	env     environ.Vars
	log     *slog.Logger
	metrics *metrics
	life    *daemon.Life // nil: nothing is shown

	files     *filesecret.Source
	signed    *signed       // nil if the certificate is in files
	source    secret.Source // both of the above
	trust     *trust
	clusters  *clusters      // nil if Kubernetes is disabled
	resources *folder.Folder // nil if not configured
	server    *discovery.Server
	bundle    *publish.Endpoint // nil: no roots are published

	// dry is set to check the settings only: a pod's own account is not needed.
	dry bool

	stop       context.CancelFunc // stops the background goroutines
	background sync.WaitGroup
	changed    changes
}

// make creates all parts, starts no program and sends nothing. Call close even if it
// fails.
func (s *service) make(ctx context.Context) error {
	s.changed.wake = make(chan struct{}, 1)
	for _, part := range []func(context.Context) error{s.openFiles, s.openTrust, s.openClusters, s.openFolder, s.openServer, s.openBundle} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open makes all parts and starts them. Call close even if it fails.
func (s *service) open(ctx context.Context) error {
	// The server's sources keep running while it drains.
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if err := s.make(beside); err != nil {
		return err
	}
	if s.signed != nil {
		s.signed.begin()
	}
	s.goOn(beside, s.trust.Run)
	if s.clusters != nil {
		s.goOn(beside, s.clusters.Run)
	}
	if s.resources != nil {
		s.goOn(beside, s.followFolder)
	}
	s.goOn(beside, s.reauthorize)
	return nil
}

func (s *service) goOn(ctx context.Context, run func(context.Context)) {
	s.background.Go(func() { run(ctx) })
}

func (s *service) openFiles(ctx context.Context) (err error) {
	s.files, err = filesecret.New(filesecret.Config{Secrets: fileSpecs(s.config), Observe: s.metrics.secret, Log: s.log})
	if err != nil {
		return cli.Wrong(err)
	}
	s.source = s.files
	if own := s.config.Signed(); own != nil {
		if s.signed, err = findCertificate(ctx, s.env, own, s.metrics.secret, s.log); err != nil {
			return cli.Wrong(err)
		}
		s.source = secret.First(s.signed, s.files)
	}
	return nil
}

func (s *service) openTrust(context.Context) (err error) {
	s.trust, err = newTrust(s.config, s.source, s.changed.add, s.log)
	return asSettings(err)
}

func (s *service) openClusters(context.Context) (err error) {
	if s.config.Cluster.Disabled {
		return nil
	}
	local, err := fleet.LocalConfig(s.config.Cluster.Kubeconfig, s.dry)
	if err != nil {
		return cli.Wrong(fmt.Errorf("%w, or set cluster.disabled", err))
	}
	s.clusters, err = newClusters(s.config, local, s.log)
	return asSettings(err)
}

func (s *service) openFolder(context.Context) (err error) {
	if s.config.Resources.Folder == "" {
		return nil
	}
	if s.resources, err = folder.New(folder.Config{Path: s.config.Resources.Folder, Log: s.log}); err != nil {
		return cli.Wrong(fmt.Errorf("resources.folder is %q: %w", s.config.Resources.Folder, err))
	}
	return nil
}

func (s *service) followFolder(ctx context.Context) {
	if err := s.resources.Run(ctx); err != nil {
		s.log.Error("no longer watching the resource folder", "error", err)
	}
}

func (s *service) openServer(context.Context) error {
	known, err := authenticators(s.config, s.trust, s.clusters.authenticator, s.log)
	if err != nil {
		return cli.Wrong(err)
	}
	shown, err := s.tlsOf()
	if err != nil {
		return cli.Wrong(err)
	}
	limits, times := s.config.Limits, s.config.Times
	s.server, err = discovery.New(discovery.Config{
		Types: s.types(), Authenticator: known, TLS: shown, AllowTokenOverPlaintext: s.config.Listen.AllowTokenOverPlaintext,
		Clusters: claims(s.config.TrustDomains), IssuerClusters: issuerClaims(s.config.Authenticators), LocalCluster: s.config.Cluster.ID, Ready: s.ready, Log: s.log,
		Limits: discovery.Limits{
			Connections: int(limits.Connections), ConnectionsOfAddress: int(limits.ConnectionsOfAddress),
			Authentications: int(limits.Authentications), AuthenticationsOfAddress: int(limits.AuthenticationsOfAddress),
			Streams: int(limits.Streams), StreamsOfIdentity: int(limits.StreamsOfIdentity),
		},
		Times: discovery.Times{Lifetime: times.Stream.Duration, Drain: orNone(times.Drain)},
	})
	return asSettings(err)
}

func (s *service) types() (all []discovery.Type) {
	if s.clusters != nil {
		all = append(all, s.clusters.secrets.Type())
	}
	if s.resources != nil {
		all = append(all, s.resources.Types()...)
	}
	return all
}

// claims returns the cluster IDs that the members of each trust domain may claim.
func claims(domains []config.TrustDomain) map[string][]string {
	all := map[string][]string{}
	for _, d := range domains {
		if len(d.Clusters) > 0 {
			all[d.Name] = d.Clusters
		}
	}
	return all
}

// issuerClaims returns the cluster IDs that the subjects of each issuer may claim.
func issuerClaims(authenticators []config.Authenticator) map[string][]string {
	all := map[string][]string{}
	for _, a := range authenticators {
		if len(a.Clusters) > 0 {
			all[a.Issuer] = a.Clusters
		}
	}
	return all
}

// ready returns nil, or the reason why streams are not accepted yet.
func (s *service) ready() error {
	if _, err := s.source.Peek(secret.Caller{}, agent.DefaultSecret); err != nil {
		return fmt.Errorf("the server's own certificate is missing: %w", err)
	}
	if s.clusters != nil {
		return s.clusters.Ready()
	}
	return nil
}

// close closes all parts that were opened.
func (s *service) close() error {
	if s.stop != nil {
		s.stop()
	}
	s.background.Wait()
	errs := []error{s.bundle.Close()}
	if s.trust != nil {
		s.trust.Close()
	}
	if s.clusters != nil {
		s.clusters.Close()
	}
	if s.signed != nil {
		errs = append(errs, s.signed.Close())
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	return errors.Join(errs...)
}

func asSettings(err error) error {
	if err != nil {
		return cli.Wrong(err)
	}
	return nil
}
