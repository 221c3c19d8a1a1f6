package supervise

import (
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// State is a provider's place in its life cycle.
type State string

// The states. A provider goes from resolved to ready, to backoff and back after a crash or
// a failed start, and through draining to stopped on Close.
const (
	Resolved    State = "resolved"     // found and verified, not started yet
	Starting    State = "starting"     // the process is being started
	Configuring State = "configuring"  // it gets its settings and becomes ready
	Ready       State = "ready"        // calls are served
	Draining    State = "draining"     // no new calls; calls in flight finish
	Stopped     State = "stopped"      // for good
	Backoff     State = "backoff"      // it ended; the next start is at NextStart
	CircuitOpen State = "circuit open" // it failed to start or crashed too often; one probe at NextStart
	Refused     State = "refused"      // it rejected its settings; started again by a reload, and at NextStart
)

// Status describes a provider at one moment.
type Status struct {
	Name     string // of the entry
	Provider string // of the binary
	State    State
	Since    time.Time // when it entered State

	Path   string // of the binary; empty in process
	SHA256 string // of the binary, lower-case hex; empty in process

	Generation     int                    // number of the life that is ready, or on its way
	Restarts       int                    // after it ended
	Reloads        int                    // to a new binary or new settings
	PID            int                    // 0 while there is no process
	Authentication process.Authentication // empty until the handshake
	Protocol       int                    // version of the protocol; 0 until the handshake
	Metadata       wire.Metadata          // the last that it sent

	LastError string    // why it ended or is not ready yet
	Crash     []string  // its last lines before it ended
	NextStart time.Time // in Backoff, CircuitOpen and Refused

	LastReload string // why the last Reload failed; empty: it did not
	LastSecret string // why it did not take secrets that changed, and keeps those before; empty: it did
}

// Take fills in the report of one life.
func (s *Status) Take(r process.Report) {
	if s.PID = r.PID; r.PID == 0 {
		s.Crash = r.Crash
	}
	if r.Authentication != "" {
		s.Authentication, s.Protocol, s.Metadata = r.Authentication, r.Protocol, r.Metadata
	}
}
