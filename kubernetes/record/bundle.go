package record

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/peers"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra/share"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// BundleKey is the key of the published bundle in a ConfigMap of its own.
const BundleKey = "published-bundle.json"

const (
	bundleVersion = 1
	// maxNumber is the largest number that all JSON readers have (RFC 8259, section 6).
	maxNumber = 1<<53 - 1
)

// bundleRecord is the content of the record.
type bundleRecord struct {
	Version     int    `json:"version"`
	TrustDomain string `json:"trust_domain"` // empty in a record of any
	Number      uint64 `json:"number"`
	Roots       string `json:"roots"` // PEM
}

// edition is a published bundle.
type edition struct {
	number uint64
	roots  *pki.Bundle
}

// Publishing configures [Shared].
type Publishing struct {
	// Object is a ConfigMap of its own. Required.
	Object Object
	// TrustDomain is whose roots these are: those that the record has of another one count as none.
	TrustDomain string
	// Settle is longer than it takes until all replicas know a new root.
	Settle time.Duration
	// Forget is longer than a root can be left on some replicas alone, at least Settle.
	Forget time.Duration
	// Log is required.
	Log *slog.Logger
}

// bundle is what all replicas publish.
type bundle struct {
	Publishing
	store  share.Store
	recent Recent[edition] // makes one call of publish at a time

	last  edition     // what the record had last
	own   *pki.Bundle // what this replica had then
	since time.Time   // since when the two differ; monotonic, zero if they do not
}

// Shared returns a function for Shared of federation.Publication. All replicas publish what the record
// has, which is read at most every two seconds. A replica applies changes of its own roots to the record
// at once. Another difference may be due to the time at which replicas learn of a change: after Settle
// a replica adds what it has, and after Forget it removes what it does not have. One that does not know
// its roots now, as own is nil, changes nothing. The numbers grow, also when the record is lost while a
// replica runs.
func Shared(p Publishing) (func(ctx context.Context, own *pki.Bundle, least uint64) (*pki.Bundle, uint64, error), error) {
	store, err := NewSingle(p.Object, BundleKey)
	if err != nil {
		return nil, err
	}
	b := &bundle{Publishing: p, store: store}
	return func(ctx context.Context, own *pki.Bundle, least uint64) (*pki.Bundle, uint64, error) {
		e, err := b.recent.Get(ctx, p.Log, func(ctx context.Context) (edition, error) { return b.publish(ctx, own, least) })
		if e.roots.Len() == 0 {
			return nil, 0, cmp.Or(err, errNothing)
		}
		return e.roots, e.number, nil // the last one while the API server is away
	}, nil
}

var errNothing = errors.New("no replica has published a bundle yet")

// publish returns what the record has after a change that is due.
func (b *bundle) publish(ctx context.Context, own *pki.Bundle, least uint64) (e edition, err error) {
	for range attempts {
		if e, err = b.attempt(ctx, own, least); !errors.Is(err, share.ErrConflict) {
			break
		}
	}
	return e, err
}

func (b *bundle) attempt(ctx context.Context, own *pki.Bundle, least uint64) (edition, error) {
	text, version, err := b.store.Load(ctx)
	if err != nil {
		return edition{}, err
	}
	kept, err := b.parse(text)
	if err != nil {
		return edition{}, err
	}
	kept, lost := b.restore(kept)
	next := edition{kept.number, b.next(kept.roots, own)}
	changed := !next.roots.Equal(kept.roots)
	if changed {
		next.number = min(max(kept.number+1, least), maxNumber)
	}
	if changed || lost {
		if err := b.save(ctx, next, version); err != nil {
			return edition{}, err
		}
	}
	if b.last = next; own != nil {
		b.own = own
	}
	if changed {
		b.since = time.Time{}
	}
	return next, nil
}

// restore returns what the record had last if that is lost: the object was deleted, restored from a copy,
// or has malformed roots.
func (b *bundle) restore(kept edition) (e edition, lost bool) {
	switch {
	case b.last.roots.Len() == 0:
		return kept, false
	case kept.number < b.last.number, kept.number == b.last.number && kept.roots.Len() == 0:
		return b.last, true
	case kept.roots.Len() == 0: // that number was another content
		return edition{min(kept.number+1, maxNumber), b.last.roots}, true
	}
	return kept, false
}

// next returns the roots that follow those of the record.
func (b *bundle) next(kept, own *pki.Bundle) *pki.Bundle {
	if own == nil {
		b.since = time.Time{}
		return kept
	}
	differ := b.differ(kept, own)
	switch {
	case kept.Len() == 0:
		return own
	case b.own != nil && !b.own.Equal(own):
		return kept.Filter(func(root *x509.Certificate) bool { return !b.own.Contains(root) }).Union(own)
	case differ >= b.Forget:
		b.Log.Warn("publishing the roots of this replica alone, as no replica has removed or confirmed the others", "after", b.Forget)
		return own
	case differ >= b.Settle && !kept.Union(own).Equal(kept):
		b.Log.Warn("adding the roots of this replica to the published bundle, which another replica wrote without them", "after", b.Settle)
		return kept.Union(own)
	}
	return kept
}

// differ returns for how long the record has had the same roots, which are not those of this replica.
func (b *bundle) differ(kept, own *pki.Bundle) time.Duration {
	switch {
	case kept.Equal(own):
		b.since = time.Time{}
		return 0
	case b.since.IsZero() || !kept.Equal(b.last.roots):
		b.since = time.Now()
	}
	return time.Since(b.since)
}

func (b *bundle) save(ctx context.Context, e edition, version string) error {
	text, err := json.Marshal(bundleRecord{bundleVersion, b.TrustDomain, e.number, string(e.roots.PEM())})
	if err != nil {
		return err
	}
	return b.store.Save(ctx, text, version)
}

// parse reads a record. The roots of a malformed one count as none: their successors have the next
// number, or the time if that is malformed, too. A trust anchor need not be self-signed.
func (b *bundle) parse(record []byte) (edition, error) {
	if err := peers.CheckVersion(record, bundleVersion); err != nil {
		return edition{}, fmt.Errorf("the record of the published bundle: %w", err)
	}
	if len(record) == 0 {
		return edition{}, nil
	}
	var kept bundleRecord
	var roots []*x509.Certificate
	err := json.Unmarshal(record, &kept)
	if err == nil {
		roots, err = pki.ParseCertificates([]byte(kept.Roots))
	}
	if other := kept.TrustDomain; err == nil && other != "" && other != b.TrustDomain {
		roots, err = nil, fmt.Errorf("it is of the trust domain %.256q", other)
	}
	if err != nil {
		b.Log.Warn("the record of the published bundle cannot be used", "error", text.Clean(err.Error()))
	}
	if kept.Number >= maxNumber {
		return edition{}, nil
	}
	return edition{kept.Number, pki.NewBundle(roots...)}, nil
}
