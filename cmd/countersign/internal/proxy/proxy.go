// Package proxy runs the agent's proxy as a child process: it starts the proxy when the first
// secrets are held, restarts it when it exits, reloads it when watched files change, and stops
// it before the agent ends. The agent calls [New] and then [Proxy.Run], whose goroutine owns
// the child process.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// Restart selects the exits after which the proxy is restarted.
type Restart string

// The restart policies.
const (
	OnFailure Restart = "on-failure" // unless its exit code was 0
	Always    Restart = "always"
	Never     Restart = "never"
)

// Config configures a [Proxy]. Command is required.
type Config struct {
	// Command is the program and its arguments. {locality} in an argument is replaced with
	// the zone known at the start.
	Command []string
	// Environ is the agent's environment; the child inherits it without the agent's own
	// variables. Env overrides it; its values may contain {locality}. Default: none.
	Environ []string
	Env     map[string]string
	// Withheld are further variables of Environ that the child does not inherit. Default:
	// none.
	Withheld []string
	// Ready returns when the proxy may start, or ctx ends. Default: at once.
	Ready func(ctx context.Context) error
	// Restart is the restart policy. Default: on-failure.
	Restart Restart
	// RestartLimit limits consecutive restarts of a proxy that exits within a minute.
	// Default: 0, no restarts.
	RestartLimit int
	// StopTimeout is the time between SIGTERM and SIGKILL. Default: 0.
	StopTimeout time.Duration
	// Drain comes before SIGTERM when Run's context ends; NotReady uses its admin address,
	// too. Default: none.
	Drain    Drain
	Watch    Watch
	Reload   Reload
	Locality Locality
	// RuntimeDir is where to create a private folder for the base ID of hot restarts.
	// Default: the temporary folder.
	RuntimeDir string
	// Signals are passed on to the proxy. Default: none.
	Signals <-chan os.Signal
	// Log receives events; the proxy's own output goes to the agent's standard output and
	// error. Default: no logging.
	Log *slog.Logger
}

// Watch lists the files whose changes reload the proxy.
type Watch struct {
	Folders []string // or files; missing ones are skipped
	// Interval is the time between two reads. Required with Folders.
	Interval time.Duration
	// MinDelay is how long to collect changes for one reload.
	MinDelay time.Duration
}

// Reload selects how to reload the proxy: by one of Signal, Command and HotRestart, or not at
// all.
type Reload struct {
	Signal     syscall.Signal
	Command    []string // {pid} and {locality} are replaced
	HotRestart bool     // start the next epoch of Envoy
	// Timeout limits the command, or the check of a new epoch's configuration.
	Timeout time.Duration
	// DrainTime and ParentShutdownTime are Envoy's --drain-time-s and
	// --parent-shutdown-time-s for a hot restart.
	DrainTime, ParentShutdownTime time.Duration
}

// none reports whether the proxy cannot be reloaded.
func (r Reload) none() bool { return r.Signal == 0 && len(r.Command) == 0 && !r.HotRestart }

// Proxy is one child process and its successors. It is safe for concurrent use; call Run
// once.
type Proxy struct {
	cfg Config
	log *slog.Logger

	// Replaced by tests.
	launch func(start) (child, error)
	run    func(context.Context, command.Program) error
	ask    func(ctx context.Context, method, path string) (string, error)
	digest func() string
	find   func(context.Context) (string, error)

	mu       sync.Mutex
	status   Status
	locality string
	live     readiness

	loop
}

// New checks the command and the reload method. It starts nothing.
func New(cfg Config) (*Proxy, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("no command to run")
	}
	for _, argv := range [][]string{cfg.Command, cfg.Reload.Command} {
		if len(argv) == 0 {
			continue
		}
		if _, err := exec.LookPath(argv[0]); err != nil {
			return nil, fmt.Errorf("cannot run the program %.256q: %w", argv[0], errors.Unwrap(err))
		}
	}
	cfg.Restart = cmp.Or(cfg.Restart, OnFailure)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	p := &Proxy{cfg: cfg, log: cfg.Log.With("proxy", cfg.Command[0]), launch: launch}
	p.run = func(ctx context.Context, c command.Program) error { return c.RunLogged(ctx, p.log) }
	p.digest = (&watched{paths: cfg.Watch.Folders, log: p.log}).digest
	p.find, p.ask = cfg.Locality.find, cfg.Drain.ask
	p.status = Status{Command: cfg.Command[0], State: Waiting, Since: time.Now()}
	return p, nil
}
