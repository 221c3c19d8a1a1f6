package config

import (
	"regexp"
	"strings"
)

// Removed has each setting of the three programs that was removed or renamed, and what to write
// instead. [] is the name or number of an entry of a list. A line stays for as long as
// docs/versioning.md says.
var Removed = map[string]string{
	"files.poll_interval":               "leave it out: files are read at each change, and every 10s",
	"gateway.mode":                      "write socket.mode, which holds for all sockets of the agent",
	"workload_api.mode":                 "write socket.mode, which holds for all sockets of the agent",
	"outputs[].reload.timeout":          "leave it out: a command is killed after 30s",
	"outputs[].reload.pause":            "leave it out: reloads are 1s apart at least",
	"proxy.restart_limit":               "leave it out: the agent ends after 10 restarts in a row, and its service manager takes over",
	"proxy.watch.interval":              "leave it out: the files are read every 1s",
	"proxy.reload.parent_shutdown_time": "leave it out: the old epoch is shut down a third of drain_time after its end",
	"proxy.reload.timeout":              "leave it out: a command is killed after 30s",
	"proxy.locality.interval":           "leave it out: tries are 1s apart",
	"proxy.locality.timeout":            "leave it out: a try ends after 2s",
	"workloads.idle_time":               "leave it out: a certificate is kept for 10m after its last stream",
	"workloads.recycle_time":            "leave it out: a stream that acknowledges nothing is closed after 5m",
	"workloads.token_headers":           "send the token as authorization or istio_sds_credentials_header-bin",
	"workloads.peers[].namespace":       "write spiffe_id: spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT",
	"workloads.peers[].service_account": "write spiffe_id: spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT",

	"providers[].token.command.args":              commandIsList,
	"providers[].token.command.env":               commandEnv,
	"providers[].token.command.raw":               commandRaw,
	"providers[].token.command.timeout":           commandTimeout,
	"providers[].token.gce.account":               gceAccount,
	"providers[].token.sources[].command.args":    commandIsList,
	"providers[].token.sources[].command.env":     commandEnv,
	"providers[].token.sources[].command.raw":     commandRaw,
	"providers[].token.sources[].command.timeout": commandTimeout,
	"providers[].token.sources[].gce.account":     gceAccount,

	"providers[].token.exchange[].actor":                 "write actor_file, the path of a file with the actor token, a JWT",
	"providers[].token.exchange[].actor_token_type":      "leave it out: the token in actor_file is a JWT",
	"providers[].token.exchange[].client.secret_in_body": "leave it out: the secret is sent in the header, as RFC 6749 requires of each server",
	"providers[].token.exchange[].margin":                "leave it out: a token is exchanged again 5m before its expiry, or in the last fifth of its life",
	"providers[].token.exchange[].timeout":               "leave it out: a call ends after 5s",

	// countersign-discovery
	"rotation":                             "leave it out: the certificate is renewed at about half of its life",
	"authenticators[].allow_loopback_http": "write an https URL, or jwks_file",
	"authenticators[].leeway":              "leave it out: clocks may differ by 30s",
	"limits.message":                       "leave it out: a request may have 4Mi",
	"limits.metadata":                      "leave it out: a node's metadata may have 64Ki",
	"limits.streams_of_connection":         "leave it out: a connection may have 100 streams",
	"remotes.limits.objects":               "write remotes.limits.bytes, in which each object counts 1Ki more than its size",
	"remotes.limits.response":              "leave it out: one object may have 8Mi",

	// countersign-ra
	"authorities[].timeout":        "leave it out: a call ends after 30s",
	"authorities[].limits.queue":   "leave it out: 10000 requests may wait",
	"authorities[].limits.reserve": "leave it out: each fourth turn goes to renewals",
	"leader_election.lease":        "leave it out: the Lease is countersign-ra: run a second registration authority in a namespace of its own",
}

const (
	commandIsList  = "write the program and its arguments as a list: command: [/usr/bin/print-token, --now]"
	commandEnv     = "write a script that sets the variables, and name it as the command"
	commandRaw     = "leave it out: output that begins with { is an ExecCredential, all else is the token itself"
	commandTimeout = "leave it out: a command is killed after 30s"
	gceAccount     = "leave it out: the token is that of the machine's default service account"
)

// instead returns what to write in place of a setting that was removed; empty: there was none.
func instead(path string) string {
	for pattern, advice := range Removed {
		if pattern == path || strings.Contains(pattern, "[]") && matches(pattern, path) {
			return advice
		}
	}
	return ""
}

// matches reports whether path is one of a pattern's. An entry's name may have dots.
func matches(pattern, path string) bool {
	exact := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\[\]`, `\..+`)
	return regexp.MustCompile("^" + exact + "$").MatchString(path)
}
