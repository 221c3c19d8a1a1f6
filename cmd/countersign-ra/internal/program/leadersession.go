package program

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// lookEvery bounds how late a change of the clusters can be noticed.
	lookEvery = 10 * time.Second
	// abilitiesWithin bounds the question which names the authorities certify.
	abilitiesWithin = time.Minute
)

// leaderSession is the time in which this replica leads: it has an engine, and a clusterRun for each
// cluster.
type leaderSession struct {
	*service
	engine *ra.Engine
	quotas *quotas
	issuer ra.Issuer
	quorum *quorum.Quorum

	federations federations
	mu          sync.Mutex
	clusterRuns map[string]*clusterRun // by cluster ID
	unable      string                 // rules that their authorities cannot serve

	returned map[string]time.Time // of run: since when clusters that were left behind can be reached again
}

// lead signs until ctx ends, and returns when all is closed.
func (s *service) lead(ctx context.Context) {
	t, err := s.newLeaderSession()
	if err != nil {
		s.failed = err
		s.stop() // another term would fail as well
		return
	}
	defer t.engine.Close()
	defer t.quotas.run(t.engine)()
	s.session.Store(t)
	defer s.session.Store(nil)
	s.follow(t.engine)
	t.run(ctx)
}

func (s *service) newLeaderSession() (*leaderSession, error) {
	t := &leaderSession{service: s, clusterRuns: map[string]*clusterRun{}, returned: map[string]time.Time{}}
	cfg := s.engineConfig()
	cfg.Store, cfg.RootsChanged = s.records, t.rootsChanged
	cfg.Guard = guard.NewAuthorities(s.log, t.clientCAs)
	for _, a := range s.providers.Authorities {
		authority := s.authority(a)
		if s.lease != nil {
			authority.Client = s.lease.Client(a.Client)
		}
		cfg.Authorities = append(cfg.Authorities, authority)
	}
	var err error
	if t.quotas, err = s.shared(&cfg); err != nil {
		return nil, err
	}
	if t.federations, err = t.follows(s); err != nil {
		return nil, err
	}
	if t.engine, err = ra.New(cfg); err != nil {
		return nil, err
	}
	t.quorum = quorum.New(t.engine, publishersOf(s.config))
	t.issuer = t.engine
	if s.lease != nil {
		t.issuer = s.lease.Issuer(t.issuer)
	}
	return t, nil
}

// engineConfig is what the engines have in common.
func (s *service) engineConfig() ra.Config {
	b, now := s.config.Budget, s.now.Load()
	return ra.Config{
		Policy: now.Policy(), Doors: now.Doors(), Audit: s.audit.Sink(), Log: s.log, Observe: s.metrics.Outcome, Tracer: s.tracer,
		Budget: ra.Budget{
			Holder: int(b.Holder), HolderEvery: b.HolderEvery.Duration, Namespace: int(b.Namespace), NamespaceEvery: b.NamespaceEvery.Duration,
		},
	}
}

// authority merges the providers and authorities sections.
func (s *service) authority(a secret.Authority) ra.Authority {
	i := slices.IndexFunc(s.config.Authorities, func(c config.Authority) bool { return c.Name == a.Name })
	c := s.config.Authorities[i] // each provider has one
	return ra.Authority{
		Name: a.Name, Client: a.Client, Token: a.Token, TokenRejected: a.TokenRejected, PinnedRoots: a.PinnedRoots,
		AcceptLongerTTL: a.AcceptLongerTTL,
		Limits:          ra.Limits{Rate: c.Limits.Rate, Burst: int(c.Limits.Burst), InFlight: int(c.Limits.InFlight)},
		Roots: ra.Roots{
			Wait: s.now.Load().RootsWait(c), ByReply: s.config.ByReply(c), Unplanned: c.Roots.Unplanned.Duration, Interval: c.Roots.Interval.Duration,
			Confirmed: s.config.Mesh.Publishes(a.Name) ||
				slices.ContainsFunc(s.config.Signers, func(s config.Signer) bool { return s.TrustBundle.Authority == a.Name }),
		},
	}
}

// run keeps a clusterRun in each cluster until ctx ends and all are closed.
func (t *leaderSession) run(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { t.checkAbilities(ctx) })
	t.federations.run(ctx, &background)
	defer t.closeClusterRuns()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		t.settle(ctx)
		select {
		case <-t.moved:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// settle opens and closes clusterRuns, so that each cluster has one by its current client.
func (t *leaderSession) settle(ctx context.Context) {
	var ids []string
	clusters := t.clusters.Status()
	for _, c := range clusters {
		ids = append(ids, c.ID)
		cluster, ok := t.clusters.Cluster(c.ID)
		t.mu.Lock()
		old := t.clusterRuns[c.ID]
		t.mu.Unlock()
		if !ok || old != nil && old.cluster == cluster {
			continue // where there is no new one, the old one stays
		}
		old.close()
		t.quorum.Forget(c.ID)
		t.put(c.ID, t.openClusterRun(ctx, cluster, old.knew()))
	}
	t.mu.Lock()
	var gone []*clusterRun
	for id, o := range t.clusterRuns {
		if !slices.Contains(ids, id) {
			gone = append(gone, o)
			delete(t.clusterRuns, id)
		}
	}
	t.mu.Unlock()
	for _, o := range gone {
		o.close()
		t.quorum.Forget(o.cluster.ID())
	}
	// A root does not count as published without remotes that are not listed yet; for an hour at most.
	if t.clusters.Listed() || t.quorum.Waited() {
		t.quorum.Members(ids)
	}
	t.leaveBehind(clusters)
}

func (t *leaderSession) put(id string, o *clusterRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clusterRuns[id] = o
}

// all returns the clusterRuns, by cluster ID.
func (t *leaderSession) all() []*clusterRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*clusterRun
	for _, o := range t.clusterRuns {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *clusterRun) int { return strings.Compare(a.cluster.ID(), b.cluster.ID()) })
	return all
}

func (t *leaderSession) closeClusterRuns() {
	var closing sync.WaitGroup
	for _, o := range t.all() {
		closing.Go(o.close)
	}
	closing.Wait()
}

// rootsChanged passes a change on to the trust bundles.
func (t *leaderSession) rootsChanged(authority string, roots *pki.Bundle) {
	for _, o := range t.all() {
		o.rootsChanged(authority, roots)
	}
}

func (t *leaderSession) clientCAs() (all []*guard.ClientCA) {
	for _, o := range t.all() {
		all = append(all, o.clientCA)
	}
	return all
}

// ready returns nil once the requests of a cluster are known.
func (t *leaderSession) ready(cluster string) error {
	t.mu.Lock()
	o := t.clusterRuns[cluster]
	t.mu.Unlock()
	if o == nil {
		return errors.New("cluster " + cluster + " is not connected")
	}
	return o.ready()
}

// checkAbilities looks for rules that their authorities cannot serve, each time that a
// provider is ready again. They are refused one by one, too.
func (t *leaderSession) checkAbilities(ctx context.Context) {
	for {
		said := ""
		within, cancel := context.WithTimeout(ctx, abilitiesWithin)
		if err := t.engine.CheckAbilities(within); err != nil {
			said = text.Clean(err.Error())
			t.log.Error("rules that cannot be served", "error", said)
		}
		cancel()
		t.mu.Lock()
		t.unable = said
		t.mu.Unlock()
		select {
		case <-t.back:
		case <-ctx.Done():
			return
		}
	}
}
