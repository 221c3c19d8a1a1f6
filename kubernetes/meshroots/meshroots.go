// Package meshroots keeps the ConfigMap istio-ca-root-cert up to date in a mesh's namespaces of
// one cluster. From it sidecars, gateways and ztunnel learn the CA to trust: create a
// [Keeper] with [New], call [Keeper.Run] while leading, and [Keeper.Changed] when the authority's
// roots change.
//
// An authority that is away, and names no roots, changes nothing, and no ConfigMap is ever
// deleted. What another client changes or deletes is restored. A ConfigMap that exists and is not
// ours is left alone unless [Config].Adopt is set.
//
// istiod with its own CA writes these ConfigMaps, too. Two that write by turns would have the
// mesh change its roots all the time, so repairs in a namespace become slow, down to one in ten
// minutes, and the other writer is named: one of both has to be turned off.
//
// Of each namespace its name, labels and state are kept, and of its ConfigMap a hash: 1.3 KB beside
// client-go's index.
package meshroots

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The names that the programs of a mesh read.
const (
	Name = "istio-ca-root-cert"
	Key  = "root-cert.pem"
)

// maxSize leaves room below the API server's limit of 1 MiB for an object.
const maxSize = 1 << 20 * 9 / 10

// Config configures a [Keeper].
type Config struct {
	// Cluster is the name of the cluster in messages.
	Cluster string
	// Client reaches its API server. It needs list and watch on namespaces, and list, watch,
	// create and patch on the ConfigMaps of that name. Required.
	Client kubernetes.Interface
	// Namespaces chooses them by their labels. Required.
	Namespaces labels.Selector
	// Authority is the one whose roots these are.
	Authority string
	// Roots returns its roots, from memory; none, if none are known. Required.
	Roots func(authority string) *pki.Bundle
	// Further roots are published beside them, such as those of the CA that the mesh had
	// before. Default: none.
	Further *pki.Bundle
	// Written receives the authority's roots that all namespaces have, often the same ones. A
	// namespace in which others keep the ConfigMap from having them counts until they have been
	// known for an hour: owners cannot delay a root of the mesh for longer. It receives none, if
	// some have had others for a minute, or had when Run began. It must not block.
	// Default: none.
	Written func(authority string, roots *pki.Bundle)
	// Lacking returns since when namespaces lack the roots, by the record of a former leader; zero: they did
	// not. An owner gets no new hour with each leader. It must not block. Default: zero.
	Lacking func() time.Time
	// Adopt takes over ConfigMaps that exist without our label. Default: they are left
	// alone, and nothing counts as written.
	Adopt bool
	// Held returns nil while this replica may write: lease.Held. Default: always.
	Held func() error
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// Keeper keeps the ConfigMaps of one cluster. It is safe for concurrent use.
type Keeper struct {
	cfg     Config
	changed owned.Notice // the authority's roots may have
	telling sync.Mutex

	selector atomic.Pointer[labels.Selector]
	reselect owned.Notice // it has changed

	mu     sync.Mutex
	want   *want             // what all should have; nil: no roots were ever known
	told   *want             // that all have it
	places map[string]*place // by namespace: those of the current run
	right  int               // how many of places have want
	left   int               // how many others no root waits for
	listed bool              // all namespaces are in places
	fault  error             // why roots are not published anywhere
	notes  notes
}

// want is what the ConfigMaps should have. It does not change.
type want struct {
	roots *pki.Bundle // of the authority
	text  string
	sum   string
	since time.Time
}

// Status is the state of the ConfigMaps.
type Status struct {
	Authority string
	// Roots are the fingerprints of what is published.
	Roots []string
	// Namespaces are chosen, and Lacking of them do not have these roots.
	Namespaces, Lacking int
	// Left are namespaces that no new root waits for, as others have kept their ConfigMap from
	// having the roots for an hour.
	Left []string
	// Disputed is in how many another client keeps writing, and Rival a program that does,
	// where that is known.
	Disputed int
	Rival    string
	// Error is why the roots are not everywhere, by example; empty if they are.
	Error string
}

// New checks the settings. It asks nothing.
func New(cfg Config) (*Keeper, error) {
	if cfg.Client == nil || cfg.Namespaces == nil || cfg.Roots == nil {
		return nil, errors.New("meshroots: Config.Client, Config.Namespaces and Config.Roots are required")
	}
	if cfg.Written == nil {
		cfg.Written = func(string, *pki.Bundle) {}
	}
	if cfg.Lacking == nil {
		cfg.Lacking = func() time.Time { return time.Time{} }
	}
	cfg.Held, cfg.Log = owned.Defaults(cfg.Held, cfg.Log)
	cfg.Log = cfg.Log.With("cluster", cfg.Cluster)
	k := &Keeper{cfg: cfg, changed: owned.NewNotice(), reselect: owned.NewNotice(), places: map[string]*place{}}
	k.selector.Store(&cfg.Namespaces)
	return k, nil
}

// SetNamespaces replaces [Config].Namespaces. ConfigMaps of namespaces that are not chosen any more
// stay as they are.
func (k *Keeper) SetNamespaces(chosen labels.Selector) {
	k.selector.Store(&chosen)
	k.reselect.Send()
}

// Tried reports whether each chosen namespace has the roots, or others keep it from having them. Until
// then, pods of the cluster may lack a root although their namespaces can be written.
func (k *Keeper) Tried() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.listed || k.want == nil {
		return false
	}
	for _, p := range k.places {
		if p.has != k.want && p.wrong.IsZero() {
			return false
		}
	}
	return true
}

