package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/demand"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/workloads"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// reloader applies a changed configuration, as far as a running agent can. What needs no
// provider's answer is checked first, and an error there changes nothing. Then each
// authority whose provider has to get ready switches by itself; see switches.
type reloader struct {
	*start
	running config.Config // the last one applied
	pending []string      // settings of it that wait for a restart
	moved   []string      // trust domains among them
	tokens  *tokenFiles
	level   *slog.LevelVar

	wg sync.WaitGroup // of all switches
	mu sync.Mutex     // serializes changes of what follows, and of the providers

	inForce map[string]secret.Authority // by name
	policy  sds.Policy
	last    *switches // of the configuration in force
}

func newReloader(s *start, level *slog.LevelVar) *reloader {
	r := &reloader{start: s, running: s.c, tokens: newTokenFiles(s.c), level: level, inForce: map[string]secret.Authority{}, policy: s.cfg.Socket.Policy}
	for _, a := range s.cfg.Authorities {
		r.inForce[a.Name] = a
	}
	return r
}

// close ends the switches that are under way.
func (r *reloader) close() {
	r.mu.Lock()
	r.last.stop()
	r.mu.Unlock()
	r.wg.Wait()
}

// reload rereads the configuration. A faulty one changes nothing.
func (r *reloader) reload(ctx context.Context) {
	changed, started, err := r.try(ctx)
	r.counts.Reloaded(r.pending, err)
	if err != nil {
		r.log.Error("cannot apply the configuration, keeping the previous one", "error", err)
		return
	}
	r.wg.Go(func() {
		kept := started.outcome()
		if started.ctx.Err() != nil {
			return // a newer configuration came first
		}
		if kept != nil {
			r.log.Error("configuration applied in part; the providers named in the error keep their previous settings and rules, and are tried again", "error", kept)
		}
		r.log.Info("configuration reloaded", "changed", strings.Join(changed, ", "))
	})
}

// try applies the changed configuration and returns which settings changed, and the switches
// that it has started.
func (r *reloader) try(ctx context.Context) (changed []string, started *switches, err error) {
	c, err := r.in.Read()
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if started, err = r.take(ctx, c); err != nil {
		return nil, nil, err
	}
	since := config.Changed(r.c, c)
	r.pending = append(config.NeedRestart(since), c.Workloads.NeedRestart(since)...)
	r.pending = slices.Concat(r.pending, r.moved, demand.NeedRestart(r.c, c))
	if r.brokersWait(c.Broker) {
		r.pending = append(r.pending, "broker.brokers")
	}
	if len(r.pending) > 0 {
		r.log.Warn("changed settings need a restart of the agent", "settings", strings.Join(r.pending, ", "))
	}
	changed = config.Changed(r.running, c)
	r.running = c
	return changed, started, nil
}

// needsRestart returns an error if secrets would move between sources that a running agent
// cannot change.
func (r *reloader) needsRestart(c config.Config) error {
	// A name that moved between files and providers would be served by neither for a moment.
	if was, is := r.c.Files.Names(), c.Files.Names(); !slices.Equal(was, is) {
		return fmt.Errorf("the secrets from files have changed (%q, previously %q): restart the agent", is, was)
	}
	if was, is := r.c.Spire.Names(), c.Spire.Names(); !slices.Equal(was, is) {
		return fmt.Errorf("the secrets from SPIRE have changed (%q, previously %q): restart the agent", is, was)
	}
	if was, is := r.c.SpireProvides(), c.SpireProvides(); !slices.Equal(was, is) {
		return fmt.Errorf("the secrets of the provider %q have changed: restart the agent", config.SpireProvider)
	}
	if was, is := r.c.Workloads.On(), c.Workloads.On(); was != is {
		return fmt.Errorf("workloads was switched (on: %t, previously: %t): restart the agent", is, was)
	}
	if was, is := r.c.TrustDomain, c.TrustDomain; was != is && r.c.PublishBundle.Address != "" {
		return fmt.Errorf("trust_domain has changed (%q, previously %q), and publish_bundle publishes its roots: restart the agent", is, was)
	}
	return nil
}

