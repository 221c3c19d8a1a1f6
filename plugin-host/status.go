package pluginhost

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// State is a provider's place in its life cycle; README.md draws it.
type State string

// The states. A provider goes from Resolved to Ready, to Backoff and back after a crash or a
// failed start, and through Draining to Stopped on Close.
const (
	Resolved    = State("resolved")     // found and verified, not started yet
	Starting    = State("starting")     // the process is being started
	Configuring = State("configuring")  // it gets its settings and becomes ready
	Ready       = State("ready")        // calls are served
	Draining    = State("draining")     // no new calls; calls in flight finish
	Stopped     = State("stopped")      // for good
	Backoff     = State("backoff")      // it ended; the next start is at Status.NextStart
	CircuitOpen = State("circuit open") // it failed to start or crashed too often; one probe at Status.NextStart
	Refused     = State("refused")      // it rejected its settings; started again by a Reload, and at Status.NextStart
)

// Authentication is how host and provider authenticate each other. The provider chooses it in
// its handshake line.
type Authentication string

// The ways; proto/provider/PROTOCOL.md has the table of the first three. The last two have no
// process of the host: a provider in its author's debugger, and one in the host's own process.
const (
	Channel   = Authentication(process.Channel)
	PinnedTLS = Authentication(process.PinnedTLS)
	AutoMTLS  = Authentication(process.AutoMTLS)
	Attached  = Authentication(process.Attached)
	InHost    = Authentication(process.InHost)
)

// Status describes a provider at one moment. It is a copy: the caller may change it.
type Status struct {
	Name     string    // of the entry
	Provider string    // the NAME of its binary, countersign-provider-NAME
	State    State     // where it is in its life cycle
	Since    time.Time // when it entered State

	Path   string // of the binary; empty for a provider in the host's process
	SHA256 string // of the binary, 64 lower-case hex digits; empty as Path

	Generation     int            // number of the process that is ready or being started, from 1
	Restarts       int            // how often it was started again after it ended
	Reloads        int            // how often it was replaced for a new binary or new settings
	PID            int            // 0 while there is no process
	Authentication Authentication // empty until the handshake
	Protocol       int            // version of the protocol; 0 until the handshake
	Metadata       wire.Metadata  // the last that it sent

	LastError string    // why it ended or is not ready yet; empty: no error
	Crash     []string  // the last lines that it wrote before it ended, escaped
	NextStart time.Time // in Backoff, CircuitOpen and Refused; zero otherwise

	LastReload string // why the last reload failed; empty: it did not
	LastSecret string // why it refused secrets that changed, and keeps those before; empty: it did not
}

// clone returns a copy that the caller may change.
func (s Status) clone() Status {
	s.Crash, s.Metadata.Abilities = slices.Clone(s.Crash), slices.Clone(s.Metadata.Abilities)
	return s
}

// take fills in the report of one life.
func (s *Status) take(r process.Report) {
	if s.PID = r.PID; r.PID == 0 {
		s.Crash = r.Crash
	}
	if r.Authentication != "" {
		s.Authentication, s.Protocol, s.Metadata = Authentication(r.Authentication), r.Protocol, r.Metadata
	}
}
