package status

import "github.com/countersign-dev/countersign/sdk/ca"

// does says what the engine does after an error, by the error table of package ca.
var does = map[ca.Action]string{
	ca.Wait:         "The agent tries again by itself, with growing pauses.",
	ca.EndAttempt:   "The agent tries again after a minute, later after up to ten, and at once when token, settings or provider change.",
	ca.RefreshToken: "The agent has read the token again, once. It tries again after a minute, later after up to ten, and at once when token, settings or provider change.",
	ca.Configure:    "The agent sends the provider its settings and tries again.",
	ca.Missing:      "The agent does not ask for it again before the provider changes.",
	ca.Drop:         "The agent tries again by itself.",
}

// advice says what the operator may do, by the reason of an [secret.Event]: one of
// package ca, or the check of package pki that a reply failed.
var advice = map[string]string{
	ca.Unknown.String():         "If it lasts, read what the provider logged at that time.",
	ca.Invalid.String():         "Compare what the secret asks for (names, key type, lifetime) with what the authority signs.",
	ca.Denied.String():          "Have the authority allow this identity to this agent, or ask for another identity.",
	ca.Unauthenticated.String(): "Check the token file or client certificate: that it is there, has not expired, and is meant for this authority.",
	ca.RateLimited.String():     "Ask the authority for a larger quota, or for longer certificates.",
	ca.Unavailable.String():     "Check that the authority is up and that this machine reaches it: address, name, firewall, its TLS roots.",
	ca.Aborted.String():         "Nothing, unless it lasts: another request was in the way.",
	ca.Internal.String():        "Read the authority's log, and what the provider logged at that time.",
	ca.Deadline.String():        "Check how busy the authority is, and the network on the way to it.",
	ca.NotConfigured.String():   "If it lasts, the provider forgets its settings: tell its author.",
	ca.Unimplemented.String():   "Use a provider that has the ability, or leave out the setting that needs it.",
	ca.Canceled.String():        "Nothing, unless it lasts: the provider gave a call up.",

	"format":     wrongReply,
	"key":        wrongReply,
	"usage":      "Have the authority sign for TLS servers and clients (a profile or template, mostly). " + notServed,
	"ca":         "Have the authority sign an end-entity certificate (a profile or template, mostly). " + notServed,
	"names":      "Have the authority sign the names that were asked for, or let it choose: identity_check. " + notServed,
	"order":      wrongReply,
	"roots":      "Check what roots the authority has, and pinned_roots. " + notServed,
	"not-before": "Compare this machine's clock with the authority's. " + notServed,
	"not-after":  "Ask for the lifetime that the authority gives (ttl), or set accept_longer_ttl. " + notServed,
	"expired":    "Compare this machine's clock with the authority's. " + notServed,
	"chain":      "Check that the authority signs under the roots that it names, and pinned_roots. " + notServed,
}

const (
	notServed  = "Nothing of that reply was served."
	wrongReply = "The authority or its provider answers wrongly: tell its author. " + notServed
)

// configuration is where an error is that is of the configuration.
const configuration = "configuration"

// kind is an error that is not of an authority.
type kind struct{ reason, does, do string }

var (
	ended = kind{
		"ended", "The agent starts the provider again after a pause; what is held is served on.",
		"If it comes again, read the provider's last lines in the log, or put the binary (and pin) of before back and send SIGHUP.",
	}
	endedOften = kind{
		"circuit open", "The agent starts the provider only now and then; what is held is served on.",
		"Mend what its last lines in the log say, or put the binary (and pin) of before back; SIGHUP starts it at once.",
	}
	turnedDown = kind{
		"reload refused", "What ran before runs on.",
		"Mend the provider's settings, pin or binary, and send SIGHUP.",
	}
	mistaken = kind{
		"refused", "What ran before runs on.",
		"Fix the configuration: the log has every error, and \"countersign config validate\" with the agent's flags and variables repeats them. The agent notices a changed file.",
	}
	nacked = kind{
		"refused by the client", "The client keeps what it has; it gets the next version when there is one.",
		"Read the client's own log at that time: it may not know the kind of key, or not find the key to the chain.",
	}
)
