// Package config reads the YAML configuration of countersign-discovery, as strictly as the
// agent's and with the same settings for providers. Call [Read]; its error names every
// invalid setting, its value and what is allowed.
package config

import (
	"fmt"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
)

// Config mirrors the configuration file.
type Config struct {
	Listen Listen `json:"listen"`
	// Certificate is the server's own. Required.
	Certificate Certificate `json:"certificate"`
	agent.Plugins
	// TrustDomains lists the trust domains whose certificates are accepted. Required for
	// the certificate authenticator.
	TrustDomains []TrustDomain `json:"trust_domains"`
	// Authenticators are tried in this order; the first that recognizes the caller wins.
	// Default: certificate if there are trust_domains, then kubernetes.
	Authenticators []Authenticator `json:"authenticators"`
	// Audiences lists the accepted audiences of Kubernetes tokens. Default: istio-ca.
	Audiences []string `json:"audiences"`
	Cluster   Cluster  `json:"cluster"`
	Remotes   Remotes  `json:"remotes"`
	Secrets   Secrets  `json:"secrets"`
	Access    Access   `json:"access"`
	// Resources are listeners, routes, clusters, endpoints and DNS names from a folder.
	Resources Resources `json:"resources"`
	// PublishBundle is off without an address.
	PublishBundle PublishBundle   `json:"publish_bundle"`
	Limits        Limits          `json:"limits"`
	Times         Times           `json:"times"`
	Status        settings.Status `json:"status"`
	Log           agent.Log       `json:"log"`

	file   agent.File
	signed *agent.Config // nil: the certificate is in files
}

// Listen sets the addresses of ADS and SDS.
type Listen struct {
	// TLS is host:port; the host is optional. Default: :15012.
	TLS string `json:"tls"`
	// Plaintext is host:port without TLS; callers there can authenticate only with
	// tokens. Default: off.
	Plaintext string `json:"plaintext"`
	// AllowTokenOverPlaintext accepts tokens there. Anyone on the network path can read
	// and use them. Default: false.
	AllowTokenOverPlaintext bool `json:"allow_token_over_plaintext"`
}

// Certificate is the server's certificate: signed by a provider, or read from files.
type Certificate struct {
	// DNSNames are the names that clients dial; SPIFFEID is for a mesh. At least one of
	// them is required, unless the certificate is in files.
	DNSNames []string `json:"dns_names"`
	SPIFFEID string   `json:"spiffe_id"`
	// KeyType is the kind of key. Default: ecdsa-p256.
	KeyType string `json:"key_type"`
	// TTL is the requested lifetime. Default: 24h.
	TTL agent.Duration `json:"ttl"`
	// Providers sign it: the next is used while those before it are unavailable.
	// Default: default_provider, or the only one.
	Providers []string `json:"providers"`
	// ChainFile and KeyFile (PEM) replace all settings above; both files are watched.
	ChainFile string `json:"chain_file"`
	KeyFile   string `json:"key_file"`
}

// TrustDomain is a trust domain with one source of roots.
type TrustDomain struct {
	// Name is the trust domain, such as cluster.local. Required.
	Name string `json:"name"`
	// OwnCA uses the roots of the CA that signs the server's certificate. Default: false.
	OwnCA bool `json:"own_ca"`
	// RootsFile contains the roots (PEM); it is watched.
	RootsFile string `json:"roots_file"`
	Bundle    Bundle `json:"bundle"`
	// Clusters lists the cluster IDs its members may claim. A member that claims none is
	// in the local cluster if that is listed, else in the first. Default: the local one.
	Clusters []string `json:"clusters"`
}

// Bundle is a SPIFFE bundle endpoint.
type Bundle struct {
	// URL is the https URL of the endpoint.
	URL string `json:"url"`
	// ServerID is the SPIFFE ID of the server (https_spiffe). Default: Web PKI (https_web).
	ServerID string `json:"server_id"`
	// RootFile contains the roots (PEM) for https_web. Default: the system's.
	RootFile string `json:"root_file"`
	// InitialFile contains the roots (PEM) to use until the first fetch. Default: none.
	InitialFile string `json:"initial_file"`
}

