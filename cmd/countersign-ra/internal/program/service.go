package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/audit"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/kubernetes/signing/lease"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// service is the running registration authority. Its parts are made once; what signs exists
// only for a [leaderSession].
type service struct {
	config  config.Config
	env     environ.Vars
	stdout  io.Writer // for an audit log that goes there
	log     *slog.Logger
	metrics *metrics.Metrics
	life    *daemon.Life // nil: nothing is shown

	audit     *audit.Log
	providers *daemon.Providers
	clusters  *fleet.Fleet
	tracer    trace.Tracer                     // nil: nothing is traced
	home      *rest.Config                     // of the home cluster
	records   *record.Store                    // the leader's
	common    *record.Store                    // the same, for each replica's door
	lease     *lease.Lease                     // nil: leader election is disabled
	door      *door                            // nil: Istio's CA API is not served
	bundle    *bundle                          // nil: no roots are published
	endpoints map[string][]federation.Endpoint // of foreign trust domains, by signer
	met       met

	moved, shifted notice                        // clusters came or went: for a term, and for the door
	back           notice                        // a provider is ready again
	session        atomic.Pointer[leaderSession] // nil: this replica does not lead
	now            atomic.Pointer[config.Config] // in force: config, with what a reload took over

	read func() (*config.Config, error) // the configuration, for a reload

	stop   context.CancelFunc // ends run
	failed error              // why; run's goroutine alone uses it

	// dry is set to check the settings only: nothing is written, and a pod's own account is
	// not needed.
	dry bool
}

// notice is a channel that holds one notice.
type notice chan struct{}

// give does not block.
func (n notice) give() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// make creates all parts, starts no program and sends nothing. Call close even if it fails.
func (s *service) make(context.Context) error {
	s.moved, s.shifted, s.back = make(notice, 1), make(notice, 1), make(notice, 1)
	s.met = make(met, len(needs))
	s.now.Store(&s.config)
	for _, part := range []func() error{s.findProviders, s.openClusters, s.openEndpoints, s.tryOffice, s.openAudit, s.openDoor, s.openBundle} {
		if err := part(); err != nil {
			return cli.Wrong(err)
		}
	}
	return nil
}

func (s *service) openAudit() (err error) {
	if s.dry {
		return audit.Check(s.config.Audit.File)
	}
	s.audit, err = audit.Open(s.config.Audit.File, s.stdout)
	return err
}

func (s *service) findProviders() (err error) {
	s.providers, err = daemon.FindProviders(s.env, s.config.Hosted(), s.due, s.log)
	return err
}

// due reports whether requests wait for the authority of a provider: a crash must not have them wait
// for the end of a long pause.
func (s *service) due(provider string) (end time.Time, due bool) {
	if t := s.session.Load(); t != nil && t.engine.Due(provider) {
		return time.Time{}, true
	}
	if s.door == nil {
		return time.Time{}, false
	}
	engine := s.door.engine.Load()
	return time.Time{}, engine != nil && engine.Due(provider)
}

func (s *service) openClusters() error {
	c := s.config
	local, err := fleet.LocalConfig(c.Cluster.Kubeconfig, s.dry)
	if err != nil {
		return err
	}
	s.home = local
	s.clusters, err = fleet.New(fleet.Config{
		Local: local, LocalID: c.Cluster.ID, Namespace: c.Cluster.SystemNamespace, Folder: c.Remotes.Folder, Rules: c.Remotes.Rules(),
		ClientsOnly: true, FolderOnly: !c.Remotes.Secrets, Audiences: c.Istio.Audiences, Log: s.log,
		ReviewsOfPeer: settings.ReviewsOfAddress(c.Istio.Limits.AuthenticationsOfAddress, c.Istio.Limits.Authentications),
		Changed:       func(fleet.Event) { s.moved.give(); s.shifted.give() },
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return s.openLease(s.clusters.Local().Client())
}

func (s *service) openLease(home kubernetes.Interface) (err error) {
	l, namespace := s.config.LeaderElection, s.config.Cluster.SystemNamespace
	kept := s.recorded()
	if l.Enabled {
		s.lease, err = lease.New(lease.Config{Client: home, Namespace: namespace, Name: config.Lease, Duration: l.Duration.Duration, Log: s.log})
		if err != nil {
			return err
		}
	}
	if s.common, err = record.NewStore(kept, nil); err != nil {
		return err
	}
	s.records, err = record.NewStore(kept, s.held)
	return err
}

// held returns nil while this replica may write.
func (s *service) held() error {
	if s.lease == nil {
		return nil
	}
	return s.lease.Held()
}

// tryOffice makes what will work in each cluster, so that wrong settings stop the start.
func (s *service) tryOffice() error {
	o := &clusterRun{cluster: s.clusters.Local()}
	return o.make(&leaderSession{service: s, issuer: (*ra.Engine)(nil)}, nil) // which nothing calls
}

// run leads whenever it can, until ctx ends or a failure ends it.
func (s *service) run(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	if err := s.bundle.show(); err != nil {
		return err
	}
	// A term uses the clusters and the providers to its end.
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	s.providers.Begin()
	background.Go(func() { s.clusters.Run(beside) })
	background.Go(func() { s.providers.Returned(beside, s.returned) })
	go s.rotate(beside, cli.Hangups(ctx)) // a file that hangs keeps nothing from ending
	served := s.serveDoor(ctx)
	if s.lease != nil {
		s.lease.Run(ctx, s.lead)
	} else {
		s.lead(ctx)
	}
	return errors.Join(s.failed, <-served)
}

// serveDoor serves in the background until ctx ends, and gives notice of the end. A failure ends
// the program.
func (s *service) serveDoor(ctx context.Context) <-chan error {
	served := make(chan error, 1)
	if s.door == nil {
		served <- nil
		return served
	}
	go func() {
		err := s.door.run(ctx)
		s.stop()
		served <- err
	}()
	return served
}

// returned has everybody retry what failed because of a provider.
func (s *service) returned(provider string) {
	s.back.give()
	if s.door != nil {
		s.door.certificate.kick(provider)
	}
}

// signs returns nil while this replica signs, or would as soon as it has the Lease.
func (s *service) signs() error {
	if err := s.leaseFault(); err != nil {
		return err
	}
	if s.lease != nil && !s.lease.Status().Leading {
		return nil
	}
	t := s.session.Load()
	if t == nil {
		return errors.New("the term begins")
	}
	return cmp.Or(t.engine.AuditFault(), t.ready(s.config.Cluster.ID))
}

// close closes all parts that were made.
func (s *service) close() error {
	errs := []error{s.bundle.close(), s.door.close()}
	if s.providers != nil {
		errs = append(errs, s.providers.Close())
	}
	if s.audit != nil {
		errs = append(errs, s.audit.Close())
	}
	return errors.Join(errs...)
}
