package pluginhost

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// Options are the same for all providers of an agent.
type Options struct {
	// Dirs are searched for binaries in this order; see [DefaultDirs]. Required.
	Dirs []string
	// Dev allows binaries without a pin. Default: false.
	Dev bool
	// RuntimeDir holds the private folders for sockets. Default: the system's folder for
	// temporary files.
	RuntimeDir string
	// ReceiptDir keeps receipts of verified binaries that only root can write, so that an
	// unchanged one is not hashed again at the next start. Default: no receipts.
	ReceiptDir string
	// Protocols are the versions offered. Default: version 1.
	Protocols []wire.Protocol
	// LookupEnv finds the variables that secret settings refer to by {env: NAME}, usually
	// [os.LookupEnv]. Default: none is set.
	LookupEnv func(name string) (value string, ok bool)
	// CommandEnv is the whole environment of the commands that secret settings refer to by
	// {command: […]}. Default: empty.
	CommandEnv []string
	// Groups lists the process groups and users of providers. Default: a new value.
	Groups *ProcessGroups
	// OnState is called at each change of state, in order. It must not block or call the
	// Provider. Default: none.
	OnState func(Status)
	// Due reports whether a certificate of the named entry is needed now, and when the first
	// such certificate ends; the zero time means that none is held. A provider that crashes
	// or hangs then waits for its next start no longer than the certificate allows. It may be
	// called at any time. Default: nothing is known to be due.
	Due func(name string) (end time.Time, due bool)
	// Tracer gets a trace of each start of a provider, with a span for each step. Default: none.
	Tracer trace.Tracer
	// Log, which also gets the providers' own records. Default: [slog.Default].
	Log *slog.Logger
	// Stderr gets the raw, unbounded standard error of providers; for tests of a
	// provider. Default: [slog.Default].
	Stderr io.Writer

	// StartTimeout bounds a start, up to the provider's metadata. Default: 10 s.
	StartTimeout time.Duration
	// CallTimeout bounds each Configure, and calls without a deadline. Default: 30 s.
	CallTimeout time.Duration
	// StopTimeout is how long a provider may take to exit before it is killed. Default: 5 s.
	StopTimeout time.Duration
	// HealthInterval is the time between health checks; a provider that misses three is
	// killed. Default: 10 s.
	HealthInterval time.Duration
	// MaxCalls limits concurrent calls to one provider. Default: 256.
	MaxCalls int
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.StartTimeout, 10 * time.Second}, {&o.CallTimeout, 30 * time.Second},
		{&o.StopTimeout, 5 * time.Second}, {&o.HealthInterval, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	o.MaxCalls = cmp.Or(o.MaxCalls, 256)
	o.RuntimeDir = cmp.Or(o.RuntimeDir, os.TempDir())
	if o.Protocols == nil {
		o.Protocols = []wire.Protocol{wire.V1()}
	}
	if o.Groups == nil {
		o.Groups = &ProcessGroups{}
	}
	if o.OnState == nil {
		o.OnState = func(Status) {}
	}
	if o.Due == nil {
		o.Due = func(string) (time.Time, bool) { return time.Time{}, false }
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	return o
}

// process returns what a process needs of the options.
func (o Options) process() process.Options {
	return process.Options{
		RuntimeDir: o.RuntimeDir, Protocols: o.Protocols, Groups: &o.Groups.running, CallTimeout: o.CallTimeout, Log: o.Log, Stderr: o.Stderr,
	}
}
