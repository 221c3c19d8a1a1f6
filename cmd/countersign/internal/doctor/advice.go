package doctor

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// step is what a step does, and how to fix it if it fails.
type step struct {
	name     string
	run      func(*examination, context.Context) (result string, err error)
	advice   string
	settings bool // an invalid request is fixed in the settings
	reasons  bool // the advice goes by the error's reason, if it has another than Invalid
}

const reportBug = "this is a bug in the provider: report it to its author"

var steps = []step{
	{"find", (*examination).find, "install it as countersign-provider-NAME in one of these folders, or add its folder with --provider-dir", false, false},
	{"permissions", (*examination).permissions, "fix the permissions as described: anyone who can write the file can run code as the agent", false, false},
	{"architecture", (*examination).architecture, "install the build for this machine", false, false},
	{"pin", (*examination).pin, "find out who changed the file; if the change was intended, run \"countersign provider lock\"", false, false},
	{"start", (*examination).start, "run the file by hand: it should print that it is a provider", false, false},
	{"handshake", (*examination).handshake, "have the provider print nothing but the handshake line to standard output; see proto/provider/PROTOCOL.md", false, false},
	{"metadata", (*examination).metadata, reportBug, false, false},
	{"schema", (*examination).schema, reportBug, false, false},
	{"settings", (*examination).validate, "fix the settings; \"countersign provider inspect\" shows which it accepts", true, false},
	{"authority", (*examination).ask, "fix what the message names: the settings do not fit this CA", true, true},
	{"configure", (*examination).configure, "fix what the message names in the settings; \"countersign provider inspect\" shows which it accepts", true, true},
	{"ready", (*examination).ready, "fix what the message names; the provider cannot work with it", false, true},
	{"jwt-svid", (*examination).jwtKeys, "name a provider with the ability jwt-svid in workload_api.jwt_svid.provider, or leave workload_api.jwt_svid out", true, true},
	{"wit-svid", (*examination).witKeys, "name a provider with the ability wit-svid in workload_api.jwt_svid.provider, or leave wit-svid out of experimental", true, true},
	{"sign", (*examination).sign, "request what the CA signs: it refuses these names, this kind of key or this lifetime, whatever the token", false, true},
}

// byReason is how to fix an error of a call to the provider. Invalid is left to the step.
var byReason = map[ca.Reason]string{
	ca.Unknown:         "fix what the message names; if it names nothing, ask the provider's author to give the error a reason",
	ca.Denied:          "have the CA permit this to the caller, or request what it permits; another token with the same rights changes nothing",
	ca.Unauthenticated: "configure a token or client certificate that the CA accepts: check that it has not expired and is meant for this CA",
	ca.RateLimited:     "wait and try again; if it recurs, have the CA's quota raised",
	ca.Unavailable:     "check what the message names: that the server or file exists and can be reached from here (address, port, DNS, firewall, proxy, roots), and that the clock is right",
	ca.Aborted:         "try again: another request conflicted with this one",
	ca.Internal:        "read the provider's log and the CA's own; if the provider is at fault, report it to its author, with its log",
	ca.Deadline:        "check that the CA can be reached from here and is not overloaded: no reply came in time",
	ca.NotConfigured:   reportBug + ": it lost the settings that it had accepted",
	ca.Unimplemented:   "use a provider, or a version of it, that has this ability; \"countersign provider inspect\" shows its abilities",
	ca.Pending:         "have the request approved at the CA; an agent asks again with the same request, \"doctor --sign\" makes a new one",
	ca.Canceled:        "run it again: it was interrupted",
}

// adviceFor returns how to fix a step. No setting and no CA mends a panic, and an author who has
// just built a provider has changed it himself.
func (e *examination) adviceFor(s step, err error) string {
	reason := ca.ReasonFor(err)
	if reason == ca.Internal {
		return byReason[ca.Internal]
	}
	if advice, ok := byReason[reason]; ok && s.reasons {
		return advice
	}
	if s.name == "pin" && (e.target.Pin == "" || e.isPath()) {
		return e.adviceForBuild()
	}
	return s.advice
}

func (e *examination) adviceForBuild() string {
	dev := fmt.Sprintf("to try your own build, start the agent with --dev-provider %s=%s; to hand it over, run \"countersign provider lock\"", e.target.Name, e.shown())
	if e.target.Pin != "" {
		return dev + "; if you did not build it, find out who changed the file"
	}
	return dev
}