// Changed reports that an authority has other roots now. It never blocks: what to publish comes
// from [Config.Roots], so roots is for the signature of ra.Config.RootsChanged alone.
func (k *Keeper) Changed(authority string, _ *pki.Bundle) {
	if authority == k.cfg.Authority {
		k.changed.Send()
	}
}

// Ready returns nil while all chosen namespaces have the roots, or these are not known yet.
// Otherwise it returns what is missing.
func (k *Keeper) Ready() error {
	known := k.cfg.Roots(k.cfg.Authority).Len() > 0
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.missing(known); err != nil {
		return fmt.Errorf("cluster %q: ConfigMaps %s: %w", k.cfg.Cluster, Name, err)
	}
	return nil
}

// missing requires the lock to be held.
func (k *Keeper) missing(known bool) error {
	switch {
	case !known && k.want == nil:
		return nil
	case k.fault != nil:
		return k.fault
	case !k.listed:
		return errors.New("the namespaces are being listed")
	case k.want == nil:
		return owned.ErrNotWritten
	case k.right == len(k.places):
		return nil
	}
	namespace, err := k.example()
	return fmt.Errorf("%d of %d namespaces lack roots, such as %q: %w", len(k.places)-k.right, len(k.places), namespace, err)
}

// example returns a namespace that lacks roots, and why; one that has a reason, if there is one.
func (k *Keeper) example() (namespace string, why error) {
	var failed, waiting []string
	for name, p := range k.places {
		switch {
		case p.has == k.want:
		case p.err != nil:
			failed = append(failed, name)
		default:
			waiting = append(waiting, name)
		}
	}
	if len(failed) > 0 {
		namespace = slices.Min(failed)
		return namespace, k.places[namespace].err
	}
	return slices.Min(waiting), owned.ErrNotWritten
}

// Status returns the state of the ConfigMaps.
func (k *Keeper) Status() Status {
	s := Status{Authority: k.cfg.Authority}
	if err := k.Ready(); err != nil {
		s.Error = text.Clean(err.Error())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.want != nil {
		s.Roots = k.want.roots.Fingerprints()
		s.Namespaces, s.Lacking = len(k.places), len(k.places)-k.right
	}
	for namespace, p := range k.places {
		if p.left {
			s.Left = append(s.Left, namespace)
		}
	}
	slices.Sort(s.Left)
	s.Disputed, s.Rival = k.notes.disputed, k.notes.rival
	return s
}
