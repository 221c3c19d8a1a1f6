// Package secrets serves the Kubernetes Secrets of many clusters as Envoy Secrets:
// countersign-discovery passes the type of a [Source] from [New] to its discovery server and
// changes to [Source.Changed]. A caller gets the secrets of its verified namespace, from its own
// cluster first and from the config cluster if its cluster may; its own claims grant nothing.
//
// Resources are named kubernetes://<name>, kubernetes://<namespace>/<name>,
// kubernetes-gateway://<namespace>/<name> or configmap://<namespace>/<name>. A secret is a
// certificate with its key and requires the right to list secrets in the caller's own namespace
// (package access). A name ending in -cacert, or a config map, is a CA: that requires no right and
// never yields a key.
package secrets

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/hub"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// TypeURL is the type URL of the served resources.
const TypeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// ErrNotFound is what a [Cluster] returns, possibly wrapped ([errors.Is]), for an
// object that does not exist. Any other error means that this is not known yet.
var ErrNotFound = errors.New("no such object")

// Cluster holds the current objects of one cluster. Its methods do not block, and the
// results must not be modified. Objects have a resource version.
type Cluster interface {
	ID() string
	Secret(namespace, name string) (*corev1.Secret, error)
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
}

// Clusters are the connected clusters.
type Clusters interface {
	// Cluster returns the cluster with that ID, nil if it is not connected now, or false if
	// there is no such cluster.
	Cluster(id string) (Cluster, bool)
	// Local returns the config cluster, which the server runs in. Its ID never changes.
	Local() Cluster
}

// Rights reports who may list the secrets of its namespace, as [access.Access] does.
type Rights interface {
	Peek(s access.Subject, name string) error
	Hold(s access.Subject, name string)
	Watch(s access.Subject, notify func()) (stop func())
	Forget(cluster string)
}

// Config configures a [Source]. Clusters and Access are required.
type Config struct {
	// Clusters are where secrets are looked up. Required.
	Clusters Clusters
	// Access is checked on every lookup of anything with a key. Required.
	Access Rights
	// MayReadConfigCluster lists the IDs of clusters whose callers get the config cluster's
	// objects if their own cluster has none, each in its own namespace. This fully trusts
	// the API server of such a cluster, which determines who its callers are and what they
	// may read. "*" means all clusters, including later ones. Default: none.
	MayReadConfigCluster []string
	// Grants are exceptions for secrets of other namespaces. Default: none.
	Grants []Grant
	// CacheBytes limits the cache of built resources. Default: 64 MiB.
	CacheBytes int
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log never receives a key. Default: [slog.Default].
	Log *slog.Logger
}

const defaultCacheBytes = 64 << 20

// Source serves the secrets. It is safe for concurrent use.
type Source struct {
	cfg   Config
	local string          // ID of the config cluster
	may   map[string]bool // MayReadConfigCluster
	hub   *hub.Hub[place]
	made  *cache
	good  *kept
	seen  *views
	*record
}

// New checks the settings and returns a source. It starts no goroutine.
func New(cfg Config) (*Source, error) {
	if cfg.Clusters == nil || cfg.Access == nil {
		return nil, errors.New("secrets: Config.Clusters and Config.Access are required")
	}
	may := map[string]bool{}
	for _, id := range cfg.MayReadConfigCluster {
		if id == "" {
			return nil, errors.New(`secrets: Config.MayReadConfigCluster has an empty name: a cluster's ID or "*" is needed`)
		}
		may[id] = true
	}
	for i, grant := range cfg.Grants {
		if err := grant.check(); err != nil {
			return nil, fmt.Errorf("secrets: Config.Grants[%d]: %w", i, err)
		}
	}
	local := cfg.Clusters.Local()
	if local == nil {
		return nil, errors.New("secrets: Config.Clusters has no local cluster")
	}
	cfg.setDefaults()
	return &Source{
		cfg: cfg, local: local.ID(), may: may,
		hub: hub.New[place](hub.Config{}), made: newCache(cfg.CacheBytes), good: newKept(), seen: newViews(), record: newRecord(cfg.Log, cfg.Now),
	}, nil
}