// take checks the whole configuration, puts in force what needs no provider, and starts the
// switches of the others. After an error everything is as before.
func (r *reloader) take(ctx context.Context, c config.Config) (*switches, error) {
	if err := r.needsRestart(c); err != nil {
		return nil, err
	}
	ch, err := r.providers.change(c)
	if err != nil {
		return nil, err
	}
	cfg, err := r.wanted(c, ch)
	if err == nil {
		err = r.agent.Check(cfg.Secrets, cfg.Authorities)
	}
	late := ch.changed()
	if err == nil {
		err = r.replace(c, cfg.Secrets, r.without(late, cfg.Authorities))
	}
	if err != nil {
		ch.drop()
		return nil, err
	}
	r.last.stop()
	r.tokens.take(c)
	r.providers.take(ch)
	r.adopt(cfg.Authorities, late)
	for _, added := range ch.added {
		added.Begin()
	}
	r.last = r.startSwitches(ctx, c, ch, cfg.Authorities)
	return r.last, r.settle(c, cfg)
}

// replace has the agent replace its secrets, its authorities and its rules for names on demand.
func (r *reloader) replace(c config.Config, secrets []secret.Spec, authorities []secret.Authority) error {
	if r.demand == nil {
		return r.agent.Reload(secrets, authorities)
	}
	next, err := r.demand.Prepare(c)
	if err != nil {
		return err
	}
	if err := r.agent.Reload(secrets, authorities); err != nil {
		next.Drop()
		return err
	}
	if err := r.agent.SetOnDemand(next.Rules()); err != nil {
		next.Drop()
		r.log.Error("failed to replace the rules for names on demand, keeping the previous ones", "error", err)
		return nil
	}
	next.Take()
	return nil
}

// wanted is the agent's configuration with the clients that the change would bring.
func (r *reloader) wanted(c config.Config, ch *change) (agent.Config, error) {
	cfg, err := agentConfig(c, clients{ch.client, ch.tokens}, r.providers, r.counts, r.log)
	if err != nil {
		return cfg, err
	}
	r.given.join(&cfg)
	r.foreign.join(&cfg)
	anchor(cfg.Secrets, &c, r.others)
	return cfg, nil
}

// without returns the authorities with those in force in the place of the late ones.
func (r *reloader) without(late map[string]*pluginhost.Plan, all []secret.Authority) []secret.Authority {
	all = slices.Clone(all)
	for i, a := range all {
		if _, waits := late[a.Name]; waits {
			all[i] = r.inForce[a.Name]
		}
	}
	return all
}

// adopt notes the authorities that are in force now: all but the late ones.
func (r *reloader) adopt(all []secret.Authority, late map[string]*pluginhost.Plan) {
	now := map[string]secret.Authority{}
	for _, a := range r.without(late, all) {
		now[a.Name] = a
	}
	r.inForce = now
	for name := range now {
		if late[name] == nil {
			r.providers.stream.Take(name, workloads.ExchangeOf(r.providers.tokens, name))
		}
	}
	r.followTokens()
}

func (r *reloader) followTokens() {
	all := slices.Collect(maps.Values(r.inForce))
	r.jwts.follow(all)
	r.wits.follow(all)
}

// settle applies the rest, which has been checked, and stops what is no longer needed.
func (r *reloader) settle(c config.Config, cfg agent.Config) error {
	r.moved = movedDomains(r.cfg.Socket.SPIRE, cfg.Socket.SPIRE)
	r.policy = cfg.Socket.Policy
	r.enforcePolicy()
	r.setBrokers(c.Broker)
	r.level.Set(levelOf(c.Log))
	r.wg.Go(r.providers.keep(c))                                                               // no authority waits for their calls in flight
	return r.agent.SetRevocation(revocationOf(c, r.providers, r.spire.lists(r.given)).Bundles) // Complete has checked them
}

func (r *reloader) enforcePolicy() {
	if n := r.agent.SetPolicy(r.policy); n > 0 {
		r.log.Warn("closed streams whose peers the socket's policy no longer admits", "streams", n)
	}
}
