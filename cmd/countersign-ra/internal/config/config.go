// Package config reads the YAML configuration of countersign-ra, as strictly as the agent's
// and with the same settings for providers. Call [Read]; its error names every invalid
// setting, its value and what is allowed.
package config

import (
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/audit"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
	"github.com/countersign-dev/countersign/ra"
)

// Config mirrors the configuration file.
type Config struct {
	Cluster Cluster `json:"cluster"`
	// Remotes are further clusters whose requests are signed. Default: none.
	Remotes Remotes `json:"remotes"`
	agent.Plugins
	// Authorities are settings of providers as authorities; each provider is one, with an
	// entry here or without.
	Authorities []Authority `json:"authorities"`
	// Signers are the signer names to serve. Required, unless Istio or CertManager is set.
	Signers []Signer `json:"signers"`
	Istio   Istio    `json:"istio"`
	Mesh    Mesh     `json:"mesh"`
	// CertManager serves the requests of cert-manager. Default: none.
	CertManager CertManager `json:"cert_manager"`
	// PublishBundle is off without an address.
	PublishBundle PublishBundle `json:"publish_bundle"`
	// Rules say who may have which certificate: the first that matches decides. Required.
	Rules          []Rule          `json:"rules"`
	Budget         Budget          `json:"budget"`
	Audit          Audit           `json:"audit"`
	LeaderElection LeaderElection  `json:"leader_election"`
	Status         settings.Status `json:"status"`
	Log            agent.Log       `json:"log"`

	file   agent.File
	hosted agent.Config
	given  []ra.Rule // of Rules
	policy *ra.Policy
}

// Cluster is the home cluster.
type Cluster struct {
	// ID is its name in rules and in the audit log. Default: Kubernetes.
	ID string `json:"id"`
	// Kubeconfig is a file, trusted without restrictions. Default: the pod's account.
	Kubeconfig string `json:"kubeconfig"`
	// SystemNamespace contains the Lease, what is recorded about authorities, and the
	// Secrets with the kubeconfigs of remote clusters. Default: countersign.
	SystemNamespace string `json:"system_namespace"`
}

