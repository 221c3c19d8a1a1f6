package record

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// numbers asks a record at most every two seconds for the number of the same content.
type numbers struct {
	record *BundleNumber
	log    *slog.Logger

	mu     sync.Mutex
	digest string
	recent *Recent[uint64] // of digest; 0: another replica has newer content
}

// Numbering returns a function for Number of federation.Publication: a [BundleNumber] in a ConfigMap,
// which is read at most every two seconds for the same content.
func Numbering(object Object, settle time.Duration, log *slog.Logger) (func(ctx context.Context, digest string, least uint64) (uint64, error), error) {
	store, err := NewSingle(object, BundleNumberKey)
	if err != nil {
		return nil, err
	}
	n := &numbers{record: NewBundleNumber(store, settle), log: log}
	return n.number, nil
}

func (n *numbers) number(ctx context.Context, digest string, least uint64) (uint64, error) {
	number, err := n.of(digest).Get(ctx, n.log, func(ctx context.Context) (uint64, error) {
		number, err := n.record.Number(ctx, digest, least)
		if errors.Is(err, ErrOutdated) {
			return 0, nil // that is an answer
		}
		return number, err
	})
	if err == nil && number == 0 {
		err = ErrOutdated
	}
	return number, err
}

func (n *numbers) of(digest string) *Recent[uint64] {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.recent == nil || n.digest != digest {
		n.digest, n.recent = digest, &Recent[uint64]{}
	}
	return n.recent
}
