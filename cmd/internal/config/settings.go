package config

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/suggest"
	"github.com/countersign-dev/countersign/internal/text"
)

// Setting is one that has a flag and a variable of its own.
type Setting struct {
	Path  string // in the file
	Flag  string // without the dashes
	Type  string // of the flag's value, as help shows it
	Usage string
}

// Variable returns the setting's environment variable.
func (s Setting) Variable() string { return variable(s.Flag) }

// IsSwitch reports whether the flag alone means true.
func (s Setting) IsSwitch() bool { return s.Type == "bool" }

// Words returns the values of a setting that takes one of a few; nil for any other.
func (s Setting) Words() []string { return words[s.Path] }

var words = map[string][]string{
	"key_type":   {"ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-3072", "rsa-4096", "ed25519", "ml-dsa-44", "ml-dsa-65", "ml-dsa-87"},
	"log.level":  {"debug", "info", "warn", "error"},
	"log.format": {"text", "json"},
}

func variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const prefix = "COUNTERSIGN_"

// credentialVariable names a SPIFFE credential folder (SPIFFE Filesystem Delivery, section 3.1).
const credentialVariable = "SPIFFE_CREDENTIAL_FOLDER"

// ConfigFlag names the file; it is a flag and a variable, and in no file.
const ConfigFlag = "config"

// Settings returns those that have a flag and a variable. All others are set in
// the file, or by --set with their path.
func Settings() []Setting {
	return []Setting{
		{"trust_domain", "trust-domain", "domain", "trust domain of the workload's SPIFFE ID"},
		{"namespace", "namespace", "name", "namespace of the workload's SPIFFE ID"},
		{"service_account", "service-account", "name", "service account of the workload's SPIFFE ID"},
		{"key_type", "key-type", "type", "key type: ecdsa-p256, ecdsa-p384, rsa-2048, rsa-3072, rsa-4096, ed25519, ml-dsa-44, ml-dsa-65 or ml-dsa-87"},
		{"ttl", "ttl", "duration", "certificate lifetime to request"},
		{"default_provider", "default-provider", "name", "provider for secrets that do not name one"},
		{"provider_dirs", "provider-dir", "folders", "folders to search first for providers, comma-separated"},
		{"runtime_dir", "runtime-dir", "folder", "folder for the providers' private sockets"},
		{"lock", "lock", "file", "lock file that pins providers (default: countersign.lock beside the configuration)"},
		{"dev", "dev", "bool", "allow providers without a pinned SHA-256"},
		{"rotation.ratio", "rotation-ratio", "number", "renew when this fraction of the lifetime is left"},
		{"rotation.jitter", "rotation-jitter", "number", "random deviation from the rotation ratio"},
		{"socket.enabled", "socket-enabled", "bool", "serve SDS on --socket; false serves only the gateway's socket, the Workload API and outputs"},
		{"socket.path", "socket", "path", "unix socket for SDS"},
		{"socket.mode", "socket-mode", "mode", "permissions of the socket, in octal"},
		{"socket.allow_uids", "socket-allow-uids", "uids", "user IDs that may connect, comma-separated"},
		{"socket.allow_gids", "socket-allow-gids", "gids", "group IDs that may connect, comma-separated"},
		{"workload_api.socket", "workload-api-socket", "path", "unix socket for the SPIFFE Workload API"},
		{"broker.node", "broker-node", "name", "node whose pods brokers may refer to, or * for those of all nodes"},
		{"gateway.enabled", "gateway-enabled", "bool", "serve the secrets of a discovery service to a gateway's Envoys"},
		{"gateway.socket", "gateway-socket", "path", "unix socket for the gateway's Envoys"},
		{"gateway.address", "gateway-address", "host:port", "host:port of the discovery service (default: istiod)"},
		{"status.address", "status-address", "address", "loopback host:port or unix:PATH for health checks, metrics and the status page"},
		{"log.level", "log-level", "level", "log level: debug, info, warn or error"},
		{"log.format", "log-format", "format", "log format: text or json"},
		{"drain_timeout", "drain-timeout", "duration", "how long streams may take to end after SIGTERM"},
	}
}

// others are variables of this name that are not the agent's settings: the search
// path, and what a host passes to a provider (PROTOCOL.md), which an agent that was
// itself started by a host inherits.
var others = []string{
	"COUNTERSIGN_PROVIDER_PATH", "COUNTERSIGN_PROVIDER", "COUNTERSIGN_BINARY", "COUNTERSIGN_LIFELINE_FD", "COUNTERSIGN_CHANNEL_FD",
}

// fromEnvironment reads COUNTERSIGN_<FLAG>; a name that is close to one of them,
// or to none, is an error.
func fromEnvironment(environ []string) ([]Assignment, error) {
	paths := map[string]string{}
	names := []string{variable(ConfigFlag)}
	for _, s := range Settings() {
		paths[s.Variable()] = s.Path
		names = append(names, s.Variable())
	}
	var found []Assignment
	var wrong problems
	for name, value := range variables(environ) {
		if name == credentialVariable && value != "" {
			found = append(found, Assignment{"files.credential_folder", value, name})
		}
		path, ok := paths[name]
		switch {
		case ok && value != "":
			found = append(found, Assignment{path, value, name})
		case ok, !strings.HasPrefix(name, prefix), name == variable(ConfigFlag),
			slices.Contains(others, name), isLink(name, value):
		default:
			wrong.add(fmt.Errorf("unknown variable %s: %s", text.Clean(name), suggestVariable(name, names)))
		}
	}
	return found, wrong.err()
}

func suggestVariable(name string, known []string) string {
	ends := make([]string, len(known))
	for i, name := range known {
		ends[i] = strings.TrimPrefix(name, prefix) // what all have in common makes all near
	}
	if meant := suggest.Word(strings.TrimPrefix(name, prefix), ends); meant != "" {
		return fmt.Sprintf("did you mean %s%s?", prefix, meant)
	}
	return "unset it; \"countersign agent --help\" shows the flags, and each has a variable of its name"
}

// variables iterates over an environment in a fixed order, the last of a repeated
// name first and alone, as a shell sees it.
func variables(environ []string) iter.Seq2[string, string] {
	last := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			last[name] = value
		}
	}
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(last)) {
			if !yield(name, last[name]) {
				return
			}
		}
	}
}
