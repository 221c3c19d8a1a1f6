package status

import (
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// does describes what the engine does after an error, by the action of package ca.
var does = map[ca.Action]string{
	ca.Wait:         "The agent retries automatically, with increasing delays.",
	ca.EndAttempt:   "The agent retries after 1 to 10 minutes, or immediately when the token, the settings or the provider change.",
	ca.RefreshToken: "The agent has reread the token and tried once more. It retries after 1 to 10 minutes, or immediately when the token, the settings or the provider change.",
	ca.Configure:    "The agent sends the provider its settings again and retries.",
	ca.Missing:      "The agent does not use this ability again until the provider changes.",
	ca.Drop:         "The agent retries automatically.",
}

// advice is what the operator can do, by the reason of a [secret.Event]: a reason of
// package ca, or the check of package pki that the reply failed.
var advice = map[string]string{
	ca.Unknown.String():         "If it persists, read the provider's log of that time.",
	ca.Invalid.String():         "Compare the requested names, key type and lifetime with what the CA signs.",
	ca.Denied.String():          "Allow this agent to request this identity at the CA, or configure another identity.",
	ca.Unauthenticated.String(): "Check that the token file or client certificate exists, has not expired, and is issued for this CA.",
	ca.RateLimited.String():     "Raise the quota at the CA, or configure longer lifetimes.",
	ca.Unavailable.String():     "Check that the CA is running and reachable from this machine: address, name, firewall.",
	ca.Aborted.String():         "Nothing, unless it persists: the request collided with another one.",
	ca.Internal.String():        "Read the logs of the CA and of the provider of that time.",
	ca.Deadline.String():        "Check the load of the CA and the network to it.",
	ca.NotConfigured.String():   "If it persists, the provider loses its settings: report it to its author.",
	ca.Unimplemented.String():   "Use a provider with this ability, or remove the setting that needs it.",
	ca.Canceled.String():        "Nothing, unless it persists: the provider canceled a call.",
	ca.Pending.String():         "Approve the request at the CA, or have the CA approve such requests by itself.",

	"crl":        "Put a current revocation list of each CA of the trust bundle into the files of crl, or see why its provider has none: Envoy, nginx and others refuse all peers of a CA without one.",
	"revoked":    "See why the CA revoked the certificate. A new key and certificate are requested now; if that fails, peers that read the list refuse this one.",
	"format":     wrongReply,
	"key":        wrongReply,
	"usage":      "Configure the CA to sign for TLS servers and clients, usually in a profile or template. " + notServed,
	"ca":         "Configure the CA to sign end-entity certificates, usually in a profile or template. " + notServed,
	"names":      "Configure the CA to sign the requested names, or relax identity_check. " + notServed,
	"roots":      "Check the CA's roots and pinned_roots. " + notServed,
	"not-before": "Compare the clocks of this machine and the CA. " + notServed,
	"not-after":  "Set ttl to the lifetime that the CA grants, or set accept_longer_ttl. " + notServed,
	"expired":    "Compare the clocks of this machine and the CA. " + notServed,
	"chain":      "Check that the CA's chain leads to its own roots, and check pinned_roots. " + notServed,
}

// adviceByText is advice by an error's text, for failures with a vague reason: the first that
// fits. The texts are those of Go's net and crypto packages, which most providers pass on.
var adviceByText = []struct{ text, advice string }{
	{"certificate has expired", "A certificate has expired, or this machine's clock is wrong. Renew the one that the error names: the CA's own, or that of its server."},
	{"is not yet valid", "A certificate is not valid yet: compare the clocks of this machine and the CA."},
	{"certificate signed by unknown authority", "Set the TLS roots of the CA's server in the provider's settings."},
	{"certificate is valid for", "Use the name in the CA's address that its server's certificate has."},
	{"no such host", "Check the CA's address, and the DNS of this machine."},
	{"connection refused", "Nothing listens at the CA's address: check that the CA is running, and its port."},
	{"no space left on device", "Free space on the disk that the error names."},
}

// spireAdvice is advice on a Workload API, which is not a CA.
var spireAdvice = map[string]string{
	ca.Denied.String():      "Create a registration entry that matches this agent at SPIRE's server: by its user, or its node.",
	ca.Invalid.String():     "Compare spiffe_id, hint and trust_domain of the secret with SPIRE's registration entries.",
	ca.Unavailable.String(): "Check that SPIRE's agent is running and that spire.socket and spire.uids are right.",
	ca.Deadline.String():    "Check that SPIRE's agent is not hanging: its log, and the load of this machine.",
}

const (
	spireOther = "Read the log of SPIRE's agent of that time."
	spireDoes  = "The agent connects again, after a minute at most."
	filesDoes  = "The agent reads the files again when they change, and every 30 s at most. It serves what it holds."
	filesDo    = "Write a key, a chain and roots that belong together and are valid, with an owner and modes that let the agent read them."
)

// adviceOn returns what the agent does after a failed attempt, and what the operator can do.
func adviceOn(e secret.Event) (doing, do string) {
	switch e.Authority {
	case filesecret.Authority:
		return filesDoes, filesDo
	case spiresecret.AuthorityName:
		if do = spireAdvice[e.Reason]; do == "" {
			do = spireOther
		}
		return spireDoes, do
	}
	doing, do = does[e.Failure.Action], advice[e.Reason]
	if about := adviceOnProvider(e); about != "" {
		return doing, about
	}
	if e.Failure.Action != ca.Wait && e.Reason != "chain" {
		return doing, do
	}
	for _, t := range adviceByText {
		if strings.Contains(e.Failure.Text, t.text) {
			return doing, t.advice
		}
	}
	return doing, do
}

// adviceOnProvider is advice where the CA was not asked, because its provider does not run: the
// error is that of package pluginhost, which names the provider.
func adviceOnProvider(e secret.Event) string {
	_, said, ok := strings.Cut(e.Failure.Text, "provider "+strconv.Quote(e.Authority))
	switch {
	case !ok:
		return ""
	case e.Reason == ca.Unavailable.String() && strings.HasPrefix(said, ": "):
		return unwanted.do
	case strings.HasPrefix(said, " failed too often"):
		return endedOften.do
	case strings.HasPrefix(said, " is "+string(pluginhost.Backoff)):
		return ended.do
	case strings.HasPrefix(said, " is "):
		return notReady
	}
	return ""
}

// notReady is advice on a provider that starts, or has no CA to be configured with.
const notReady = "Fix what the error of the provider names: a setting, a file or its CA. The agent notices a changed file, and tries again."

// state is where errors of what survives a restart happen.
const state = "state"

var (
	stateDoes = map[string]string{
		"store":    "The agent tries again. What it serves is not affected.",
		"load":     "The agent ignores the record and requests a new certificate.",
		"refused":  "The agent ignores the record and requests a new certificate.",
		NoStateKey: "The agent keeps no state until it is started again.",
	}
	stateDo = map[string]string{
		"store":    "Check disk, owner and mode of state.dir, or without one of the outputs' folders. After a restart while the CA is away, the agent would have nothing to serve.",
		"load":     "Nothing, unless it persists: the key or the disk may have changed.",
		"refused":  "Nothing: the settings have changed, or the record is old.",
		NoStateKey: "Fix state.key_command, and start the agent again.",
	}
)

const (
	notServed  = "The reply was discarded."
	wrongReply = "The CA or its provider returned an invalid reply: report it to the provider's author. " + notServed
)

// configuration is where errors of the configuration happen.
const configuration = "configuration"

// kind is an error that does not come from a CA.
type kind struct{ reason, does, do string }

// problems are what a provider's states mean.
var problems = map[pluginhost.State]kind{
	pluginhost.Backoff: ended, pluginhost.CircuitOpen: endedOften, pluginhost.Refused: unwanted,
}

var (
	ended = kind{
		"ended", "The agent restarts the provider after a delay, and keeps serving the certificates it holds.",
		"If it happens again, read the provider's last lines in the log, or restore the previous binary and pin and send SIGHUP.",
	}
	endedOften = kind{
		"circuit open", "The agent restarts the provider only occasionally, and keeps serving the certificates it holds.",
		"Fix what the provider's last lines in the log report, or restore the previous binary and pin. SIGHUP restarts it at once.",
	}
	unwanted = kind{
		"settings refused", "The agent starts the provider again when its settings, a file that they name, or its binary change, and every 10 minutes at least, and keeps serving the certificates it holds.",
		"Fix the provider's settings: the agent notices a changed file. \"countersign provider doctor\" checks them without the agent.",
	}
	turnedDown = kind{
		"reload refused", "The previous provider keeps running.",
		"Fix the provider's settings, pin or binary, and send SIGHUP.",
	}
	untaken = kind{
		"secret refused", "The provider keeps the previously accepted secret, even across restarts. It gets the changed one again when a file of its settings changes; a refusal by the CA is repeated after 1 to 10 minutes.",
		"Fix the content of the file: the agent notices. SIGHUP offers it again at once.",
	}
	unwritten = kind{
		"not written", "The existing files stay, and the agent tries again every minute at most.",
		"Check disk, owner and mode of the output's folder. Readers of the files keep an expiring certificate.",
	}
	untold = kind{
		"not told", "The agent runs the command, or sends the signal, again every minute at most.",
		"Fix what the command reports: until then, the program may keep a certificate that expires.",
	}
	mistaken = kind{
		"refused", "The previous configuration stays in effect.",
		"Fix the configuration: the log has every error, and \"countersign config validate\" with the agent's flags and variables repeats them. The agent notices a changed file.",
	}
	nacked = kind{
		"rejected by the client", "The client keeps what it has, and gets the next version.",
		"Read the client's log of that time: it may not support the key type, or the key may not match its chain.",
	}
)

// outputFaults are what the failures of written files mean.
var outputFaults = map[output.EventType]kind{output.WriteFailed: unwritten, output.ReloadFailed: untold}
