package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/proxy"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/sdk/agent"
)

// proxyChild is the proxy that the agent runs, where it has one.
type proxyChild struct {
	*proxy.Proxy // nil: none
	agent        *agent.Agent
	signals      chan os.Signal
	endReaping   func()
}

// newProxyChild checks the configuration. Until close it also reaps orphans, if this process
// is given any.
func newProxyChild(env environ.Vars, c config.Config, log *slog.Logger) (*proxyChild, error) {
	child := &proxyChild{signals: make(chan os.Signal, 8)}
	if len(c.Proxy.Command) > 0 {
		cfg := proxyConfig(env, c, log)
		cfg.Ready, cfg.Signals = child.ready, child.signals
		if !c.Proxy.WaitForSecrets {
			cfg.Ready = nil
		}
		var err error
		if child.Proxy, err = proxy.New(cfg); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
		if passedOn := proxy.PassedOn(); len(passedOn) > 0 { // no argument would mean all signals
			signal.Notify(child.signals, passedOn...)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var reaping sync.WaitGroup
	reaping.Go(func() { proxy.ReapOrphans(ctx, proxy.OrphansInterval, log) })
	child.endReaping = func() { cancel(); reaping.Wait() }
	return child, nil
}

// What each proxy has.
const (
	restartLimit    = 10               // consecutive restarts of one that exits within a minute
	reloadTimeout   = 30 * time.Second // of the command, or of Envoy's check of its configuration
	watchInterval   = time.Second      // between two reads of the watched files
	localityPause   = time.Second      // between two tries
	localityTimeout = 2 * time.Second  // of a try
)

// shutdownTime is when Envoy ends an epoch that has had its time to drain: a third later, in whole
// seconds, as Envoy's 45 and 60 are.
func shutdownTime(drain time.Duration) time.Duration {
	return drain + max(time.Second, (drain/3).Truncate(time.Second))
}

func proxyConfig(env environ.Vars, c config.Config, log *slog.Logger) proxy.Config {
	x := c.Proxy
	return proxy.Config{
		Command: x.Command, Environ: env, Withheld: c.SecretVariables(), Env: x.Env,
		Restart: proxy.Restart(x.Restart), RestartLimit: restartLimit, StopTimeout: x.StopTimeout.Duration,
		Drain: proxy.Drain{Admin: x.Drain.Admin, Time: x.Drain.Time.Duration, WhenIdle: x.Drain.WhenIdle, MinTime: x.Drain.MinTime.Duration},
		Watch: proxy.Watch{Folders: x.Watch.Folders, Interval: watchInterval, MinDelay: x.Watch.MinDelay.Duration},
		Reload: proxy.Reload{
			Signal: proxy.SignalNamed(x.Reload.Signal), Command: x.Reload.Command, HotRestart: x.Reload.HotRestart,
			Timeout: reloadTimeout, DrainTime: x.Reload.DrainTime.Duration, ParentShutdownTime: shutdownTime(x.Reload.DrainTime.Duration),
		},
		Locality: proxy.Locality{
			Value: x.Locality.Value, Variable: x.Locality.Variable, File: x.Locality.File, Getenv: env.Get, URL: x.Locality.URL, Headers: x.Locality.Headers,
			WriteFile: x.Locality.WriteFile, Restart: x.Locality.Restart,
			Tries: int(x.Locality.Tries), Interval: localityPause, Timeout: localityTimeout,
		},
		RuntimeDir: wiring.RuntimeDir(env, c.RuntimeDir), Log: log,
	}
}

func (p *proxyChild) close() {
	signal.Stop(p.signals)
	p.endReaping()
}

// ready returns when every secret is held, or ctx ends.
func (p *proxyChild) ready(ctx context.Context) error { return awaitSecrets(ctx, p.agent) }

// run serves until ctx ends or proxy exited, not restarting it. The proxy goes first,
// so that it has its secrets to the end.
func (p *proxyChild) run(ctx context.Context, a *agent.Agent) error {
	if p.Proxy == nil {
		return a.Run(ctx)
	}
	p.agent = a
	serving, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	ctx, end := context.WithCancel(ctx)
	defer end()
	served := make(chan error, 1)
	go func() {
		defer end() // the proxy cannot run without its secrets
		served <- a.Run(serving)
	}()
	code := p.Run(ctx)
	drain()
	err := <-served
	if code != 0 {
		err = errors.Join(&cli.Error{Code: code, Err: fmt.Errorf("the proxy exited with code %d", code)}, err)
	}
	return err
}

// notReady returns why the proxy takes no traffic; "" is ready, or no proxy.
func (p *proxyChild) notReady(ctx context.Context) string {
	if p.Proxy == nil {
		return ""
	}
	return p.NotReady(ctx)
}

// status is nil where there is no proxy.
func (p *proxyChild) status() *proxy.Status {
	if p.Proxy == nil {
		return nil
	}
	s := p.Status()
	return &s
}
