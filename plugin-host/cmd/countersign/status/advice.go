package status

import (
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// does says what the engine does after an error, by the action of package ca.
var does = map[ca.Action]string{
	ca.Wait:         "The agent retries automatically, with increasing delays.",
	ca.EndAttempt:   "The agent retries after 1 to 10 minutes, or immediately when the token, the settings or the provider change.",
	ca.RefreshToken: "The agent has reread the token and tried once more. It retries after 1 to 10 minutes, or immediately when the token, the settings or the provider change.",
	ca.Configure:    "The agent sends the provider its settings again and retries.",
	ca.Missing:      "The agent does not use this ability again until the provider changes.",
	ca.Drop:         "The agent retries automatically.",
}

// advice says what the operator can do, by the reason of a [secret.Event]: a reason of
// package ca, or the check of package pki that the reply failed.
var advice = map[string]string{
	ca.Unknown.String():         "If it persists, read the provider's log of that time.",
	ca.Invalid.String():         "Compare the requested names, key type and lifetime with what the CA signs.",
	ca.Denied.String():          "Allow this agent to request this identity at the CA, or configure another identity.",
	ca.Unauthenticated.String(): "Check that the token file or client certificate exists, has not expired, and is issued for this CA.",
	ca.RateLimited.String():     "Raise the quota at the CA, or configure longer lifetimes.",
	ca.Unavailable.String():     "Check that the CA is running and reachable from this machine: address, name, firewall, TLS roots.",
	ca.Aborted.String():         "Nothing, unless it persists: the request collided with another one.",
	ca.Internal.String():        "Read the logs of the CA and of the provider of that time.",
	ca.Deadline.String():        "Check the load of the CA and the network to it.",
	ca.NotConfigured.String():   "If it persists, the provider loses its settings: report it to its author.",
	ca.Unimplemented.String():   "Use a provider with this ability, or remove the setting that needs it.",
	ca.Canceled.String():        "Nothing, unless it persists: the provider canceled a call.",

	"crl":        "Put a current revocation list of each CA of the trust bundle into the files of crl: Envoy, nginx and others refuse all peers of a CA without one.",
	"format":     wrongReply,
	"key":        wrongReply,
	"usage":      "Configure the CA to sign for TLS servers and clients, usually in a profile or template. " + notServed,
	"ca":         "Configure the CA to sign end-entity certificates, usually in a profile or template. " + notServed,
	"names":      "Configure the CA to sign the requested names, or relax identity_check. " + notServed,
	"order":      wrongReply,
	"roots":      "Check the CA's roots and pinned_roots. " + notServed,
	"not-before": "Compare the clocks of this machine and the CA. " + notServed,
	"not-after":  "Set ttl to the lifetime that the CA grants, or set accept_longer_ttl. " + notServed,
	"expired":    "Compare the clocks of this machine and the CA. " + notServed,
	"chain":      "Check that the CA's chain leads to its own roots, and check pinned_roots. " + notServed,
}

const (
	notServed  = "The reply was discarded."
	wrongReply = "The CA or its provider returned an invalid reply: report it to the provider's author. " + notServed
)

// configuration is where errors of the configuration happen.
const configuration = "configuration"

// kind is an error that does not come from a CA.
type kind struct{ reason, does, do string }

// troubles are what a provider's states mean.
var troubles = map[pluginhost.State]kind{
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
		"settings refused", "The agent does not start the provider again until its settings, a file that they name, or its binary change, and keeps serving the certificates it holds.",
		"Fix the provider's settings: the agent notices a changed file. \"countersign provider doctor\" checks them without the agent.",
	}
	turnedDown = kind{
		"reload refused", "The previous provider keeps running.",
		"Fix the provider's settings, pin or binary, and send SIGHUP.",
	}
	untaken = kind{
		"secret refused", "The provider keeps the secret that it took before, also when it is restarted. It gets the changed one again when a file of its settings changes; a refusal by the CA is repeated after 1 to 10 minutes.",
		"Fix the content of the file: the agent notices. SIGHUP offers it again at once.",
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
