// Package trustbundle keeps one ClusterTrustBundle (certificates.k8s.io/v1, Kubernetes 1.37) up to
// date for each signer name, so that pods can mount the roots of what the signer signs: create a
// [Door] with [New], call [Door.Run] while leading, and [Door.Changed] when an authority's roots
// change.
//
// The object is called DOMAIN:PATH:SUFFIX after the signer DOMAIN/PATH, holds all roots of the
// authority as PEM, and bears the label [owned.ManagedBy], which a pod's volume may select by, with
// those of [Bundle.Labels]. An authority that is away, and names no roots, changes nothing. What another
// client changes or deletes is restored; the more often that is needed, the slower, down to once a
// minute. An object that exists and is not ours is left alone unless [Bundle.Adopt] is set.
//
// Beside it there is one object for each of the [Federated] trust domains; that of a trust domain which
// is no longer among them is deleted, if it is ours.
//
// An account with the verb attest on the signer can publish more bundles for it, and a pod that
// selects bundles by signer name mounts the roots of all of them: RBAC guards that, not this package.
package trustbundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxSize is the API server's limit (certificates.MaxTrustBundleSize).
const maxSize = 1 << 20

// Bundle names the authority whose roots to publish for a signer name.
type Bundle struct {
	Signer    string
	Authority string
	// Name is the object's, DOMAIN:PATH:SUFFIX. Default: [DefaultName].
	Name string
	// Labels are set on the object, in the place of all others of SPIFFE that it has. Default: none.
	Labels map[string]string
	// Further roots are published beside them. Default: none.
	Further *pki.Bundle
	// Adopt takes over an object of that name which exists without our label. Default: it is
	// left alone, and nothing is published.
	Adopt bool
	// Federated has an object for each foreign trust domain. Default: none.
	Federated Federated
}

// Config configures a [Door].
type Config struct {
	// Cluster is the name of the cluster in messages.
	Cluster string
	// Client reaches its API server. It needs get, list, watch, create and update on
	// clustertrustbundles, and the verb attest on each signer; for [Federated], delete, too. Required.
	Client  kubernetes.Interface
	Bundles []Bundle
	// Roots returns the roots to publish, from memory; none, if none are known. Required.
	Roots func(authority string) *pki.Bundle
	// Written receives the roots that all bundles of an authority in this cluster hold, often
	// the same ones; fewer, perhaps none, if another client has removed some that cannot be
	// restored, or had when Run began. It must not block. Default: none.
	Written func(authority string, roots *pki.Bundle)
	// Held returns nil while this replica may write: lease.Held. Default: always.
	Held func() error
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// Door publishes trust bundles in one cluster. It is safe for concurrent use.
type Door struct {
	cfg      Config
	keepers  []*keeper
	sweepers []*sweeper

	order sync.Mutex // held while Config.Written is called: the last call has the newest roots
}

// Status is the state of one bundle.
type Status struct {
	Signer, Authority, Object string
	// TrustDomain is set for a foreign one, which has no Authority.
	TrustDomain string
	// Roots are the fingerprints that the object was last seen with; none before that.
	Roots []string
	// Error is why it is not as it should be; empty if it is.
	Error string
}

// New checks the settings. It asks nothing.
func New(cfg Config) (*Door, error) {
	cfg.Bundles = slices.Clone(cfg.Bundles)
	for i, b := range cfg.Bundles {
		cfg.Bundles[i].Name = cmp.Or(b.Name, DefaultName(b.Signer))
	}
	if cfg.Written == nil {
		cfg.Written = func(string, *pki.Bundle) {}
	}
	cfg.Held, cfg.Log = owned.Defaults(cfg.Held, cfg.Log)
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("trustbundle: %w", err)
	}
	d := &Door{cfg: cfg}
	for _, b := range cfg.Bundles {
		d.keepers = append(d.keepers, d.newKeeper(b, ""))
		for _, domain := range b.Federated.TrustDomains {
			d.keepers = append(d.keepers, d.newKeeper(b, domain))
		}
		d.sweepers = append(d.sweepers, d.newSweeper(b))
	}
	return d, nil
}

func (c Config) check() error {
	var errs []error
	if c.Client == nil || c.Roots == nil {
		errs = append(errs, errors.New("Config.Client and Config.Roots are required"))
	}
	signers := map[string]bool{}
	for _, b := range c.Bundles {
		errs = append(errs, b.check())
		if signers[b.Signer] {
			errs = append(errs, fmt.Errorf("there are two bundles of signer %.64q: a signer has one", b.Signer))
		}
		signers[b.Signer] = true
	}
	return errors.Join(errs...)
}

