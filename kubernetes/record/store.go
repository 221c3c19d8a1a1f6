package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/countersign-dev/countersign/ra/share"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxRecord bounds the record of one authority, in bytes. An API server takes 1 MiB for all.
	maxRecord = 512 << 10
	timeout   = 10 * time.Second // for each request
	attempts  = 5                // to write, if other replicas write as well
)

// Store is a ra.Updater: a ConfigMap with a key for each authority, which holds the phases of its roots
// and by how much it backdates. It reads the API server at each call, and is safe for concurrent use.
type Store struct {
	object Object
	held   func() error
	turn   chan struct{} // taken by each update: the authorities of a process would conflict
}

// NewStore checks the settings. It sends nothing. Held returns nil while this replica may write, as
// lease.Held does; nil means always.
func NewStore(object Object, held func() error) (*Store, error) {
	if held == nil {
		held = func() error { return nil }
	}
	return &Store{object, held, make(chan struct{}, 1)}, object.check()
}

// checkName refuses names of authorities that cannot be a key of a ConfigMap.
func checkName(authority string) error {
	if len(validation.IsConfigMapKey(authority)) > 0 {
		return fmt.Errorf("invalid name %.256q of an authority: use letters, digits, '-', '_' and '.', 253 at most, as it is a key of a ConfigMap", authority)
	}
	return nil
}

// Load returns the record of an authority; none, without an error, if there is none. What is
// malformed fails with the reason [ca.Invalid].
func (s *Store) Load(ctx context.Context, authority string) ([]byte, error) {
	if err := checkName(authority); err != nil {
		return nil, err
	}
	c, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	value, has := c.data[authority]
	if !has {
		return nil, nil
	}
	if err := checkRecord([]byte(value)); err != nil {
		return nil, ca.Errorf(ca.Invalid, "invalid key %q of %s: %w", authority, s.object, err)
	}
	return []byte(value), nil
}

// Save keeps a record. An error leaves open whether it was kept.
func (s *Store) Save(ctx context.Context, authority string, record []byte) error {
	return s.Update(ctx, authority, func([]byte) []byte { return record })
}

// Update replaces a record with the result of change, and calls that again if another replica has
// replaced the record meanwhile. Reading alone does not call held. A malformed record is passed to
// change as it is.
func (s *Store) Update(ctx context.Context, authority string, change func(record []byte) []byte) error {
	if err := checkName(authority); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("record of authority %.256q: %w", authority, ctx.Err())
	}
	var err error
	for range attempts {
		if err = s.update(ctx, authority, change); !errors.Is(err, share.ErrConflict) {
			break
		}
	}
	return err
}

// update replaces what it has read, or fails: a leader that was stopped between the two does not
// overwrite its successor's record.
func (s *Store) update(ctx context.Context, authority string, change func(record []byte) []byte) error {
	c, err := s.get(ctx)
	if err != nil {
		return err
	}
	before := c.data[authority]
	record := change([]byte(before))
	if before == string(record) {
		return nil
	}
	if err := checkRecord(record); err != nil {
		return fmt.Errorf("record of authority %.256q: %w", authority, err)
	}
	c.data[authority] = string(record)
	if err := s.held(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.object.put(ctx, c)
}

func (s *Store) get(ctx context.Context) (content, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.object.get(ctx)
}

// checkRecord takes a JSON object of a size that fits.
func checkRecord(record []byte) error {
	if len(record) > maxRecord {
		return fmt.Errorf("it has %d bytes, %d are allowed", len(record), maxRecord)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(record, &object) != nil || object == nil {
		return errors.New("it is not a JSON object")
	}
	return nil
}
