package supervise

import (
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// State is where a provider stands.
type State string

// The states. A provider goes from resolved to ready, from ready to backoff and
// back while it crashes, and by draining to stopped at the end.
const (
	Resolved    State = "resolved"     // found and verified, not started yet
	Starting    State = "starting"     // the process is being started
	Configuring State = "configuring"  // it gets its settings, and gets ready
	Ready       State = "ready"        // calls are served
	Draining    State = "draining"     // no new calls, those in flight are waited for
	Stopped     State = "stopped"      // for good
	Backoff     State = "backoff"      // it ended; it is started again at NextStart
	CircuitOpen State = "circuit open" // it ended too often; one probe at NextStart
)

// Status is what is known about a provider at one moment.
type Status struct {
	Name     string // of the entry
	Provider string // of the binary
	State    State
	Since    time.Time // when it came into State

	Path   string // of the binary; empty in process
	SHA256 string // of the binary, lower-case hex; empty in process

	Generation     int                    // the number of the life that is ready, or on its way to it
	Restarts       int                    // how often it was started again because it had ended
	Reloads        int                    // how often a new binary or new settings took over
	PID            int                    // 0 while there is no process
	Authentication process.Authentication // empty until the handshake
	Protocol       int                    // version of the protocol; 0 until the handshake
	Metadata       wire.Metadata          // what it said about itself last

	LastError string    // why it ended last, or is not ready yet
	Crash     []string  // the last lines it wrote before it ended last
	NextStart time.Time // in Backoff and CircuitOpen

	LastReload string // why the last Reload did not take over; empty where it did
}

// Take fills in what a Status says of one life.
func (s *Status) Take(r process.Report) {
	if s.PID = r.PID; r.PID == 0 {
		s.Crash = r.Crash
	}
	if r.Authentication != "" {
		s.Authentication, s.Protocol, s.Metadata = r.Authentication, r.Protocol, r.Metadata
	}
}
