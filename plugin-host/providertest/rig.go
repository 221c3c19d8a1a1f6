package providertest

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/program/output"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// rig is a provider on the bench.
type rig struct {
	path  string
	entry pluginhost.Entry
	opts  pluginhost.Options
	seen  *seen
	// withheld are variables that secret settings are read from: no process gets them.
	withheld []string
	// schema is that of the settings, once it was needed.
	schema func() (string, error)
	// What came of using it, and why there is nothing.
	used   *usage
	unused error
}

// How long the process may take to start or to refuse to, and to end after its lifeline has,
// and after SIGTERM.
const (
	startBound    = 5 * time.Second
	lifelineBound = 5 * time.Second
	termBound     = 10 * time.Second
)

// open starts a process that has no settings yet.
func (r *rig) open(ctx context.Context) (*conformance.Instance, error) {
	probe, err := r.probe(ctx, r.opts)
	if err != nil {
		return nil, err
	}
	return &conformance.Instance{Provider: probe.Provider, Conn: probe.Conn(), Stop: probe.Close}, nil
}

// launched starts a process.
func (r *rig) launched(opts pluginhost.Options) (*pluginhost.Probe, error) {
	probe, err := pluginhost.NewProbe(opts, r.entry)
	if err != nil {
		return nil, err
	}
	if err := probe.Launch(); err != nil {
		probe.Close()
		return nil, err
	}
	return probe, nil
}

// probe starts a process and reaches it.
func (r *rig) probe(ctx context.Context, opts pluginhost.Options) (*pluginhost.Probe, error) {
	probe, err := r.launched(opts)
	if err != nil {
		return nil, err
	}
	if err := probe.Connect(ctx); err != nil {
		probe.Close()
		return nil, err
	}
	return probe, nil
}

// ready starts a process and gives it the kit's settings.
func (r *rig) ready(ctx context.Context) (*pluginhost.Probe, error) { return r.readyWith(ctx, r.opts) }

func (r *rig) readyWith(ctx context.Context, opts pluginhost.Options) (*pluginhost.Probe, error) {
	probe, err := r.probe(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := conformance.Configure(ctx, probe, r.entry.Settings); err != nil {
		probe.Close()
		return nil, err
	}
	return probe, nil
}

// supervised runs the provider as an agent does.
func (r *rig) supervised(ctx context.Context) (*pluginhost.Provider, error) {
	return pluginhost.Open(ctx, r.opts, r.entry)
}

// protocols returns the options with other versions of the protocol offered.
func (r *rig) protocols(offered ...wire.Protocol) pluginhost.Options {
	opts := r.opts
	opts.Protocols, opts.StartTimeout = offered, startBound
	return opts
}

// maxSeen bounds what is kept of a provider's output.
const maxSeen = 4 << 20

// seen is what the provider wrote and what the host logged about it.
type seen struct {
	stderr, log tape
	tail        output.Tail // of stderr
}

func (s *seen) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// tape keeps what is written to it, and how much that was.
type tape struct {
	mu   sync.Mutex
	text bytes.Buffer
	size int
}

// Write implements [io.Writer]. It never fails.
func (t *tape) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size += len(b)
	t.text.Write(b[:min(len(b), max(0, maxSeen-t.text.Len()))])
	return len(b), nil
}

func (t *tape) read() (text string, size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String(), t.size
}
