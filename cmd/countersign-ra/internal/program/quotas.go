package program

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/share"
)

// quotas are an engine's shares of what the authorities sign. Where a mesh is served there are
// several engines: each replica's for the mesh, and the leader's. It is nil where one engine
// has it all.
type quotas struct {
	keeper *share.Keeper
	engine atomic.Pointer[ra.Engine] // nil before run
	began  atomic.Bool               // there was a share
}

// shared has the engine of a config use shares only.
func (s *service) shared(cfg *ra.Config) (*quotas, error) {
	if !s.config.Istio.Enabled() {
		return nil, nil
	}
	store, err := record.NewSingle(record.Object{
		Client: s.clusters.Local().Client(), Kind: record.Lease, Namespace: s.config.Cluster.SystemNamespace, Name: config.Lease + "-shares",
	}, record.Shares)
	if err != nil {
		return nil, err
	}
	q := &quotas{}
	q.keeper, err = share.New(share.Config{
		Store: store, Wants: q.wants, Changed: q.changed, Duration: s.config.LeaderElection.Duration.Duration, Log: s.log,
	})
	for i := range cfg.Authorities {
		name := cfg.Authorities[i].Name
		cfg.Authorities[i].Share = func() float64 { return q.keeper.Share(name) }
	}
	return q, err
}

// run keeps the shares of the engine until end is called, which gives them back.
func (q *quotas) run(engine *ra.Engine) (end func()) {
	if q == nil {
		return func() {}
	}
	q.engine.Store(engine)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); q.keeper.Run(ctx) }()
	return func() { cancel(); <-over }
}

func (q *quotas) wants() map[string]float64 {
	engine, wants := q.engine.Load(), map[string]float64{}
	for _, a := range engine.Status() {
		wants[a.Authority] = engine.Wanted(a.Authority)
	}
	return wants
}

func (q *quotas) changed(authority string) {
	if q.keeper.Share(authority) > 0 {
		q.began.Store(true)
	}
	q.engine.Load().ShareChanged(authority)
}

// ready returns nil once there was a share. If one ended since, callers stay: another replica cannot
// reach the API server either.
func (q *quotas) ready() error {
	if q == nil || q.began.Load() {
		return nil
	}
	return errors.New("this replica has no share of the authorities' quotas yet")
}

// fault returns why the record of shares cannot be kept.
func (q *quotas) fault() error {
	if fault := q.keeper.Status().Fault; fault != "" {
		return errors.New(fault)
	}
	return nil
}

func (q *quotas) report(engine string) []status.Sharing {
	if q == nil {
		return nil
	}
	s := q.keeper.Status()
	return []status.Sharing{{Engine: engine, Members: s.Members, Error: s.Fault}}
}