// The kinds of authenticator.
const (
	ByCertificate = "certificate"
	ByJWT         = "jwt"
	ByKubernetes  = "kubernetes"
)

// Authenticator is one way to authenticate callers.
type Authenticator struct {
	// Kind is certificate, jwt or kubernetes (TokenReview in the caller's cluster).
	// Required.
	Kind string `json:"kind"`
	// ServiceAccounts is the template of the SPIFFE IDs of Kubernetes service accounts, such
	// as spiffe://cluster.local/ns/{namespace}/sa/{service_account}. Default: none.
	ServiceAccounts string `json:"service_accounts"`
	JWT
}

// JWT applies only to kind jwt, which may be listed once for each issuer.
type JWT struct {
	// Issuer is the exact iss claim. Required.
	Issuer string `json:"issuer"`
	// Audiences lists the accepted audiences of its tokens. Required.
	Audiences []string `json:"audiences"`
	// JWKSURL or JWKSFile is the location of its keys. Default: OpenID Connect discovery.
	JWKSURL  string `json:"jwks_url"`
	JWKSFile string `json:"jwks_file"`
	// RootFile contains the roots (PEM) of its servers. Default: the system's.
	RootFile string `json:"root_file"`
	// TrustDomain is the trust domain of the SPIFFE IDs that its subjects may be.
	TrustDomain string `json:"trust_domain"`
	// Clusters lists the cluster IDs its subjects may claim, in place of their trust
	// domain's. One that claims none is in the local cluster if that is listed, else in
	// the first. Set it if the issuer signs for only some of a trust domain's clusters.
	// Default: those of the trust domain.
	Clusters []string `json:"clusters"`
}

// Cluster is the local cluster, which is also the config cluster.
type Cluster struct {
	// Disabled turns off everything that needs an API server: secrets and tokens.
	Disabled bool `json:"disabled"`
	// ID is the CLUSTER_ID of its proxies. Default: Kubernetes.
	ID string `json:"id"`
	// Kubeconfig is a file, trusted without restrictions. Default: the pod's account.
	Kubeconfig string `json:"kubeconfig"`
	// SystemNamespace contains the Secrets with the kubeconfigs of remote clusters.
	// Default: istio-system.
	SystemNamespace string `json:"system_namespace"`
}

// Remotes are further clusters.
type Remotes struct {
	settings.Kubeconfigs
	// Limits apply to each remote cluster, whatever its API server sends.
	Limits RemoteLimits `json:"limits"`
}

// Rules returns what applies to all kubeconfigs.
func (r Remotes) Rules() kubeconfig.Rules {
	return kubeconfig.Rules{Allow: r.Allow, Servers: r.Servers}
}

// check checks the rules.
func (r Remotes) check(p *settings.Problems) {
	if err := r.Rules().Check(); err != nil {
		p.Add(fmt.Errorf("remotes: %w", err))
	}
}

// RemoteLimits bounds the memory one remote cluster may use. A cluster that exceeds them
// fails, and is retried for an hour.
type RemoteLimits struct {
	// Bytes limits its Secrets and ConfigMaps as held in memory, plus 1 KiB per object.
	// During a full resync they are held twice. Default: 128Mi.
	Bytes agent.Size `json:"bytes"`
}

// Secrets grants access beyond a caller's own namespace and cluster.
type Secrets struct {
	// MayReadConfigCluster lists the clusters whose proxies get a secret from the config
	// cluster if their own has none; "*" means all, as with Istio. This trusts the API
	// server of each such cluster with the secrets here. Default: none.
	MayReadConfigCluster []string `json:"may_read_config_cluster"`
	// Grants let the proxies of one namespace get kubernetes-gateway:// secrets of another.
	Grants []Grant `json:"grants"`
}

