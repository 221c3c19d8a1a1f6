package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/metrics"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/filesecret"
)

// reloadTimeout is how long new providers may take to get ready.
const reloadTimeout = time.Minute

// reloader takes a changed configuration over, as far as a running agent can.
type reloader struct {
	reread    func() (config.Config, error)
	started   config.Config // what needs a restart is compared with this
	running   config.Config // what was last taken over whole
	agent     *agent.Agent
	providers *providers
	metrics   *metrics.Metrics
	files     *filesecret.Source
	tokens    *tokenFiles
	level     *slog.LevelVar
	log       *slog.Logger
}

// reload reads the configuration again. A wrong one changes nothing.
func (r *reloader) reload(ctx context.Context) {
	changed, err := r.try(ctx)
	r.metrics.Reloaded(err)
	if err != nil {
		r.log.Error("the configuration was not taken over, the one before stays", "error", err)
		return
	}
	r.log.Info("the configuration was read again", "changed", strings.Join(changed, ", "))
}

// try takes over a changed configuration and names what changed, or returns why it is
// refused.
func (r *reloader) try(ctx context.Context) (changed []string, err error) {
	c, err := r.reread()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	kept, err := r.take(ctx, c)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		r.log.Error("the configuration was not taken over whole; what is named goes on as it was", "error", kept)
	}
	since := config.Changed(r.started, c)
	if names := append(config.NeedRestart(since), c.Workloads.NeedRestart(since)...); len(names) > 0 {
		r.log.Warn("these settings have changed and need a restart of the agent", "settings", strings.Join(names, ", "))
	}
	changed = config.Changed(r.running, c)
	r.running = c
	return changed, nil
}

// take takes over what it can: first whoever has to be ready, then who is served
// what, and last what nobody needs any more. Where it returns an error, what is served
// is what it was; kept names providers that stayed as they were.
func (r *reloader) take(ctx context.Context, c config.Config) (kept, err error) {
	// A name that would move between files and providers must not fall between the two.
	if was, is := r.started.Files.Names(), c.Files.Names(); !slices.Equal(was, is) {
		return nil, fmt.Errorf("other secrets come from files now (%q, before %q): restart the agent", is, was)
	}
	if was, is := r.started.Workloads.On(), c.Workloads.On(); was != is {
		return nil, fmt.Errorf("workloads is on: %t, before: %t: restart the agent", is, was)
	}
	if kept, err = r.providers.reload(ctx, c); err != nil {
		return nil, err
	}
	cfg, err := agentConfig(c, r.providers, r.metrics, r.log)
	if err != nil {
		return kept, errors.Join(err, r.providers.keep(r.running))
	}
	anchor(cfg.Secrets, &c, r.files)
	r.tokens.take(c)
	if err := r.agent.Reload(cfg.Secrets, cfg.Authorities); err != nil {
		r.tokens.take(r.running)
		return kept, errors.Join(err, r.providers.keep(r.running))
	}
	r.providers.stream.Take(cfg.Identities)
	if n := r.agent.SetPolicy(cfg.Socket.Policy); n > 0 {
		r.log.Warn("streams were ended: the socket's policy no longer admits their peers", "streams", n)
	}
	r.level.Set(levelOf(c.Log))
	return kept, r.providers.keep(c)
}