func (b Bundle) check() error {
	if err := signing.CheckName(b.Signer); err != nil {
		return err
	}
	suffix, ok := strings.CutPrefix(b.Name, prefix(b.Signer))
	switch {
	case b.Authority == "":
		return fmt.Errorf("the bundle of signer %q names no authority", b.Signer)
	case !ok || len(content.IsDNS1123Subdomain(suffix)) > 0:
		return fmt.Errorf("the bundle of signer %q is called %.64q: use %s and a suffix of lower case letters, digits, '-' and '.'", b.Signer, b.Name, prefix(b.Signer))
	}
	return b.checkFederated()
}

// DefaultName returns the name of a signer's object unless a [Bundle] has another. It is what
// the rights of deploy/kustomize/ra are for.
func DefaultName(signer string) string { return prefix(signer) + "bundle" }

// prefix is what the API server demands of the names of a signer's bundles.
func prefix(signer string) string { return strings.ReplaceAll(signer, "/", ":") + ":" }

// Run keeps the bundles until ctx ends, and returns when all goroutines are done. It may be called
// again after that, but not twice at once.
func (d *Door) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, k := range d.keepers {
		wg.Go(func() { k.run(ctx) })
	}
	for _, s := range d.sweepers {
		wg.Go(func() { s.loop.Run(ctx) })
	}
	wg.Wait()
}

// Changed reports that an authority has other roots now. It never blocks: what to publish comes
// from [Config.Roots], so roots is for the signature of ra.Config.RootsChanged alone.
func (d *Door) Changed(authority string, _ *pki.Bundle) {
	for _, k := range d.keepers {
		if k.foreign == "" && k.bundle.Authority == authority {
			k.changed.Send()
		}
	}
}

// ForeignChanged reports that a trust domain which a signer is federated with has other roots now, or
// has them for the first time. It never blocks.
func (d *Door) ForeignChanged(signer, trustDomain string) {
	for _, k := range d.keepers {
		if k.foreign == trustDomain && k.bundle.Signer == signer {
			k.changed.Send()
		}
	}
}

// Foreign returns the roots that the object of a foreign trust domain was last seen with; nil before
// that, and while it has none.
func (d *Door) Foreign(signer, trustDomain string) *pki.Bundle {
	for _, k := range d.keepers {
		if k.foreign == trustDomain && k.bundle.Signer == signer {
			held, _ := k.state()
			return held
		}
	}
	return nil
}

// Ready returns nil while the bundle of each signer holds the roots of its authority, or these are not
// known yet. Otherwise it returns what is missing. A foreign trust domain does not decide about it.
func (d *Door) Ready() error {
	var errs []error
	for _, k := range d.keepers {
		if k.foreign != "" {
			continue
		}
		if err := k.ready(); err != nil {
			errs = append(errs, fmt.Errorf("cluster %q: ClusterTrustBundle %q: %w", d.cfg.Cluster, k.name, err))
		}
	}
	return errors.Join(errs...)
}

// Status returns the state of each bundle, with an entry for objects of former foreign trust domains
// that cannot be deleted.
func (d *Door) Status() []Status {
	var all []Status
	for _, k := range d.keepers {
		s := Status{Signer: k.bundle.Signer, Authority: k.bundle.Authority, Object: k.name, TrustDomain: k.foreign}
		held, _ := k.state()
		s.Roots = held.Fingerprints()
		if err := k.ready(); err != nil {
			s.Error = err.Error()
		}
		all = append(all, s)
	}
	for _, s := range d.sweepers {
		if err := s.loop.Err(); err != nil && !errors.Is(err, owned.ErrNotWritten) {
			all = append(all, Status{Signer: s.bundle.Signer, Object: FederatedName(s.bundle.Name, "*"), TrustDomain: "*", Error: text.Clean(err.Error())})
		}
	}
	return all
}

// confirm reports which roots all bundles of the authority hold, unless one was not seen yet.
func (d *Door) confirm(authority string) {
	d.order.Lock()
	defer d.order.Unlock()
	var common *pki.Bundle
	for _, k := range d.keepers {
		if k.foreign != "" || k.bundle.Authority != authority {
			continue
		}
		held, _ := k.state()
		if held == nil {
			return
		}
		if common == nil {
			common = held
		}
		common = common.Filter(held.Contains)
	}
	d.cfg.Written(authority, common)
}