func (c *Config) setDefaults() {
	if c.CacheBytes == 0 {
		c.CacheBytes = defaultCacheBytes
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

// Type returns the resource type for a discovery server.
func (s *Source) Type() xds.Type[*discovery.Caller] {
	return xds.Type[*discovery.Caller]{URL: TypeURL, Source: s}
}

// Peek returns the secret as caller may have it now: identity and rights are checked
// each time.
func (s *Source) Peek(caller *discovery.Caller, name string) (*xds.Resource, error) {
	resource, err := s.peek(caller, name)
	if refused, ok := errors.AsType[*refusal](err); ok {
		s.refuses(caller, name, refused)
	}
	return resource, err
}

func (s *Source) peek(caller *discovery.Caller, name string) (*xds.Resource, error) {
	r, err := s.admit(caller, name)
	if err != nil {
		return nil, err
	}
	found, product, err := s.look(r)
	if err != nil {
		s.seen.nothing(r, err)
		return nil, err
	}
	s.seen.note(r, found, product)
	s.remarks(found, product)
	if product.resource == nil {
		return nil, &refusal{Malformed, product.err.Error()}
	}
	if !r.ca {
		s.cfg.Access.Hold(r.subject, r.name)
	}
	return product.resource, nil
}

// look returns the object that r may have and the product built from it.
func (s *Source) look(r request) (object, product, error) {
	if err := s.authorise(r); err != nil {
		return object{}, product{}, err
	}
	found, err := s.find(r)
	if errors.As(err, new(*refusal)) {
		s.good.drop(s.places(r)...)
	}
	if err != nil {
		return object{}, product{}, err
	}
	made := s.made.get(found.key(r), found.stamp, func() product { return found.make(r) })
	return found, s.good.keep(found.key(r), found.uid, made), nil
}

// Watch calls notify after changes of Peek's result: of the object, its cluster, or the
// caller's rights. An error means that this caller can never have the name.
func (s *Source) Watch(caller *discovery.Caller, name string, notify func(name string)) (stop func(), err error) {
	r, err := s.admit(caller, name)
	if err != nil {
		return nil, err
	}
	tell := func() { notify(name) }
	places := s.places(r)
	leave := s.hub.WatchAny(s.withClusters(r, places), tell)
	lose := func() {}
	if !r.ca {
		lose = s.cfg.Access.Watch(r.subject, tell)
	}
	s.seen.watch(r)
	return func() {
		s.seen.leave(r)
		lose()
		leave()
		s.letGo(places)
	}, nil
}

// letGo drops products of objects that are no longer watched: no key is kept
// needlessly.
func (s *Source) letGo(places []place) {
	for _, p := range places {
		if !s.hub.Watched(p) {
			s.made.drop(p)
			s.good.release(p)
		}
	}
}

// Kind is a kind of object.
type Kind int

// The kinds.
const (
	Secret Kind = iota
	ConfigMap
)

// Event is a change of an object; without Namespace and Name, a whole cluster was
// added, replaced, removed or synced.
type Event struct {
	Cluster, Namespace, Name string
	Kind                     Kind
}

// Changed notifies the watchers concerned. It does not block. A burst of changes causes
// one notification; a change of a whole cluster is spread over time.
func (s *Source) Changed(e Event) {
	p := place{e.Cluster, e.Kind, e.Namespace, e.Name}
	if e.Namespace == "" && e.Name == "" {
		s.made.dropCluster(e.Cluster)
		s.good.dropCluster(e.Cluster)
		s.cfg.Access.Forget(e.Cluster)
		s.hub.Spread(wholeOf(e.Cluster))
		return
	}
	s.made.drop(p)
	if !s.hub.Watched(p) {
		s.good.drop(p)
	}
	s.hub.Changed(p)
}

// Close stops all notifications.
func (s *Source) Close() { s.hub.Close() }