// Grant lets callers get secrets of one other namespace, in the clusters they are served
// from. They still need the right to list secrets in their own namespace.
type Grant struct {
	To Who `json:"to"`
	// Namespace is the namespace of the secrets. Required.
	Namespace string `json:"namespace"`
	// Names lists the secrets; "*" means all in that namespace. Required.
	Names []string `json:"names"`
}

// Who selects callers by verified attributes; "*" matches any.
type Who struct {
	// TrustDomain of the SPIFFE ID; a caller without one matches only "*". Required.
	TrustDomain string `json:"trust_domain"`
	// Cluster is the caller's. Required.
	Cluster string `json:"cluster"`
	// Namespace and ServiceAccount are the caller's. Required.
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"service_account"`
}

// Access sets how long an API server's answer is cached to whether a service account may
// list secrets. A changed right takes effect after that time at most. Each connected
// service account costs one review per period. 10s to 1h.
type Access struct {
	// Allow is for a yes; while in use, it is refreshed in its last fifth. Default: 5m.
	Allow agent.Duration `json:"allow"`
	// Deny is for a no. Default: 1m.
	Deny agent.Duration `json:"deny"`
	// Outage is how long after the last yes an API server that cannot tell takes nothing
	// from those who hold a secret. Default: 1h; 0s: it ends with the yes.
	Outage agent.Duration `json:"outage"`
}

// Resources are served besides secrets.
type Resources struct {
	// Folder contains Envoy resources in YAML or JSON; it is watched. Default: none.
	Folder string `json:"folder"`
}

// Limits bounds the resources clients may use. An address is an IPv4 address, or an IPv6
// network of 64 bits.
type Limits struct {
	Connections              uint32 `json:"connections"`                // of all clients. Default: 20000.
	ConnectionsOfAddress     uint32 `json:"connections_of_address"`     // from one address. Default: 2000.
	Authentications          uint32 `json:"authentications"`            // streams being authenticated at once, and connections without an authenticated stream. Default: 1000.
	AuthenticationsOfAddress uint32 `json:"authentications_of_address"` // of those, from one address, which has the same share of token reviews. Default: 600.
	Streams                  uint32 `json:"streams"`                    // of all clients. Default: 20000.
	StreamsOfIdentity        uint32 `json:"streams_of_identity"`        // of one identity in one cluster. Default: 2000.
}

// Times sets durations.
type Times struct {
	// Stream is the lifetime of a stream, give or take 10 %. Default: 1h.
	Stream agent.Duration `json:"stream"`
	// Drain is the time over which all streams are closed after SIGTERM. Default: 10s.
	Drain agent.Duration `json:"drain"`
	// Sync is how long an unsynced remote cluster delays readiness. Default: 30s.
	Sync agent.Duration `json:"sync"`
}

// Signed returns the agent configuration that obtains the server's certificate (the
// secret "default") and its roots ("ROOTCA"); nil if the certificate is in files.
func (c *Config) Signed() *agent.Config { return c.signed }

func duration(d time.Duration) agent.Duration { return agent.Duration{Duration: d} }

func defaults() Config {
	return Config{
		Listen:      Listen{TLS: ":15012"},
		Certificate: Certificate{KeyType: "ecdsa-p256", TTL: duration(24 * time.Hour)},
		Audiences:   []string{"istio-ca"},
		Cluster:     Cluster{ID: "Kubernetes", SystemNamespace: "istio-system"},
		Access:      Access{Allow: duration(5 * time.Minute), Deny: duration(time.Minute), Outage: duration(time.Hour)},
		Remotes:     Remotes{Limits: RemoteLimits{Bytes: 128 << 20}},
		Limits: Limits{
			Connections: 20_000, ConnectionsOfAddress: 2000, Authentications: 1000, AuthenticationsOfAddress: 600,
			Streams: 20_000, StreamsOfIdentity: 2000,
		},
		Times:  Times{Stream: duration(time.Hour), Drain: duration(10 * time.Second), Sync: duration(30 * time.Second)},
		Status: settings.Status{Address: settings.StatusAddress},
		Log:    agent.Log{Level: "info", Format: "text"},
	}
}
