// Package config turns a YAML file, the environment and flags into the validated
// configuration of the agent. Package settings calls [Read], which lays flags over the
// environment over the file over the defaults, and then [Config.Complete], which derives the
// remaining settings and reports everything that is wrong. A Config belongs to one goroutine
// until it is complete; afterwards it is only read.
package config

import (
	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// Config is the agent's configuration, as its file spells it. It is usable after
// [Config.Complete].
type Config struct {
	Workload
	Plugins
	// Secrets are served in addition to "default" and "ROOTCA", which always exist; an
	// entry with one of these names sets its details. Only beside entries with match, an agent
	// may have neither.
	Secrets   []Secret  `json:"secrets"`
	Workloads Workloads `json:"workloads"`
	Files     Files     `json:"files"`
	Spire     Spire     `json:"spire"`
	// CRL adds revocation lists to trust bundles. Default: none, and revocation is not checked.
	CRL      []CRL    `json:"crl"`
	Outputs  []Output `json:"outputs"`
	Rotation Rotation `json:"rotation"`
	State    State    `json:"state"`
	Store    Store    `json:"store"`
	Socket   Socket   `json:"socket"`
	// WorkloadAPI is off without a socket.
	WorkloadAPI WorkloadAPI `json:"workload_api"`
	// Broker is off without a socket.
	Broker Broker `json:"broker"`
	// BundleEndpoints publish the bundles of foreign trust domains. Default: none.
	BundleEndpoints []BundleEndpoint `json:"bundle_endpoints"`
	// PublishBundle is off without an address.
	PublishBundle PublishBundle `json:"publish_bundle"`
	Gateway       Gateway       `json:"gateway"`
	Status        Status        `json:"status"`
	Proxy         Proxy         `json:"proxy"`
	Log           Log           `json:"log"`
	// Experimental names features that follow drafts and change or go without notice: wit-svid (the
	// Workload API's WIT-SVIDs, from workload_api.jwt_svid.provider) and wit-bundle (their keys in
	// publish_bundle). Default: none.
	Experimental []string `json:"experimental"`
	// DrainTimeout is how long streams may take to end after SIGTERM. Default: 5s.
	DrainTimeout Duration `json:"drain_timeout"`

	origins map[string]string     // by path: the variable or flag that set it
	public  map[string]string     // the same for what Istio's variables say, which is known to be public
	written map[string]bool       // by path: whether the file sets it
	lines   func() map[string]int // by path: the line in the file
	file    string                // its name
	choice  Choice
	foreign *Foreign       // the program that owns the socket; nil: the agent
	places  map[string]int // in Secrets, by name, without rules; nil before they are complete
	absent  []string       // of "default" and "ROOTCA": served by nothing

	warnings []string

	// lookupEnv finds a variable of the program's environment; nil: unknown.
	lookupEnv func(name string) (value string, ok bool)
}

// Workload is the identity of "default" and the defaults of every secret.
type Workload struct {
	// TrustDomain, Namespace and ServiceAccount make up the SPIFFE ID of "default",
	// spiffe://<trust domain>/ns/<namespace>/sa/<service account>, unless its entry names
	// another identity. Default: cluster.local, none, none.
	TrustDomain    string `json:"trust_domain"`
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"service_account"`
	// KeyType is ecdsa-p256, ecdsa-p384, rsa-2048, rsa-3072, rsa-4096, ed25519, ml-dsa-44,
	// ml-dsa-65 or ml-dsa-87. Default: ecdsa-p256.
	KeyType string `json:"key_type"`
	// TTL is the certificate lifetime to request. Default: 24h.
	TTL Duration `json:"ttl"`
}

// Plugins are the providers and where to find their binaries.
type Plugins struct {
	// Providers are the certificate authorities. Default: the one that CA_PROVIDER and
	// CA_ADDR choose, else istiod.
	Providers []Provider `json:"providers"`
	// DefaultProvider is for secrets that name no provider. Default: the only provider.
	DefaultProvider string `json:"default_provider"`
	// ProviderDirs are searched first for binaries. Default: none.
	ProviderDirs []string `json:"provider_dirs"`
	// RuntimeDir is where the providers' private folders are created. Default:
	// $XDG_RUNTIME_DIR, else the temporary folder.
	RuntimeDir string `json:"runtime_dir"`
	// Lock is the lock file, written by "countersign provider lock". It pins providers
	// whose entries have no sha256. Default: countersign.lock beside this file, if it
	// exists.
	Lock string `json:"lock"`
	// Dev allows providers without a pinned SHA-256. Default: false.
	Dev bool `json:"dev"`
}

// Provider is one certificate authority: a provider binary with settings.
type Provider struct {
	pluginhost.Entry
	// Limits bound the resources of its process. Default: none.
	Limits Limits `json:"limits"`
	// Token is the token that is sent with each request. Default: Istio's token file for
	// the provider citadel, else none.
	Token Token `json:"token"`
	Trust

	// Missing means that it is not installed, so that its missing pin is no second error.
	Missing bool          `json:"-"`
	locked  lock.Provider // the build that a lock file pins; zero: none
}

// Limits bound the resources of a provider's process. Default: none.
type Limits struct {
	Memory      Size    `json:"memory"`      // such as 256Mi
	Descriptors uint32  `json:"descriptors"` // open files
	Processes   uint32  `json:"processes"`   // and threads
	CPU         float64 `json:"cpu"`         // CPUs; 0.5 is half of one
}

// Trust limits what is accepted from a provider.
type Trust struct {
	// IdentityCheck selects the names that a certificate may have: exact, trust-domain or
	// any. A common name counts as one. Default: what the provider states, else exact.
	IdentityCheck string `json:"identity_check"`
	// AcceptLongerTTL accepts certificates that live longer than requested. Default: true if
	// the provider states that its CA chooses the lifetime, else false.
	AcceptLongerTTL *bool `json:"accept_longer_ttl"`
	// PinnedRoots is a PEM file with the only roots that are accepted. Default: any.
	PinnedRoots string `json:"pinned_roots"`
	// RootOverlap is how long a root is still served after the CA has dropped it; 0s drops
	// it at once. Default: as long as a certificate needs it.
	RootOverlap *Duration `json:"root_overlap"`
}

// Secret is one key pair or trust bundle, or with match a rule for names that get a key pair when a
// client asks for them.
type Secret struct {
	// Name is what clients ask for. A rule has it in logs and metrics alone. Default of a rule: its
	// first pattern, or its file.
	Name string `json:"name"`
	// Match makes this a rule for the DNS names that clients ask for: patterns such as
	// "a.example.org", "*.example.org" (one label more), "**.example.org" (one or more) and "**"
	// (any name). The most specific pattern wins; a secret with a name of its own comes first. One
	// pattern may stand without a list.
	Match Patterns `json:"match"`
	// MatchFile has more patterns, one in each line. The agent reads it again when it changes.
	MatchFile string `json:"match_file"`
	// Kind is key-pair or trust-bundle. Default: key-pair; trust-bundle for ROOTCA.
	Kind        string   `json:"kind"`
	SPIFFEID    string   `json:"spiffe_id"`
	DNSNames    []string `json:"dns_names"`
	IPAddresses []string `json:"ip_addresses"`
	// KeyType and TTL override the workload's.
	KeyType string   `json:"key_type"`
	TTL     Duration `json:"ttl"`
	// Provider signs it. Default: default_provider, or the only provider; for ROOTCA the
	// one that signs "default".
	Provider string `json:"provider"`
	// Providers replaces Provider. A trust bundle combines the roots of all of them. A key
	// pair is signed by the first; the next one is tried when those before it have been
	// unavailable for FallbackAfter. Where spire.socket is set, "spire" is a provider, too.
	// Default of ROOTCA: those of "default".
	Providers []string `json:"providers"`
	// FallbackAfter is how long a provider must be unavailable before the next one is
	// tried. Default: 30s.
	FallbackAfter Duration `json:"fallback_after"`
	// OnDemand bounds what the names of a rule cost. It needs match or match_file.
	OnDemand OnDemand `json:"on_demand"`
}

// Rotation configures when certificates are renewed.
type Rotation struct {
	// Ratio is the fraction of the lifetime that is left at renewal. Default: 0.5.
	Ratio float64 `json:"ratio"`
	// Jitter is the largest random deviation from the ratio, up or down; 0 is none.
	// Default: 0.1.
	Jitter float64 `json:"jitter"`
}

// State keeps secrets across restarts, encrypted, so that an agent that starts while its CA
// is unavailable can serve what is still valid. Default: nothing is kept.
type State struct {
	// Dir is a folder for this agent alone; it is created (0700) if it is missing.
	Dir string `json:"dir"`
	// KeyFile holds the key, 32 random bytes or more, as "openssl rand -hex 32" prints
	// them. It must not be in Dir, nor be readable by others; root's may be readable by a group.
	KeyFile string `json:"key_file"`
	// KeyCommand replaces KeyFile: the absolute path of a program, with its arguments, that
	// prints the key within 30s. It is run without a shell.
	KeyCommand []string `json:"key_command"`
}

// Socket is where SDS is served.
type Socket struct {
	// Enabled is false in an agent that serves no SDS of its own: only a gateway's socket, the
	// Workload API, or files of outputs. Default: true.
	Enabled bool `json:"enabled"`
	// Path is a unix socket, as each that this file names: a path, or unix:///path. Default:
	// ./var/run/secrets/workload-spiffe-uds/socket.
	Path string `json:"path"`
	// Mode is octal, in quotes. Default: "0600".
	Mode FileMode `json:"mode"`
	// AllowUIDs and AllowGIDs may connect, in addition to the agent's user and root.
	AllowUIDs []uint32 `json:"allow_uids"`
	AllowGIDs []uint32 `json:"allow_gids"`
	// SPIFFEValidator is auto, always or never: which trust bundles Envoy verifies peers with by
	// its SPIFFE certificate validator. auto: those that it asks for by trust domain ID or as
	// ALL; always: ROOTCA, too, as SPIRE's agent has it; never: all bundles are plain. One with
	// revocation lists is always plain. Default: auto.
	SPIFFEValidator string `json:"spiffe_validator"`
	// ForeignUIDs are users who may own another SDS server at Path. If it answers at
	// startup, the agent leaves Path, "default" and "ROOTCA" to it. The agent's user and
	// root are always allowed.
	ForeignUIDs []uint32 `json:"foreign_uids"`
	// FilesPath is where the agent then serves everything else. Default:
	// ./var/run/secrets/credential-uds/files-socket.
	FilesPath string `json:"files_path"`
}

// Status is the page for operators, and health and metrics for those outside of this
// machine.
type Status struct {
	// Address is a loopback host:port or unix:PATH. Default: off.
	Address string `json:"address"`
	// Probes is host:port or :port, for /healthz and /readyz alone. Default: off.
	Probes string `json:"probes"`
	// Metrics is host:port or :port, for /metrics alone. Default: off.
	Metrics string `json:"metrics"`
	// MetricsSecret is the key pair that metrics are served with over TLS, such as default.
	// Default: none, plain HTTP.
	MetricsSecret string `json:"metrics_secret"`
	// MetricsTokenFile has the bearer token that clients of metrics must present. It needs
	// metrics_secret. Default: none.
	MetricsTokenFile string `json:"metrics_token_file"`
	// MetricsClientRoots is the trust bundle that a client of metrics must have a certificate
	// of, such as ROOTCA. It needs metrics_secret. Default: none, no certificate is asked for.
	MetricsClientRoots string `json:"metrics_client_roots"`
	// MetricsClientNames are the SPIFFE IDs and DNS names of those clients. Default: all that
	// metrics_client_roots verifies.
	MetricsClientNames []string `json:"metrics_client_names"`
	// MetricsFrom are up to 4 other programs of this machine whose metrics follow the
	// agent's own: http:// URLs with a loopback host, or unix:PATH, Envoy's admin socket.
	// Default: none.
	MetricsFrom []string `json:"metrics_from"`
}

// Log goes to standard error.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn or error. Default: info.
	Format string `json:"format"` // text or json. Default: text.
}

// defaults returns the configuration without any setting.
func defaults() Config {
	return Config{
		Workload:     Workload{TrustDomain: "cluster.local", KeyType: "ecdsa-p256", TTL: hours(24)},
		Workloads:    defaultWorkloads(),
		Files:        defaultFiles(),
		Rotation:     Rotation{Ratio: 0.5, Jitter: 0.1},
		Socket:       Socket{Enabled: true, Path: istiocompat.Socket, FilesPath: istiocompat.FilesSocket, Mode: 0o600, SPIFFEValidator: "auto"},
		Gateway:      Gateway{Socket: istiocompat.GatewaySocket},
		Log:          Log{Level: "info", Format: "text"},
		Proxy:        defaultProxy(),
		DrainTimeout: seconds(5),
		origins:      map[string]string{},
		public:       map[string]string{},
	}
}