// Remotes are further clusters.
type Remotes struct {
	// Secrets takes kubeconfigs from the Secrets with the label istio/multiCluster=true in
	// the system namespace, too; the account then needs the right to list all Secrets there.
	// Default: false.
	Secrets bool `json:"secrets"`
	settings.Kubeconfigs
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

// Authority has the settings of one provider as an authority.
type Authority struct {
	// Name is the name of an entry in providers. Required.
	Name   string `json:"name"`
	Limits Limits `json:"limits"`
	Roots  Roots  `json:"roots"`
}

// Limits bound the calls of an authority.
type Limits struct {
	// Rate is the most calls a second. It is lowered while the authority says that it is
	// too much. Default: 5.
	Rate float64 `json:"rate"`
	// Burst is the most calls at once after a rest. Default: the rate, 1 at least.
	Burst uint32 `json:"burst"`
	// InFlight is the most calls at the same time; one namespace has half of them at most.
	// Default: 32.
	InFlight uint32 `json:"in_flight"`
}

// Roots says how a new root of an authority reaches those who verify with it.
type Roots struct {
	// Wait is how long a root is published before certificates below it are given out.
	// Default: 10m, which a projected trust bundle needs.
	Wait agent.Duration `json:"wait"`
	// ByReply makes a new root wait for the end of all certificates that were out when it
	// was published, too: for those who learn roots only with their own certificates.
	// Default: false.
	ByReply bool `json:"by_reply"`
	// Unplanned is how long after a root was announced certificates below it are held back at
	// most, if the authority signs below it before it is published long enough. Default: 10m.
	Unplanned agent.Duration `json:"unplanned"`
	// Interval is the time between calls for the roots of an authority that does not
	// announce changes. Default: 5m.
	Interval agent.Duration `json:"interval"`
}

// Signer is a signer name of Kubernetes' certificate APIs.
type Signer struct {
	// Name is the signerName of requests, such as example.com/workloads. Required.
	Name string `json:"name"`
	// PodCertificates serves PodCertificateRequests: certificates for pods.
	PodCertificates PodCertificates `json:"pod_certificates"`
	// CertificateRequests serves CertificateSigningRequests.
	CertificateRequests CertificateRequests `json:"certificate_requests"`
	// TrustBundle publishes an authority's roots in each cluster. Default: none.
	TrustBundle TrustBundle `json:"trust_bundle"`
}

// PodCertificates is the service for a signer's PodCertificateRequests.
type PodCertificates struct {
	// Enabled turns the service on. Default: false.
	Enabled bool `json:"enabled"`
}

// CertificateRequests is the service for a signer's CertificateSigningRequests.
type CertificateRequests struct {
	// Enabled turns the service on. Default: false.
	Enabled bool `json:"enabled"`
	// Approve approves requests that the rules grant. Default: false, somebody else does.
	Approve bool `json:"approve"`
}

// TrustBundle is a ClusterTrustBundle.
type TrustBundle struct {
	// Name is the object's name: the signer name with a colon for its slash, a colon, and a
	// suffix, such as example.com:workloads:countersign. Default: none, nothing is published.
	Name string `json:"name"`
	// Authority has the roots. Default: default_provider, or the only provider.
	Authority string `json:"authority"`
	// Labels are set on the object, such as those by which a pod's volume selects the bundle of a
	// trust domain: k8s.spiffe.io/workload-trust-domain. Default: none.
	Labels map[string]string `json:"labels"`
	// BundleEndpoints are those of foreign trust domains. The roots of each are in an object of its
	// own, called NAME.TRUST_DOMAIN, with these labels and another k8s.spiffe.io/peer-trust-domain. An
	// empty list deletes what another one made. Default: none.
	BundleEndpoints []agent.Followed `json:"bundle_endpoints"`
}

// Rule grants names to those that it matches.
type Rule struct {
	// Name is for the audit log and metrics. Required.
	Name  string `json:"name"`
	Match Match  `json:"match"`
	Names Names  `json:"names"`
	// Authority signs. Default: default_provider, or the only provider.
	Authority string `json:"authority"`
	// MaxTTL is the longest lifetime, what the authority backdates included. A request for more
	// gets this. Default: 24h.
	MaxTTL agent.Duration `json:"max_ttl"`
	// KeyTypes are the kinds of keys that are certified: ecdsa-p256, ecdsa-p384, ecdsa-p521,
	// ed25519, ml-dsa-44, ml-dsa-65, ml-dsa-87, rsa-2048, rsa-3072, rsa-4096, rsa-8192. Default:
	// all of them.
	KeyTypes []string `json:"key_types"`
	// Usages is what a certificate must be good for: any, server, client or both. Default:
	// any, as the authority decides.
	Usages string `json:"usages"`
	// Holders is how many times a holder's budget each service account or user that the rule matches
	// has for the tokens of its machines, and a namespace for the names that it chooses itself: the
	// machines that share an account. Renewals by certificate have each machine's own budget alone.
	// Default: 100.
	Holders uint32 `json:"holders"`
}

// Match selects callers by verified attributes. A caller must fit each list that has entries.
// An entry is a value, or a pattern with one * for any text.
type Match struct {
	// Signers are signer names. Default: all of signers.
	Signers []string `json:"signers"`
	// Requests are pod-certificates, certificate-requests, istio or cert-manager. Default: the
	// first two.
	Requests []string `json:"requests"`
	// CertSigners are values of a mesh's CertSigner (ISTIO_META_CERT_SIGNER), each of which is
	// served for these rules alone. Default: requests without one.
	CertSigners []string `json:"cert_signers"`
	// Kinds are pod, service_account, node, user, or namespace, which requests of cert-manager
	// are of. Default: any.
	Kinds []string `json:"kinds"`
	// Clusters are cluster IDs; * is any. Default: the home cluster alone.
	Clusters []string `json:"clusters"`
	// Namespaces of pods, service accounts and requests of cert-manager. Default: any.
	Namespaces []string `json:"namespaces"`
	// ServiceAccounts are their names. Default: any.
	ServiceAccounts []string `json:"service_accounts"`
	// Pods are their names. Default: any.
	Pods []string `json:"pods"`
	// Nodes are their names. Default: any.
	Nodes []string `json:"nodes"`
	// Users are user names of the API server. Default: any.
	Users []string `json:"users"`
}

// Names are the templates of the names that a rule grants. {attribute} stands for cluster,
// kind, namespace, serviceAccount, serviceAccountUID, pod, podUID, node, nodeUID or user.
type Names struct {
	// SPIFFEID is such as spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}. An
	// attribute is a whole segment.
	SPIFFEID string `json:"spiffe_id"`
	// DNSNames are such as {serviceAccount}.{namespace}.svc. An attribute is a whole label.
	DNSNames []string `json:"dns_names"`
	// IPAddresses are written out.
	IPAddresses []string `json:"ip_addresses"`
	// Requested are further DNS names that a pod may ask for with the annotation
	// countersign.dev/dns-names of its podCertificate volume, and a request of cert-manager with
	// its CSR, such as *.{namespace}.apps.example.org. '*' is one label of letters, digits and
	// '-'. '[*]' in its place grants the wildcard name, and a label that begins with '_', such as
	// _acme-challenge, is written out. A request of cert-manager may also ask for IP addresses:
	// write an address or a network, such as 10.1.0.0/16. A SPIFFE ID, written as in spiffe_id, is
	// signed in place of that one for a CSR that has it: for a mesh that moves to another trust
	// domain. Default: none.
	Requested []string `json:"requested"`
}

// Budget bounds the certificates of one holder (a pod, a service account on a node, a machine, a set
// of names that a namespace asks for) and of one namespace. A new key does not make a new holder. Each
// replica that serves callers counts for itself: one that reaches all of them has that many budgets.
type Budget struct {
	// Holder is how many certificates a holder gets at once after a rest. Default: 10.
	Holder uint32 `json:"holder"`
	// HolderEvery is the time in which a holder gains one more. Default: 5m.
	HolderEvery agent.Duration `json:"holder_every"`
	// Namespace is how many certificates a namespace gets at once after a rest. Default:
	// 10000.
	Namespace uint32 `json:"namespace"`
	// NamespaceEvery is the time in which a namespace gains one more. Default: 100ms.
	NamespaceEvery agent.Duration `json:"namespace_every"`
}

// Audit is the audit log: a line of JSON for each certificate and each refusal.
type Audit struct {
	// File is appended to, and opened anew on SIGHUP; "-" is standard output. Without a
	// log that can be written nothing is issued. Default: "-".
	File string `json:"file"`
}

// Program is the name of the program.
const Program = "countersign-ra"

// Lease is the name of the Lease by which replicas elect a leader, and of the ConfigMap with what is
// recorded about authorities.
const Lease = "countersign-ra"

// LeaderElection lets one of several replicas sign, by a Lease in the system namespace.
type LeaderElection struct {
	// Enabled is false only where there is never a second replica. Default: true.
	Enabled bool `json:"enabled"`
	// Duration is how long a leader that is gone keeps the others waiting. Default: 15s.
	Duration agent.Duration `json:"duration"`
}

func duration(d time.Duration) agent.Duration { return agent.Duration{Duration: d} }

func defaults() Config {
	return Config{
		Cluster:        Cluster{ID: "Kubernetes", SystemNamespace: "countersign"},
		Budget:         Budget{Holder: 10, HolderEvery: duration(5 * time.Minute), Namespace: 10_000, NamespaceEvery: duration(100 * time.Millisecond)},
		Istio:          usualIstio(),
		Audit:          Audit{File: audit.Stdout},
		LeaderElection: LeaderElection{Enabled: true, Duration: duration(15 * time.Second)},
		Status:         settings.Status{Address: settings.StatusAddress},
		Log:            agent.Log{Level: "info", Format: "text"},
	}
}
