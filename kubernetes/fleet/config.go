// Package fleet keeps track of clusters: the local one, and those whose kubeconfigs are
// in labelled Secrets of the local one (istio/multiCluster=true, one cluster id per
// data key) or in a folder (id.extension). countersign-discovery calls [New] and
// [Fleet.Run], whose goroutine owns the membership; [Fleet.Cluster] then returns a
// cluster's Secrets and ConfigMaps from memory, and its token verifier. countersign-ra wants
// only the clients: see [Config].ClientsOnly.
//
// The credentials of the clusters need these rights: list and watch secrets and
// configmaps in all namespaces, create tokenreviews (and subjectaccessreviews if
// callers authorize with [Cluster.Client]); the local one's also list and watch secrets
// in the system namespace, unless it has that for all. With [Config].ClientsOnly they need
// only the latter, and with [Config].FolderOnly not even that.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
)

const (
	defaultNamespace = "istio-system"
	defaultAudience  = "istio-ca"
	defaultSyncWait  = 30 * time.Second
	defaultGiveUp    = time.Hour
)

// Config says where kubeconfigs come from. Local and LocalID are required.
type Config struct {
	// Local configures access to the local cluster. Required.
	Local *rest.Config
	// LocalID is its id, which no kubeconfig may claim. Required.
	LocalID string
	// Namespace is the system namespace, whose labelled Secrets contain kubeconfigs.
	// Default: istio-system.
	Namespace string
	// Folder contains further kubeconfigs. Default: none.
	Folder string
	// FolderOnly says that no Secrets contain kubeconfigs, and none are read. Default: false.
	FolderOnly bool
	// ClientsOnly says that only [Cluster.Client] and [Cluster.Authenticator] are wanted: no
	// Secrets and ConfigMaps of the clusters are read or kept. A cluster is then synced once
	// its API server has accepted our credential. The clients have no limit of requests a second:
	// who uses them bounds the calls that are under way. Default: false.
	ClientsOnly bool
	// Rules apply to all kubeconfigs. Default: inline data only.
	Rules kubeconfig.Rules
	// Limits apply to each remote cluster. Default: see its fields.
	Limits Limits
	// Audiences are ours: a token must be for one of them. Default: istio-ca.
	Audiences []string
	// ServiceAccounts maps service accounts to SPIFFE IDs, in the format of
	// [authn.ParseTemplate]. Default: identities have no SPIFFE ID.
	ServiceAccounts string
	// ReviewsOfPeer is how many tokens of one peer are reviewed at once by each cluster. Default
	// and limit: see package sdk/authn/tokenreview.
	ReviewsOfPeer int
	// SyncWait is how long an unsynced remote delays [Fleet.Ready]. Default: 30 s.
	SyncWait time.Duration
	// GiveUp is how long a remote that never synced is retried. A remote that has
	// synced once is retried forever. Default: 1 hour.
	GiveUp time.Duration
	// Changed receives each change. It must not block and must be safe for concurrent
	// use. Default: none.
	Changed func(Event)
	// Log receives the state changes of each cluster. Default: [slog.Default].
	Log *slog.Logger
}

// Kind is the kind of a changed object.
type Kind string

// The kinds of watched objects.
const (
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
)

// Event is a change. Without a name it concerns the whole cluster, which was added,
// synced, replaced or removed, so that everything read from it must be reread.
type Event struct {
	Cluster         string
	Kind            Kind
	Namespace, Name string
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.SyncWait, defaultSyncWait}, {&c.GiveUp, defaultGiveUp}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	c.Limits.setDefaults()
	if c.Namespace == "" {
		c.Namespace = defaultNamespace
	}
	if len(c.Audiences) == 0 {
		c.Audiences = []string{defaultAudience}
	}
	if c.Changed == nil {
		c.Changed = func(Event) {}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

func (c Config) check() error {
	switch {
	case c.Local == nil:
		return errors.New("Local is required")
	case !isID(c.LocalID):
		return fmt.Errorf("invalid id %.64q of the local cluster: %s", c.LocalID, rightID)
	case c.SyncWait < 0 || c.GiveUp < 0:
		return fmt.Errorf("SyncWait %s and GiveUp %s must not be negative", c.SyncWait, c.GiveUp)
	case slices.Contains(c.Audiences, ""):
		return errors.New("empty audience")
	}
	return cmp.Or(c.Limits.check(), c.Rules.Check())
}

const rightID = "must be 1 to 253 letters, digits, dots, hyphens and underscores"

// isID reports whether text can be a key in a Secret's data.
func isID(text string) bool {
	if len(text) == 0 || len(text) > 253 {
		return false
	}
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_' {
			return false
		}
	}
	return true
}
