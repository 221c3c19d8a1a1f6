package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/program/config"
)

// reloadTimeout is how long new providers may take to become ready.
const reloadTimeout = time.Minute

// reloader applies a changed configuration, as far as a running agent can.
type reloader struct {
	*start
	running config.Config // the last one applied
	pending []string      // settings of it that wait for a restart
	moved   []string      // trust domains among them
	tokens  *tokenFiles
	level   *slog.LevelVar
}

// reload rereads the configuration. A faulty one changes nothing.
func (r *reloader) reload(ctx context.Context) {
	changed, kept, err := r.try(ctx)
	r.counts.Reloaded(r.pending, err)
	if err != nil {
		r.log.Error("cannot apply the configuration, keeping the previous one", "error", err)
		return
	}
	if kept != nil {
		r.log.Error("configuration applied in part; the providers named in the error keep their previous settings", "error", kept)
	}
	r.log.Info("configuration reloaded", "changed", strings.Join(changed, ", "))
}

// try applies the changed configuration and returns which settings changed; kept names
// providers that could not reload.
func (r *reloader) try(ctx context.Context) (changed []string, kept, err error) {
	c, err := r.in.Read()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if kept, err = r.take(ctx, c); err != nil {
		return nil, nil, err
	}
	since := config.Changed(r.c, c)
	r.pending = append(config.NeedRestart(since), c.Workloads.NeedRestart(since)...)
	r.pending = append(r.pending, r.moved...)
	if len(r.pending) > 0 {
		r.log.Warn("changed settings need a restart of the agent", "settings", strings.Join(r.pending, ", "))
	}
	changed = config.Changed(r.running, c)
	r.running = c
	return changed, kept, nil
}

// take applies what it can: first it starts new providers, then it switches the secrets, and
// last it stops what is no longer needed. After an error, the agent serves what it did before;
// kept names providers that could not reload.
func (r *reloader) take(ctx context.Context, c config.Config) (kept, err error) {
	// A name that moved between files and providers would be served by neither for a moment.
	if was, is := r.c.Files.Names(), c.Files.Names(); !slices.Equal(was, is) {
		return nil, fmt.Errorf("the secrets from files have changed (%q, previously %q): restart the agent", is, was)
	}
	if was, is := r.c.Spire.Names(), c.Spire.Names(); !slices.Equal(was, is) {
		return nil, fmt.Errorf("the secrets from SPIRE have changed (%q, previously %q): restart the agent", is, was)
	}
	if was, is := r.c.SpireProvides(), c.SpireProvides(); !slices.Equal(was, is) {
		return nil, fmt.Errorf("the secrets of the provider %q have changed: restart the agent", config.SpireProvider)
	}
	if was, is := r.c.Workloads.On(), c.Workloads.On(); was != is {
		return nil, fmt.Errorf("workloads was switched (on: %t, previously: %t): restart the agent", is, was)
	}
	if kept, err = r.providers.reload(ctx, c); err != nil {
		return nil, err
	}
	cfg, err := agentConfig(c, r.providers, r.counts, r.log)
	if err != nil {
		return kept, errors.Join(err, r.providers.keep(r.running))
	}
	r.given.join(&cfg)
	r.foreign.join(&cfg)
	anchor(cfg.Secrets, &c, r.others)
	r.tokens.take(c)
	if err := r.agent.Reload(cfg.Secrets, cfg.Authorities); err != nil {
		r.tokens.take(r.running)
		return kept, errors.Join(err, r.providers.keep(r.running))
	}
	if err := r.agent.SetRevocation(revocationOf(c, r.providers, r.spire.lists(r.given)).Bundles); err != nil {
		return kept, err // unreachable: Complete has checked them
	}
	r.moved = movedDomains(r.cfg.Socket.SPIRE, cfg.Socket.SPIRE)
	r.jwts.follow(cfg.Authorities)
	r.providers.stream.Take(cfg.Identities)
	if n := r.agent.SetPolicy(cfg.Socket.Policy); n > 0 {
		r.log.Warn("closed streams whose peers the socket's policy no longer admits", "streams", n)
	}
	r.level.Set(levelOf(c.Log))
	return kept, r.providers.keep(c)
}
