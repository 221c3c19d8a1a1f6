// Package config turns a YAML file, the environment and flags into the one
// checked configuration of the agent. Call [Read] for the layers (flag over
// environment over file over default) and then [Config.Complete], which fills in
// what follows from the rest and tells everything that is wrong.
package config

import "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/istiocompat"

// Config is the agent's configuration as its file spells it. Only [Config.Complete]
// makes it fit for use.
type Config struct {
	Workload
	Plugins
	// Secrets are served besides "default" and "ROOTCA", which are there by
	// themselves; an entry of one of these names sets its details.
	Secrets   []Secret  `json:"secrets"`
	Workloads Workloads `json:"workloads"`
	Files     Files     `json:"files"`
	Outputs   []Output  `json:"outputs"`
	Rotation  Rotation  `json:"rotation"`
	State     State     `json:"state"`
	Socket    Socket    `json:"socket"`
	// WorkloadAPI is off where it has no socket.
	WorkloadAPI WorkloadAPI `json:"workload_api"`
	Gateway     Gateway     `json:"gateway"`
	Status      Status      `json:"status"`
	Proxy       Proxy       `json:"proxy"`
	Log         Log         `json:"log"`
	// DrainTimeout is how long streams get to end after SIGTERM. Default: 5s.
	DrainTimeout Duration `json:"drain_timeout"`

	origins map[string]string     // by path: the variable or flag that set it
	written map[string]bool       // by path: what the file sets
	lines   func() map[string]int // by path: where
	file    string                // its name
	choice  Choice
	foreign *Foreign         // nil: the socket is the agent's
	builds  map[string]Build // by the binary's name: what is not to be found in an entry
}

