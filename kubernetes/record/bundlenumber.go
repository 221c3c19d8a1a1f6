package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/peers"
	"github.com/countersign-dev/countersign/ra/share"
)

// BundleNumberKey is the key of a [BundleNumber] in a ConfigMap.
const BundleNumberKey = "published-bundle.json"

// ErrOutdated is the error while another replica has published newer content.
var ErrOutdated = errors.New("another replica published other content")

const bundleNumberVersion = 1

// keptNumber is the content of the record.
type keptNumber struct {
	Version int    `json:"version"`
	Number  uint64 `json:"number"`
	Digest  string `json:"digest"`
}

// BundleNumber numbers the content of a bundle endpoint for all replicas: the same content has one
// number, and the numbers grow. It is for Number of federation.Publication, and safe for concurrent use.
type BundleNumber struct {
	store  share.Store
	settle time.Duration

	mu     sync.Mutex
	agreed string    // the digest that the record and this replica had last
	other  string    // another digest in the record
	since  time.Time // since when it is there; monotonic
}

// NewBundleNumber returns one that keeps its record in store. A replica whose content differs from that
// of the record writes its own at once if only its own has changed. Otherwise it may be late, and writes
// after settle.
func NewBundleNumber(store share.Store, settle time.Duration) *BundleNumber {
	return &BundleNumber{store: store, settle: settle}
}

// Number returns the number of the content with this digest; a new one is least or more. The error
// wraps [ErrOutdated] while another replica's content may be newer. It reads the store at each call.
func (b *BundleNumber) Number(ctx context.Context, digest string, least uint64) (number uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range attempts {
		if number, err = b.number(ctx, digest, least); !errors.Is(err, share.ErrConflict) {
			break
		}
	}
	return number, err
}

func (b *BundleNumber) number(ctx context.Context, digest string, least uint64) (uint64, error) {
	text, version, err := b.store.Load(ctx)
	if err != nil {
		return 0, err
	}
	kept, err := parseNumber(text)
	if err != nil {
		return 0, err
	}
	if kept.Digest != digest {
		if !b.mayReplace(kept.Digest) {
			return 0, ErrOutdated
		}
		kept = keptNumber{bundleNumberVersion, max(kept.Number+1, least), digest}
		if err := b.save(ctx, kept, version); err != nil {
			return 0, err
		}
	}
	b.agreed, b.other = digest, ""
	return kept.Number, nil
}

// mayReplace reports whether this replica's content is newer than the one that the record has.
func (b *BundleNumber) mayReplace(recorded string) bool {
	if recorded == "" || recorded == b.agreed {
		return true
	}
	if b.other != recorded {
		b.other, b.since = recorded, time.Now()
	}
	return time.Since(b.since) >= b.settle
}

func (b *BundleNumber) save(ctx context.Context, kept keptNumber, version string) error {
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return b.store.Save(ctx, text, version)
}

// parseNumber reads a record. One that is not JSON counts as none: the next number is the time.
func parseNumber(text []byte) (kept keptNumber, err error) {
	if err := peers.CheckVersion(text, bundleNumberVersion); err != nil {
		return kept, fmt.Errorf("the number of the published bundle: %w", err)
	}
	if !json.Valid(text) {
		return kept, nil
	}
	return kept, json.Unmarshal(text, &kept)
}
