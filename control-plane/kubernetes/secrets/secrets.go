// Package secrets serves Kubernetes' secrets of many clusters as Envoy's secrets: [New]
// returns the source of the type for a discovery server. A caller has what its verified
// namespace has, in its own cluster first and in the config cluster if its cluster may;
// what it says of itself gives it nothing.
//
// A resource is named kubernetes://<name>, kubernetes://<namespace>/<name>,
// kubernetes-gateway://<namespace>/<name> or configmap://<namespace>/<name>. A secret is
// a certificate with its key, which takes the right to list secrets in the caller's own
// namespace (package access). With -cacert at the end of its name, and as a config map, it
// is a CA: that takes no right, and never yields a key.
package secrets

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/access"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/discovery/hub"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// TypeURL is the type of what is served.
const TypeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// ErrNotFound is what a [Cluster] answers for an object that is not there; wrapped errors
// count ([errors.Is]). With any other error it is not known yet whether it is.
var ErrNotFound = errors.New("there is no such object")

// Cluster is one cluster's objects as they are known now. Its methods do not block, and
// nobody changes what they return. An object has a resource version.
type Cluster interface {
	ID() string
	Secret(namespace, name string) (*corev1.Secret, error)
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
}

// Clusters are those that are connected.
type Clusters interface {
	// Cluster returns the one of that ID, false for one that is not connected.
	Cluster(id string) (Cluster, bool)
	// Local is the config cluster, which the server is in. Its ID never changes.
	Local() Cluster
}

// Rights says who may list the secrets of its namespace, as [access.Access] does.
type Rights interface {
	Peek(s access.Subject) error
	Watch(s access.Subject, notify func()) (stop func(), err error)
	Forget(cluster string)
}

// Config is what a [Source] is made of.
type Config struct {
	// Clusters are where secrets are looked up. Required.
	Clusters Clusters
	// Access is asked each time for everything that has a key. Required.
	Access Rights
	// MayReadConfigCluster are the IDs of clusters whose callers have the config cluster's
	// objects where their own cluster has none, each in its own namespace. That trusts the
	// API server of such a cluster fully: it says who its callers are and what they may
	// read. "*" is all clusters, those added later too. Default: none.
	MayReadConfigCluster []string
	// Grants are exceptions for secrets of other namespaces. Default: none.
	Grants []Grant
	// CacheBytes bounds what is kept of resources that are made. Default: 64 MiB.
	CacheBytes int
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

const defaultCacheBytes = 64 << 20

// Source has the secrets. It is safe for concurrent use.
type Source struct {
	cfg   Config
	local string          // ID of the config cluster
	may   map[string]bool // MayReadConfigCluster
	hub   *hub.Hub[place]
	made  *cache
	seen  *views
	*record
}

// New checks the settings.
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
		hub: hub.New[place](hub.Config{}), made: newCache(cfg.CacheBytes), seen: newViews(), record: newRecord(cfg.Log, cfg.Now),
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
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Type returns the type for a discovery server.
func (s *Source) Type() xds.Type[*discovery.Caller] {
	return xds.Type[*discovery.Caller]{URL: TypeURL, Source: s}
}

// Peek returns the secret as caller may have it now: who it is and what it may are
// looked at each time.
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
	if product.err != nil {
		return nil, &refusal{Malformed, product.err.Error()}
	}
	return product.resource, nil
}

// look returns the object that r may have, and what was made of it.
func (s *Source) look(r request) (object, product, error) {
	if err := s.authorise(r); err != nil {
		return object{}, product{}, err
	}
	found, err := s.find(r)
	if err != nil {
		return object{}, product{}, err
	}
	return found, s.made.get(found.key(r), found.stamp, func() product { return found.make(r) }), nil
}

// Watch has notify called after changes of what Peek answers: of the object, of its
// cluster, and of the caller's rights. An error is a name that this caller never has.
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
		if lose, err = s.cfg.Access.Watch(r.subject, tell); err != nil {
			leave()
			return nil, err
		}
	}
	s.seen.watch(r)
	return func() {
		s.seen.leave(r)
		lose()
		leave()
		s.letGo(places)
	}, nil
}

// letGo drops what was made of objects that nobody watches any more: a key is kept for
// no one.
func (s *Source) letGo(places []place) {
	for _, p := range places {
		if !s.hub.Watched(p) {
			s.made.drop(p)
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

// Event is a change of an object; without Namespace and Name, that a cluster as a whole
// was added, swapped, removed or synced.
type Event struct {
	Cluster, Namespace, Name string
	Kind                     Kind
}

// Changed has those told who watch what has changed. It does not block. Of a burst of
// changes they hear once, of a cluster as a whole one after the other.
func (s *Source) Changed(e Event) {
	p := place{e.Cluster, e.Kind, e.Namespace, e.Name}
	if e.Namespace == "" && e.Name == "" {
		s.made.dropCluster(e.Cluster)
		s.cfg.Access.Forget(e.Cluster)
		s.hub.Spread(wholeOf(e.Cluster))
		return
	}
	s.made.drop(p)
	s.hub.Changed(p)
}

// Close ends the telling of changes.
func (s *Source) Close() { s.hub.Close() }
