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

// Restart says after which end the proxy is started again.
type Restart string

// The choices.
const (
	OnFailure Restart = "on-failure" // unless its exit code was 0
	Always    Restart = "always"
	Never     Restart = "never"
)

// Config says what is run, and when it is started, told and given up.
type Config struct {
	// Command is the program and its arguments. {locality} in an argument stands for
	// the zone, as it is known at the start.
	Command []string
	// Environ is the agent's environment, of which the child gets what is not the
	// agent's own; Env is laid over it, with {locality} in its values. Default: none.
	Environ []string
	Env     map[string]string
	// Ready returns when the proxy may start, or ctx ends. Default: at once.
	Ready func(ctx context.Context) error
	// Restart is when it is started again. Default: on-failure.
	Restart Restart
	// RestartLimit is how many restarts there are in a row, of which none ran for a
	// minute, before it has ended for good. Default: 0, none.
	RestartLimit int
	// StopTimeout is what it has between SIGTERM and SIGKILL. Default: 0, nothing.
	StopTimeout time.Duration
	Watch       Watch
	Reload      Reload
	Locality    Locality
	// RuntimeDir takes a private folder with the base id of a hot restart. Default:
	// the temp folder.
	RuntimeDir string
	// Signals are passed on to the proxy. Default: none.
	Signals <-chan os.Signal
	// Log gets what happens; what the proxy itself writes goes to the agent's own
	// standard output and error. Default: silent.
	Log *slog.Logger
}

// Watch lists what the proxy reads and has to be told of when it changes.
type Watch struct {
	Folders []string // or files; what is missing is skipped
	// Interval is how often they are read. Required with Folders.
	Interval time.Duration
	// MinDelay is how long changes are gathered before one reload.
	MinDelay time.Duration
}

// Reload is how the proxy is told: exactly one of Signal, Command and HotRestart,
// or none.
type Reload struct {
	Signal     syscall.Signal
	Command    []string // {pid} and {locality} are filled in
	HotRestart bool     // the next epoch of an Envoy
	// Timeout is what the command, or the check of a new epoch's configuration, has.
	Timeout time.Duration
	// DrainTime and ParentShutdownTime are those of a hot restart; see Envoy's
	// --drain-time-s and --parent-shutdown-time-s.
	DrainTime, ParentShutdownTime time.Duration
}

// none tells whether there is no way to tell the proxy anything.
func (r Reload) none() bool { return r.Signal == 0 && len(r.Command) == 0 && !r.HotRestart }

// Proxy is one child and its successors. Its methods may be called by any number of
// goroutines at once; Run once.
type Proxy struct {
	cfg Config
	log *slog.Logger

	// What a test replaces.
	launch func(start) (child, error)
	run    func(context.Context, command.Program) error
	digest func() string
	find   func(context.Context) (string, error)

	mu       sync.Mutex
	status   Status
	locality string

	loop
}

// New checks the command and what it is told by. Nothing is started.
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
	p.find = cfg.Locality.find
	p.status = Status{Command: cfg.Command[0], State: Waiting, Since: time.Now()}
	return p, nil
}
