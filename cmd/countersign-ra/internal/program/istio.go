package program

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/kubernetes/livepods"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// door serves Istio's CA API, on each replica and for as long as the program runs: who leads
// does not matter. It has an engine of its own beside that of a term, and they share the quotas.
type door struct {
	of              *service
	certificate     *ownCertificate
	clientCAWatches clientCAWatches
	pods            *livepods.Pods
	counts          *counts
	callers         callers
	server          *istioca.Server
	address         atomic.Pointer[string] // that it listens on, or did last; nil before
	listening       atomic.Bool
	engine          atomic.Pointer[ra.Engine] // nil before run
	opened          chan struct{}             // closed once there is an engine
	quotas          atomic.Pointer[quotas]    // nil before run
}

// openDoor makes the door, if it is configured, and checks that it can listen. Run serves.
func (s *service) openDoor() (err error) {
	if !s.config.Istio.Enabled() {
		return nil
	}
	d := &door{of: s, counts: newCounts(), opened: make(chan struct{}), pods: livepods.New(s.client)}
	s.door = d
	if d.certificate, err = openCertificate(&s.config, opened{d}, s.log); err != nil {
		return fmt.Errorf("istio.certificate: %w", err)
	}
	cfg, err := d.settings(&s.config)
	if err != nil {
		return err
	}
	if d.server, err = istioca.New(cfg); err != nil {
		return fmt.Errorf("istio: %w", err)
	}
	d.callers.now.Store(&s.config)
	s.metrics.Serve()
	if s.dry {
		return nil
	}
	on, err := d.listen(d.of.config.Istio.Listen)
	if err != nil {
		return err
	}
	return on.Close()
}

func (d *door) listen(address string) (net.Listener, error) {
	on, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("istio.listen is %q: %w", address, err)
	}
	return on, nil
}

// client returns the client of a cluster that is connected.
func (s *service) client(id string) (kubernetes.Interface, bool) {
	if cluster, ok := s.clusters.Cluster(id); ok {
		return cluster.Client(), true
	}
	return nil, false
}

// tls returns a configuration that presents the current certificate in each handshake.
func (d *door) tls() (*tls.Config, error) {
	return tlsconfig.Server(tlsconfig.Options{Source: d.certificate, Certificate: agent.DefaultSecret})
}

// run serves until ctx ends and no call is left.
func (d *door) run(ctx context.Context) error {
	cfg := d.of.engineConfig()
	cfg.Store, cfg.Observe = d.of.common, d.observe
	cfg.Guard = guard.NewAuthorities(d.of.log, d.clientCAWatches.all)
	for _, a := range d.of.providers.Authorities {
		authority := d.of.authority(a)
		authority.Roots.Led = true // the leader sees what is written for a mesh, and when
		cfg.Authorities = append(cfg.Authorities, authority)
	}
	quotas, err := d.of.shared(&cfg)
	if err != nil {
		return err
	}
	engine, err := ra.New(cfg)
	if err != nil {
		return err
	}
	defer engine.Close()
	d.quotas.Store(quotas)
	d.engine.Store(engine)
	close(d.opened)
	defer quotas.run(engine)()
	d.of.follow(engine)
	looking, stop := context.WithCancel(context.WithoutCancel(ctx)) // calls that drain need them
	defer d.clientCAWatches.run(looking, d.of, d.callers.clusters)()
	defer stop()
	return d.server.Run(ctx, newCertified(d))
}

// ready returns nil while new connections are taken, and their calls are served. A door that is not
// configured is ready.
func (d *door) ready() error {
	if d == nil {
		return nil
	}
	if err := d.serves(); err != nil {
		return err
	}
	return d.listens()
}

// listens returns nil while new connections are taken. A door that is not configured needs none.
func (d *door) listens() error {
	if d == nil {
		return nil
	}
	if err := d.certificate.ready(); err != nil {
		return fmt.Errorf("the certificate of Istio's CA API is missing: %w", err)
	}
	if !d.listening.Load() {
		return errors.New("the service for proxies does not listen yet")
	}
	return nil
}

// quotaFault returns why the authorities' quotas cannot be used.
func (d *door) quotaFault() error {
	if d == nil {
		return nil
	}
	q := d.quotas.Load()
	if q == nil {
		return nil // it begins, and does not listen yet
	}
	return cmp.Or(q.ready(), q.fault())
}

// serves returns nil while calls are served. Those of a connection that exists need no certificate of
// the door's.
func (d *door) serves() error {
	engine := d.engine.Load()
	if engine == nil {
		return errors.New("the door for meshes is not open yet")
	}
	if err := engine.AuditFault(); err != nil {
		return err
	}
	if err := d.quotas.Load().ready(); err != nil {
		return err
	}
	return d.home()
}

// home returns nil once tokens of the home cluster can be reviewed, and authorities verified not to be
// a client CA of its API server.
func (d *door) home() error {
	return cmp.Or(d.of.clusters.Ready(), d.clientCAWatches.ready(d.of.config.Cluster.ID))
}

// close closes what was made, if it was.
func (d *door) close() error {
	if d == nil || d.certificate == nil {
		return nil
	}
	return d.certificate.close()
}

// Prepare implements [ra.Issuer].
func (d *door) Prepare(ctx context.Context, req ra.Request) (*ra.Order, error) {
	return d.engine.Load().Prepare(ctx, req)
}

// Issue implements [ra.Issuer].
func (d *door) Issue(ctx context.Context, o *ra.Order) (ra.Certificate, error) {
	cert, err := d.engine.Load().Issue(ctx, o)
	return d.withFurtherRoots(cert), err
}

// withFurtherRoots adds the roots that are published for the mesh beside the authority's: proxies
// trust the roots of a reply alone.
func (d *door) withFurtherRoots(cert ra.Certificate) ra.Certificate {
	if m := d.of.config.Mesh; m.Publishes(cert.Authority) && cert.Roots.Len() > 0 {
		cert.Roots = cert.Roots.Union(m.Further())
	}
	return cert
}

// Refuse implements [ra.Issuer].
func (d *door) Refuse(ctx context.Context, req ra.Request, err error) {
	d.engine.Load().Refuse(ctx, req, err)
}

// opened is a door's engine, for which it waits.
type opened struct{ *door }

// Prepare implements [ra.Issuer].
func (o opened) Prepare(ctx context.Context, req ra.Request) (*ra.Order, error) {
	select {
	case <-o.opened:
		return o.engine.Load().Prepare(ctx, req)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Issue implements [ra.Issuer].
func (o opened) Issue(ctx context.Context, order *ra.Order) (ra.Certificate, error) {
	return o.engine.Load().Issue(ctx, order)
}
