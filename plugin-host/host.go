// Package pluginhost runs providers: it finds a binary, verifies, starts and supervises
// it. [Open] returns a [ca.Client] that outlives every process of the provider;
// [InProcess] does the same for a provider without a process.
//
// Agents and the program countersign call it. Each [Provider] keeps one provider alive: it starts one
// life after the other, restarts what ended with backoff and an open circuit, replaces what does not
// answer, and moves calls to a new generation without losing one. Its goroutine owns all state and
// starts every process; others send it messages, and share the gate: a copy of the status, and the
// life that calls go to. Each life has a goroutine that gets it ready and, once it is ready, one that
// checks its health. README.md follows one request and one restart.
//
// A provider is a go-plugin binary; the host speaks go-plugin's protocol itself
// (docs/decisions/0003). How host and provider authenticate: proto/provider/PROTOCOL.md.
package pluginhost

import (
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
)

// Search is where to look for providers, as main read it from flags and environment. Empty
// fields add no folder. [DefaultDirs] puts the folders in order.
type Search struct {
	ProviderDirs []string // --provider-dir, in the order given
	ProviderPath string   // COUNTERSIGN_PROVIDER_PATH: folders, separated as in PATH
	Executable   string   // path of the agent's own binary
	DataHome     string   // XDG_DATA_HOME; empty: .local/share below Home
	Home         string   // HOME
}

// DefaultDirs returns the folders of s in the order in which they are searched, each
// once: --provider-dir, COUNTERSIGN_PROVIDER_PATH, the folder of the agent's own binary,
// $XDG_DATA_HOME/countersign/providers, lib/countersign/providers beside the folder of
// the agent's own binary, /usr/lib/countersign/providers.
func DefaultDirs(s Search) []string { return verified.DefaultDirs(verified.Search(s)) }

// ProcessGroups are the process groups and users that providers run as. All providers of an
// agent share one value ([Options.Groups]), and the policy of its sockets asks it, so that no
// provider is served a secret. The zero value is ready; it is safe for concurrent use and must
// not be copied.
//
// A separate user keeps any provider out. The process group keeps out a faulty provider, but not
// a malicious one, which can leave its group.
type ProcessGroups struct{ running process.Groups }

// Contains reports whether a provider runs in the process group id. It waits for a start in
// progress, about a millisecond.
func (g *ProcessGroups) Contains(id int) bool { return g.running.Contains(id) }

// ContainsUser reports whether a provider has run or runs as the user.
func (g *ProcessGroups) ContainsUser(uid uint32) bool { return g.running.ContainsUser(uid) }
