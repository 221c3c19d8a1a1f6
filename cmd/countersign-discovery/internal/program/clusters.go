package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// clusters are the Kubernetes clusters whose tokens are verified and whose secrets are
// served. A nil *clusters has none.
type clusters struct {
	*fleet.Fleet
	access  *access.Access
	secrets *secrets.Source
}

// newClusters sends no requests; Run does.
func newClusters(c config.Config, local *rest.Config, log *slog.Logger) (k *clusters, err error) {
	k = &clusters{}
	limits := c.Remotes.Limits
	k.Fleet, err = fleet.New(fleet.Config{
		Local: local, LocalID: c.Cluster.ID, Namespace: c.Cluster.SystemNamespace, Folder: c.Remotes.Folder,
		Rules:     c.Remotes.Rules(),
		Limits:    fleet.Limits{Bytes: int64(limits.Bytes), Objects: int(limits.Bytes >> 10)}, // each counts 1 KiB more than its size
		Audiences: c.Audiences, ServiceAccounts: serviceAccounts(c), SyncWait: c.Times.Sync.Duration,
		ReviewsOfPeer: settings.ReviewsOfAddress(c.Limits.AuthenticationsOfAddress, c.Limits.Authentications),
		Changed:       k.changed, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	k.access, err = access.New(access.Config{Reviews: k.reviews, Allow: c.Access.Allow.Duration, Deny: c.Access.Deny.Duration, Outage: orNone(c.Access.Outage), Log: log})
	if err != nil {
		return nil, err
	}
	k.secrets, err = secrets.New(secrets.Config{
		Clusters: known{k.Fleet}, Access: k.access, MayReadConfigCluster: c.Secrets.MayReadConfigCluster, Grants: grants(c.Secrets.Grants), Log: log,
	})
	if err != nil {
		k.access.Close()
		return nil, fmt.Errorf("secrets: %w", err)
	}
	return k, nil
}

// orNone is 0s as packages have it where zero is the default.
func orNone(d agent.Duration) time.Duration {
	if d.Duration == 0 {
		return -1
	}
	return d.Duration
}

// serviceAccounts returns the template configured for Kubernetes tokens.
func serviceAccounts(c config.Config) string {
	for _, a := range c.Authenticators {
		if a.Kind == config.ByKubernetes {
			return a.ServiceAccounts
		}
	}
	return ""
}

func grants(entries []config.Grant) (all []secrets.Grant) {
	for _, g := range entries {
		all = append(all, secrets.Grant{
			To:        secrets.Who{TrustDomain: g.To.TrustDomain, Cluster: g.To.Cluster, Namespace: g.To.Namespace, ServiceAccount: g.To.ServiceAccount},
			Namespace: g.Namespace, Names: g.Names,
		})
	}
	return all
}

// changed passes a change on to its watchers.
func (k *clusters) changed(e fleet.Event) {
	kind := secrets.Secret
	if e.Kind == fleet.ConfigMap {
		kind = secrets.ConfigMap
	}
	k.secrets.Changed(secrets.Event{Cluster: e.Cluster, Namespace: e.Namespace, Name: e.Name, Kind: kind})
}

// known adapts a fleet to package secrets.
type known struct{ fleet *fleet.Fleet }

// Cluster implements [secrets.Clusters].
func (k known) Cluster(id string) (secrets.Cluster, bool) {
	if c, ok := k.fleet.Cluster(id); ok {
		return objects{c}, true
	}
	return nil, k.fleet.Known(id)
}

// Local implements [secrets.Clusters].
func (k known) Local() secrets.Cluster { return objects{k.fleet.Local()} }

// objects adapts one cluster; it translates [fleet.ErrNotFound].
type objects struct{ *fleet.Cluster }

// Secret implements [secrets.Cluster].
func (o objects) Secret(namespace, name string) (*corev1.Secret, error) {
	found, err := o.Cluster.Secret(namespace, name)
	return found, notFound(err)
}

// ConfigMap implements [secrets.Cluster].
func (o objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	found, err := o.Cluster.ConfigMap(namespace, name)
	return found, notFound(err)
}

func notFound(err error) error {
	if errors.Is(err, fleet.ErrNotFound) {
		return fmt.Errorf("%w: %w", secrets.ErrNotFound, err)
	}
	return err
}

// reviews returns the API for access reviews of a connected cluster.
func (k *clusters) reviews(id string) (access.Reviews, bool) {
	if c, ok := k.Cluster(id); ok {
		return c.Client().AuthorizationV1().SubjectAccessReviews(), true
	}
	return nil, k.Known(id)
}

// authenticator returns the verifier for a cluster's tokens, nil if the cluster is unknown.
// An empty id means the local cluster.
func (k *clusters) authenticator(id string) authn.Authenticator {
	if k == nil {
		return nil
	}
	if id == "" {
		return k.Local().Authenticator()
	}
	if c, ok := k.Cluster(id); ok {
		return c.Authenticator()
	}
	if k.Known(id) {
		return absent{}
	}
	return nil
}

// absent stands for a cluster that is not connected now.
type absent struct{}

// Authenticate implements [authn.Authenticator].
func (absent) Authenticate(context.Context, authn.Credential) (authn.Identity, error) {
	return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "the cluster is not connected")
}

// Close cancels the requests to API servers. Call it after Run has returned.
func (k *clusters) Close() {
	k.secrets.Close()
	k.access.Close()
}
