// Package istiodtls keeps the Secret istiod-tls, with which istiod serves its webhooks and its
// proxies where its own CA is off (ENABLE_CA_SERVER=false): create a [Keeper] with [New], and
// call [Keeper.Run] while leading.
//
// The key is made here, and goes nowhere but into the Secret. Package secret obtains and renews
// the certificate, through the engine of the registration authority: by a rule, with a line in
// the audit log, and below roots that are delivered. What it needs to know after a change of the
// leader is in the Secret, too, so that the next leader goes on with the certificate that is there.
//
// A Secret that exists and is not ours is left alone unless [Config].Adopt is set, and no
// certificate is requested then. What another client changes or deletes is restored; the more often
// that is needed, the slower, down to once in ten minutes.
package istiodtls

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Name is the Secret's.
const Name = istiod.Secret

// Config configures a [Keeper].
type Config struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Client reaches its API server. It needs get, create and patch on that Secret. Required.
	Client kubernetes.Interface
	// Namespace is istiod's. Required.
	Namespace string
	// Names are the certificate's. Default: [istiod.Names] of the namespace.
	Names []string
	// Issuer is asked for certificates at [istiod.Door], which has the [istiod.Rule]. Required.
	Issuer ra.Issuer
	// Authority is the rule's.
	Authority string
	// TTL is the lifetime to ask for. Default: 24 hours.
	TTL time.Duration
	// Roots returns the roots to verify with, from memory; none, if none are known. Required.
	Roots func(authority string) *pki.Bundle
	// Further roots are written beside them. Default: none.
	Further *pki.Bundle
	// Adopt takes over a Secret that exists without our label. Default: it is left alone.
	Adopt bool
	// Held returns nil while this replica may write: lease.Held. Default: always.
	Held func() error
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// Keeper keeps the Secret of one cluster. It is safe for concurrent use.
type Keeper struct {
	cfg      Config
	identity pki.Identity
	loop     *owned.Loop
	changed  owned.Notice // something to write may have
	roots    owned.Notice // the authority's roots may have

	mu      sync.Mutex
	records map[string]kept // by name, as package secret stores them
	status  Status

	// Of the goroutine that runs it.
	pairs *secret.Manager // nil: the Secret may not be written yet
	seen  *pki.Bundle     // the last roots that were not none
}

// Status is the state of the Secret. It holds no key.
type Status struct {
	Namespace, Authority string
	// Fingerprint and NotAfter are those of the certificate in it; zero while there is none.
	Fingerprint string
	NotAfter    time.Time
	// Rival is a program that keeps writing the Secret, too, where that is known.
	Rival string
	// Error is why it is not as it should be; empty if it is.
	Error string
}

// New checks the settings. It asks nothing.
func New(cfg Config) (*Keeper, error) {
	if cfg.Client == nil || cfg.Issuer == nil || cfg.Roots == nil || cfg.Namespace == "" {
		return nil, errors.New("istiodtls: Config.Client, Config.Issuer, Config.Roots and Config.Namespace are required")
	}
	if len(cfg.Names) == 0 {
		cfg.Names = istiod.Names(cfg.Namespace)
	}
	identity, err := pki.NewIdentity("", cfg.Names, nil)
	if err != nil {
		return nil, fmt.Errorf("istiodtls: %w", err)
	}
	cfg.TTL = cmp.Or(cfg.TTL, 24*time.Hour)
	cfg.Held, cfg.Log = owned.Defaults(cfg.Held, cfg.Log)
	cfg.Log = cfg.Log.With("cluster", cfg.Cluster, "object", cfg.Namespace+"/"+Name)
	k := &Keeper{cfg: cfg, identity: identity, changed: owned.NewNotice(), roots: owned.NewNotice()}
	k.loop = &owned.Loop{
		Look: k.look, Rules: pace, Resync: resync, Changed: k.changed, Adopt: cfg.Adopt, Held: cfg.Held, Log: cfg.Log.With("authority", cfg.Authority),
		What: "istiod's Secret", Lacks: "istiod's certificate is not in its Secret",
	}
	k.status = Status{Namespace: cfg.Namespace, Authority: cfg.Authority}
	return k, nil
}

// Changed reports that an authority has other roots now. It never blocks: what to write comes from
// [Config.Roots], so roots is for the signature of ra.Config.RootsChanged alone.
func (k *Keeper) Changed(authority string, _ *pki.Bundle) {
	if authority == k.cfg.Authority {
		k.roots.Send()
		k.changed.Send()
	}
}

// Ready returns nil while the Secret is as it should be. Otherwise it returns what is missing.
func (k *Keeper) Ready() error {
	if err := k.loop.Err(); err != nil {
		return fmt.Errorf("cluster %q: Secret %s/%s: %w", k.cfg.Cluster, k.cfg.Namespace, Name, err)
	}
	return nil
}

// Status returns the state of the Secret.
func (k *Keeper) Status() Status {
	err := k.Ready()
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.status
	if s.Rival = k.loop.Rival(); err != nil {
		s.Error = text.Clean(err.Error())
	}
	return s
}
