// Package pluginhost runs providers: it finds a binary, verifies, starts and supervises
// it. [Open] returns a [ca.Client] that outlives every process of the provider;
// [InProcess] does the same for a provider without a process.
//
// Agents and the program countersign call it. The package itself owns no goroutine and no
// state: each [Provider] has a supervisor, whose goroutine owns the provider's state and
// starts its processes. README.md follows one request and one restart through the rooms
// below internal.
//
// A provider is a go-plugin binary; the host speaks go-plugin's protocol itself
// (docs/decisions/0003). How host and provider authenticate: proto/provider/PROTOCOL.md.
package pluginhost

import (
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
)

// Search is where to look for providers, as main read it from flags and environment:
// ProviderDirs (--provider-dir, in the order given), ProviderPath
// (COUNTERSIGN_PROVIDER_PATH), Executable (the agent's own binary), DataHome
// (XDG_DATA_HOME) and Home (HOME). Empty fields add no folder.
type Search = verified.Search

// DefaultDirs returns the folders of s in the order in which they are searched, each
// once: --provider-dir, COUNTERSIGN_PROVIDER_PATH, the folder of the agent's own binary,
// $XDG_DATA_HOME/countersign/providers, lib/countersign/providers beside the folder of
// the agent's own binary, /usr/lib/countersign/providers.
func DefaultDirs(s Search) []string { return verified.DefaultDirs(s) }

// NotFoundError means that no folder has a provider of that Name and Version; Dirs were
// searched, and Installed are there.
type NotFoundError = verified.NotFoundError

// RefusedError is the Reason why the file at Path is not run.
type RefusedError = verified.RefusedError

// ProcessGroups are the process groups and users that providers run as. One value is
// shared by all providers of an agent (Options.Groups), and its Contains and
// ContainsUser keep them off the agent's sockets. The zero value is ready; it is safe for
// concurrent use.
type ProcessGroups = process.Groups

// Authentication is how host and provider authenticate each other.
type Authentication = process.Authentication

// The ways; proto/provider/PROTOCOL.md has the table of the first three.
const (
	Channel   = process.Channel
	PinnedTLS = process.PinnedTLS
	AutoMTLS  = process.AutoMTLS
	Attached  = process.Attached
	InHost    = process.InHost
)

// Status describes a provider at one moment.
type Status = supervise.Status

// State is a provider's place in its life cycle; README.md draws it.
type State = supervise.State

// The states.
const (
	Resolved    = supervise.Resolved    // found and verified, not started yet
	Starting    = supervise.Starting    // the process is being started
	Configuring = supervise.Configuring // it gets its settings and becomes ready
	Ready       = supervise.Ready       // calls are served
	Draining    = supervise.Draining    // no new calls; calls in flight finish
	Stopped     = supervise.Stopped     // for good
	Backoff     = supervise.Backoff     // it ended; the next start is at Status.NextStart
	CircuitOpen = supervise.CircuitOpen // it failed to start or crashed too often; one probe at Status.NextStart
	Refused     = supervise.Refused     // it rejected its settings; started again by a Reload
)