// Workload says what "default" is issued for, and what every secret starts from.
type Workload struct {
	// TrustDomain, Namespace and ServiceAccount make the SPIFFE ID
	// spiffe://<trust domain>/ns/<namespace>/sa/<service account> of "default",
	// where its entry names nothing else. Default: cluster.local, none, none.
	TrustDomain    string `json:"trust_domain"`
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"service_account"`
	// KeyType is the kind of key. Default: ecdsa-p256.
	KeyType string `json:"key_type"`
	// TTL is the lifetime asked for. Default: 24h.
	TTL Duration `json:"ttl"`
}

// Plugins says which providers there are and where their binaries are found.
type Plugins struct {
	// Providers are the authorities to ask. Default: what CA_PROVIDER and CA_ADDR
	// choose, else istiod.
	Providers []Provider `json:"providers"`
	// DefaultProvider answers for secrets that name none. Default: the only one.
	DefaultProvider string `json:"default_provider"`
	// ProviderDirs are searched before all others. Default: none.
	ProviderDirs []string `json:"provider_dirs"`
	// RuntimeDir takes the providers' private folders. Default: $XDG_RUNTIME_DIR,
	// else the temp folder.
	RuntimeDir string `json:"runtime_dir"`
	// Lock is the lock file, which pins providers whose entries name no sha256; it is
	// made by "countersign provider lock". Default: countersign.lock beside this file,
	// where there is one.
	Lock string `json:"lock"`
	// Dev lets providers run without a pinned SHA-256. Default: false.
	Dev bool `json:"dev"`
}

// Provider is one certificate authority: a provider binary with settings.
type Provider struct {
	// Name is what secrets call it: 1 to 63 of a-z, 0-9 and -. Required.
	Name string `json:"name"`
	// Provider is the binary's name. Default: Name.
	Provider string `json:"provider"`
	// SHA256 is the only binary that may run, in hex. Default: the lock file's, else
	// none, refused without dev.
	SHA256 string `json:"sha256"`
	// Settings are the provider's own; its documentation has them. Default: none.
	Settings map[string]any `json:"settings"`
	// Env are variables of its process, which has few of the agent's. Default: none.
	Env map[string]string `json:"env"`
	// User is whom the process runs as, a name or a number; it needs an agent that is
	// root. Default: the agent's own.
	User   string `json:"user"`
	Limits Limits `json:"limits"`
	// Token is the token that is sent with each request. Default: Istio's token file for
	// the provider citadel, else none.
	Token Token `json:"token"`
	Trust
}

// Limits bound what a provider may take of the machine. Default: none.
type Limits struct {
	Memory      Size    `json:"memory"`      // such as 256Mi
	Descriptors uint32  `json:"descriptors"` // open files
	Processes   uint32  `json:"processes"`   // and threads
	CPU         float64 `json:"cpu"`         // processors; 0.5 is half of one
}

// Trust bounds what is taken from a provider.
type Trust struct {
	// IdentityCheck is exact, trust-domain or any. Default: exact.
	IdentityCheck string `json:"identity_check"`
	// AcceptLongerTTL takes certificates that live longer than asked. Default: false.
	AcceptLongerTTL bool `json:"accept_longer_ttl"`
	// PinnedRoots is a PEM file with the only roots that are taken. Default: any.
	PinnedRoots string `json:"pinned_roots"`
	// RootOverlap is how long a root stays that the authority dropped; 0s is not at
	// all. Default: as long as a certificate that needs it.
	RootOverlap *Duration `json:"root_overlap"`
}

// Secret is one key pair or trust bundle.
type Secret struct {
	Name string `json:"name"`
	// Kind is key-pair or trust-bundle. Default: key-pair; trust-bundle for ROOTCA.
	Kind        string   `json:"kind"`
	SPIFFEID    string   `json:"spiffe_id"`
	DNSNames    []string `json:"dns_names"`
	IPAddresses []string `json:"ip_addresses"`
	// KeyType and TTL are the workload's where they are not set.
	KeyType string   `json:"key_type"`
	TTL     Duration `json:"ttl"`
	// Provider is whom to ask. Default: default_provider, or the only one; for
	// ROOTCA the one that signs "default".
	Provider string `json:"provider"`
	// Providers are, instead of Provider, those whose roots a trust bundle unites, or
	// those that may sign a key pair: the next one is asked when those before it have
	// been away for FallbackAfter. Default of ROOTCA: those of "default".
	Providers []string `json:"providers"`
	// FallbackAfter is how long a provider must have been asked in vain before the
	// next one is. Default: 30s.
	FallbackAfter Duration `json:"fallback_after"`
}

// Rotation says when a successor is made.
type Rotation struct {
	// Ratio is the part of the lifetime that is left then. Default: 0.5.
	Ratio float64 `json:"ratio"`
	// Jitter is how far the ratio is drawn to either side; 0 is not at all.
	// Default: 0.01; 0.1 with workloads.
	Jitter float64 `json:"jitter"`
}

// State keeps secrets over a restart, encrypted, so that an agent that starts while its
// CA is away serves at once what is still valid. Default: nothing is kept.
type State struct {
	// Dir is a folder for this agent alone; it is made (0700) where it is missing.
	Dir string `json:"dir"`
	// KeyFile holds the key, 32 random bytes or more, as "openssl rand -hex 32" writes
	// them; no one else may read it. It is not in Dir.
	KeyFile string `json:"key_file"`
	// KeyCommand is, instead of KeyFile, a program, by its absolute path, and its
	// arguments, without a shell; it prints the key within 30s.
	KeyCommand []string `json:"key_command"`
}

// Socket is where SDS is served.
type Socket struct {
	// Enabled is false in an agent that serves a gateway's socket alone. Default: true.
	Enabled bool `json:"enabled"`
	// Path is a unix socket. Default: ./var/run/secrets/workload-spiffe-uds/socket.
	Path string `json:"path"`
	// Mode is octal, in quotes. Default: "0600".
	Mode FileMode `json:"mode"`
	// AllowUIDs and AllowGIDs may connect besides the agent's own user and root.
	AllowUIDs []uint32 `json:"allow_uids"`
	AllowGIDs []uint32 `json:"allow_gids"`
	// ForeignUIDs are users whose SDS server at Path is left alone when it answers at the
	// start; "default" and "ROOTCA" are then its to serve. The agent's own user and root
	// always are.
	ForeignUIDs []uint32 `json:"foreign_uids"`
	// FilesPath is where the agent serves all else then. Default:
	// ./var/run/secrets/credential-uds/files-socket.
	FilesPath string `json:"files_path"`
}

// Status is the page for operators.
type Status struct {
	// Address is a loopback host:port or unix:PATH. Default: off.
	Address string `json:"address"`
}

// Log is what is written to standard error.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn or error. Default: info.
	Format string `json:"format"` // text or json. Default: text.
}

// defaults returns the configuration that nobody has set anything in.
func defaults() Config {
	return Config{
		Workload:     Workload{TrustDomain: "cluster.local", KeyType: "ecdsa-p256", TTL: hours(24)},
		Workloads:    defaultWorkloads(),
		Files:        defaultFiles(),
		Rotation:     Rotation{Ratio: 0.5, Jitter: 0.01},
		Socket:       Socket{Enabled: true, Path: istiocompat.Socket, FilesPath: istiocompat.FilesSocket, Mode: 0o600},
		WorkloadAPI:  WorkloadAPI{Mode: 0o600},
		Gateway:      Gateway{Socket: istiocompat.GatewaySocket, Mode: 0o600},
		Log:          Log{Level: "info", Format: "text"},
		Proxy:        defaultProxy(),
		DrainTimeout: seconds(5),
		origins:      map[string]string{},
	}
}
