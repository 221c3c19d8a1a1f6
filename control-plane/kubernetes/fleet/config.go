// Package fleet holds the clusters that are known now: the local one, and those whose
// kubeconfigs are in Secrets of the local one (label istio/multiCluster=true, each key
// of the data is a cluster's id) or in a folder (a file's name without extension is
// the id). Call [New] and [Fleet.Run]; [Fleet.Cluster] then returns a cluster's
// Secrets and ConfigMaps out of memory, and who verifies its tokens.
//
// The clusters' credentials need these rights: list and watch secrets and configmaps
// of all namespaces, create tokenreviews (and subjectaccessreviews, for whoever
// authorises with [Cluster.Client]); the local one's also list and watch secrets of
// the system namespace, where it has not those of all.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/kubeconfig"
)

const (
	defaultNamespace = "istio-system"
	defaultAudience  = "istio-ca"
	defaultSyncWait  = 30 * time.Second
	defaultGiveUp    = time.Hour
)

// Config says where clusters are known from.
type Config struct {
	// Local is how the local cluster is asked. Required.
	Local *rest.Config
	// LocalID is its id, which no kubeconfig may have. Required.
	LocalID string
	// Namespace is the system namespace, whose labelled Secrets hold kubeconfigs.
	// Default: istio-system.
	Namespace string
	// Folder has kubeconfigs, too. Default: none.
	Folder string
	// Rules are for all kubeconfigs. Default: inline data only.
	Rules kubeconfig.Rules
	// Limits are for each remote cluster. Default: those that its fields say.
	Limits Limits
	// Audiences are ours: a token that is shown must be for one of them. Default:
	// istio-ca.
	Audiences []string
	// ServiceAccounts makes SPIFFE IDs of service accounts, as [authn.ParseTemplate]
	// takes it. Default: identities have no SPIFFE ID.
	ServiceAccounts string
	// SyncWait is for how long a remote that is not synced keeps [Fleet.Ready] waiting.
	// Default: 30 s.
	SyncWait time.Duration
	// GiveUp is for how long a remote is tried that was never synced. What has been
	// synced once is tried for ever. Default: 1 hour.
	GiveUp time.Duration
	// Changed is told each change, by several goroutines; it must not block. Default:
	// nobody.
	Changed func(Event)
	// Log is told what becomes of each cluster. Default: silent.
	Log *slog.Logger
}

// Kind is the kind of an object that has changed.
type Kind string

// The kinds that are watched.
const (
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
)

// Event is a change. Without a name, it is one of the cluster as a whole: it was
// added, synced, exchanged or removed, and all that was read of it is to be read anew.
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
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func (c Config) check() error {
	switch {
	case c.Local == nil:
		return errors.New("how the local cluster is asked is required")
	case !isID(c.LocalID):
		return fmt.Errorf("the local cluster's id %.64q is none: %s", c.LocalID, rightID)
	case c.SyncWait < 0 || c.GiveUp < 0:
		return fmt.Errorf("the times %s and %s cannot be less than nothing", c.SyncWait, c.GiveUp)
	case slices.Contains(c.Audiences, ""):
		return errors.New("an audience is empty")
	}
	return cmp.Or(c.Limits.check(), c.Rules.Check())
}

const rightID = "1 to 253 letters, digits, dots, hyphens and underscores are right"

// isID takes what can be a key of a Secret's data.
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
