// Package config is the configuration of countersign-discovery: a YAML file, read as
// strictly as the agent's and with the same words for providers. Call [Read], which tells
// everything that is wrong, each with its name, its value and what is allowed.
package config

import (
	"time"

	agent "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

// Config is the configuration as its file spells it.
type Config struct {
	Listen Listen `json:"listen"`
	// Certificate is the server's own. Required.
	Certificate Certificate `json:"certificate"`
	agent.Plugins
	Rotation agent.Rotation `json:"rotation"`
	// TrustDomains are those whose certificates are known. Required for the
	// authenticator certificate.
	TrustDomains []TrustDomain `json:"trust_domains"`
	// Authenticators are asked in this order who a caller is; the first that knows it
	// wins. Default: certificate, where there are trust_domains, and kubernetes.
	Authenticators []Authenticator `json:"authenticators"`
	// Audiences are ours in Kubernetes' tokens. Default: istio-ca.
	Audiences []string `json:"audiences"`
	Cluster   Cluster  `json:"cluster"`
	Remotes   Remotes  `json:"remotes"`
	Secrets   Secrets  `json:"secrets"`
	Access    Access   `json:"access"`
	// Resources are listeners, routes, clusters, endpoints and names in a folder.
	Resources Resources `json:"resources"`
	Limits    Limits    `json:"limits"`
	Times     Times     `json:"times"`
	Status    Status    `json:"status"`
	Log       agent.Log `json:"log"`

	file   agent.File
	signed *agent.Config // nil: the certificate is in files
}

// Listen is where ADS and SDS are served.
type Listen struct {
	// TLS is host:port; the host may be left out. Default: :15012.
	TLS string `json:"tls"`
	// Plaintext is host:port without TLS, where only tokens can tell callers apart.
	// Default: off.
	Plaintext string `json:"plaintext"`
	// AllowTokenOverPlaintext takes tokens there, which whoever listens on the way can
	// read and use. Default: false.
	AllowTokenOverPlaintext bool `json:"allow_token_over_plaintext"`
}

// Certificate is the server's own: signed by a provider for its names, or in files.
type Certificate struct {
	// DNSNames are those that clients dial, SPIFFEID is one of a mesh. One of them at
	// least is required, unless the certificate is in files.
	DNSNames []string `json:"dns_names"`
	SPIFFEID string   `json:"spiffe_id"`
	// KeyType is the kind of key. Default: ecdsa-p256.
	KeyType string `json:"key_type"`
	// TTL is the lifetime asked for. Default: 24h.
	TTL agent.Duration `json:"ttl"`
	// Providers sign it: the next one is asked when those before it have been away.
	// Default: default_provider, or the only one.
	Providers []string `json:"providers"`
	// ChainFile and KeyFile (PEM) hold it in place of all these; they are watched.
	ChainFile string `json:"chain_file"`
	KeyFile   string `json:"key_file"`
}

// TrustDomain is one trust domain with one source of its roots.
type TrustDomain struct {
	// Name is the trust domain's, as in cluster.local. Required.
	Name string `json:"name"`
	// OwnCA takes the roots of those that sign the server's certificate. Default: false.
	OwnCA bool `json:"own_ca"`
	// RootsFile holds the roots (PEM); it is watched.
	RootsFile string `json:"roots_file"`
	Bundle    Bundle `json:"bundle"`
	// Clusters are those that its members may claim to be in; the first is theirs where
	// they claim none, unless the local one is among them. Default: the local one.
	Clusters []string `json:"clusters"`
}

// Bundle is a SPIFFE bundle endpoint.
type Bundle struct {
	// URL is https.
	URL string `json:"url"`
	// ServerID is the SPIFFE ID of the server (https_spiffe). Default: its certificate is
	// the Web's (https_web).
	ServerID string `json:"server_id"`
	// RootFile holds the roots (PEM) for https_web. Default: the system's.
	RootFile string `json:"root_file"`
	// InitialFile holds the roots (PEM) until the first answer. Default: none.
	InitialFile string `json:"initial_file"`
}

// The kinds of authenticator.
const (
	ByCertificate = "certificate"
	ByJWT         = "jwt"
	ByKubernetes  = "kubernetes"
)

// Authenticator is one way to know a caller.
type Authenticator struct {
	// Kind is certificate, jwt or kubernetes (TokenReview in the caller's cluster).
	// Required.
	Kind string `json:"kind"`
	// ServiceAccounts makes SPIFFE IDs of Kubernetes' service accounts, as in
	// spiffe://cluster.local/ns/{namespace}/sa/{service_account}. Default: none.
	ServiceAccounts string `json:"service_accounts"`
	JWT
}

// JWT is for the kind jwt alone, which may be there for several issuers.
type JWT struct {
	// Issuer is the claim iss, to the letter. Required.
	Issuer string `json:"issuer"`
	// Audiences are ours with that issuer: a token must be for one of them. Required.
	Audiences []string `json:"audiences"`
	// JWKSURL and JWKSFile are where its keys are, one of them. Default: its discovery.
	JWKSURL  string `json:"jwks_url"`
	JWKSFile string `json:"jwks_file"`
	// RootFile holds the roots (PEM) of its servers. Default: the system's.
	RootFile string `json:"root_file"`
	// AllowLoopbackHTTP lets it be at http on this machine. Default: false.
	AllowLoopbackHTTP bool `json:"allow_loopback_http"`
	// TrustDomain is the one whose SPIFFE IDs subjects may be.
	TrustDomain string `json:"trust_domain"`
	// Leeway is how far its clock may be off. Default: 30s.
	Leeway agent.Duration `json:"leeway"`
}

// Cluster is the one that this service is of: its secrets are the config cluster's.
type Cluster struct {
	// Disabled has no API server asked at all: no Kubernetes secrets, no Kubernetes tokens.
	Disabled bool `json:"disabled"`
	// ID is what proxies call it. Default: Kubernetes.
	ID string `json:"id"`
	// Kubeconfig is a file, of whoever runs this service. Default: that of the pod.
	Kubeconfig string `json:"kubeconfig"`
	// SystemNamespace has the secrets with the kubeconfigs of others. Default:
	// istio-system.
	SystemNamespace string `json:"system_namespace"`
}

// Remotes are further clusters.
type Remotes struct {
	// Folder has a kubeconfig in each file, which is called like its cluster. Default: none.
	Folder string `json:"folder"`
	// Allow are fields of kubeconfigs that are taken though they are not inline data, as
	// in exec. Default: none.
	Allow []string `json:"allow"`
	// Servers are the API servers that may be asked: host names, *.example.org, addresses,
	// networks. Default: all but the metadata servers of clouds.
	Servers []string `json:"servers"`
	// Limits are for each of them, whatever its API server sends.
	Limits RemoteLimits `json:"limits"`
}

// RemoteLimits bound what one remote cluster may take. What exceeds them is failed, and
// tried again for an hour.
type RemoteLimits struct {
	// Bytes are those of its secrets and config maps as they are held, with 1 KiB for each
	// of them itself; while all are read anew, they are held twice. Default: 128Mi.
	Bytes agent.Size `json:"bytes"`
	// Objects are its secrets and config maps. Default: 100000.
	Objects uint32 `json:"objects"`
	// Response is the size of one object as its API server sends it, in JSON, each value in
	// it counted 256 bytes longer. Default: 8Mi.
	Response agent.Size `json:"response"`
}

// Secrets says who may have which, beyond its own namespace's.
type Secrets struct {
	// MayReadConfigCluster are the clusters whose proxies may have a secret of the config
	// cluster where their own has none; "*" is all, as with Istio: each of their API
	// servers is then trusted with the secrets here. Default: none.
	MayReadConfigCluster []string `json:"may_read_config_cluster"`
	// Grants let a namespace's proxies have kubernetes-gateway:// secrets of another.
	Grants []Grant `json:"grants"`
}

// Grant lets callers have secrets of one other namespace, in the clusters that they have
// their own from. The right to list secrets in their own namespace is needed all the same.
type Grant struct {
	To Who `json:"to"`
	// Namespace is the one that the secrets are in. Required.
	Namespace string `json:"namespace"`
	// Names are the secrets; "*" is all of that namespace. Required.
	Names []string `json:"names"`
}

// Who are callers, by what was verified of them; "*" is any.
type Who struct {
	// TrustDomain is that of the SPIFFE ID; a caller without one has only "*". Required.
	TrustDomain string `json:"trust_domain"`
	// Cluster is the caller's. Required.
	Cluster string `json:"cluster"`
	// Namespace and ServiceAccount are the caller's. Required.
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"service_account"`
}

// Access is for how long an API server's answer counts to whether a service account may
// list secrets: as long may a right that was taken away be of use, and one that was given
// of none. Each service account that is here costs a review as often. 10s to 1h.
type Access struct {
	// Allow is for a yes; while it is needed, it is asked again in its last fifth.
	// Default: 5m.
	Allow agent.Duration `json:"allow"`
	// Deny is for a no. Default: 1m.
	Deny agent.Duration `json:"deny"`
	// Outage is how long after the last yes an API server that cannot tell takes nothing
	// from those who hold a secret. Default: 1h; 0s: it ends with the yes.
	Outage agent.Duration `json:"outage"`
}

// Resources are what is served beside secrets.
type Resources struct {
	// Folder has Envoy's resources in YAML or JSON; it is watched. Default: none.
	Folder string `json:"folder"`
}

// Limits bound what clients may take.
type Limits struct {
	Connections         uint32     `json:"connections"`           // Default: 20000.
	Streams             uint32     `json:"streams"`               // Default: 20000.
	StreamsOfIdentity   uint32     `json:"streams_of_identity"`   // Default: 2000.
	StreamsOfConnection uint32     `json:"streams_of_connection"` // Default: 100.
	Message             agent.Size `json:"message"`               // a request's. Default: 4Mi.
	Metadata            agent.Size `json:"metadata"`              // a node's. Default: 64Ki.
}

// Times are how long things may take.
type Times struct {
	// Stream is a stream's lifetime, 10 % more or less. Default: 1h.
	Stream agent.Duration `json:"stream"`
	// Drain is how long it takes to end all streams after SIGTERM. Default: 10s.
	Drain agent.Duration `json:"drain"`
	// Sync is how long a remote cluster is awaited before the service is ready without
	// it. Default: 30s.
	Sync agent.Duration `json:"sync"`
}

// Status is the page for operators, with probes and metrics. It has no authentication.
type Status struct {
	// Address is a loopback host:port or unix:PATH. Default: 127.0.0.1:15014.
	Address string `json:"address"`
	// Probes is host:port, which others may reach, for /readyz, /healthz and /metrics
	// alone. Default: off.
	Probes string `json:"probes"`
}

// StatusAddress is where the page is where nobody says otherwise.
const StatusAddress = "127.0.0.1:15014"

// Signed returns the configuration of what holds the server's certificate: the secret
// "default" and the bundle "ROOTCA"; nil where it is in files.
func (c *Config) Signed() *agent.Config { return c.signed }

func duration(d time.Duration) agent.Duration { return agent.Duration{Duration: d} }

func defaults() Config {
	return Config{
		Listen:      Listen{TLS: ":15012"},
		Certificate: Certificate{KeyType: "ecdsa-p256", TTL: duration(24 * time.Hour)},
		Rotation:    agent.Rotation{Ratio: 0.5, Jitter: 0.01},
		Audiences:   []string{"istio-ca"},
		Cluster:     Cluster{ID: "Kubernetes", SystemNamespace: "istio-system"},
		Access:      Access{Allow: duration(5 * time.Minute), Deny: duration(time.Minute), Outage: duration(time.Hour)},
		Remotes:     Remotes{Limits: RemoteLimits{Bytes: 128 << 20, Objects: 100_000, Response: 8 << 20}},
		Limits: Limits{
			Connections: 20_000, Streams: 20_000, StreamsOfIdentity: 2000, StreamsOfConnection: 100, Message: 4 << 20, Metadata: 64 << 10,
		},
		Times:  Times{Stream: duration(time.Hour), Drain: duration(10 * time.Second), Sync: duration(30 * time.Second)},
		Status: Status{Address: StatusAddress},
		Log:    agent.Log{Level: "info", Format: "text"},
	}
}
