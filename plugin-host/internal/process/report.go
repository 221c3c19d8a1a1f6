package process

import "github.com/countersign-dev/countersign/sdk/provider/wire"

// Report describes one life of a provider.
type Report struct {
	PID            int            // 0: no process, or it has ended
	Authentication Authentication // empty until the provider sent its metadata
	Protocol       int            // version of the protocol, with Authentication
	Metadata       wire.Metadata  // with Authentication
	Crash          []string       // the last lines it wrote, once it has ended
}

// Authentication is how host and process authenticate each other. The provider chooses it
// in its handshake line; see proto/provider/PROTOCOL.md.
type Authentication string

// The ways of a process, then those without one: a provider in its author's debugger, and
// one in the host's own process.
const (
	Channel   Authentication = "inherited channel"
	PinnedTLS Authentication = "mutual TLS, both keys the host's"
	AutoMTLS  Authentication = "AutoMTLS"
	Attached  Authentication = "attached in a debugger: same user"
	InHost    Authentication = "in process"
)
