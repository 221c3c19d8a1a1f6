package record

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/ra/share"
)

// The keys of single records.
const (
	// Renewals is that of the machines that renew by their certificates, in a ConfigMap.
	Renewals = "renewals.json"
	// Shares is that by which replicas divide the quotas of their authorities, an annotation of a
	// Lease.
	Shares = "countersign.dev/shares"
)

// Single is a [share.Store]: the only record of an object. It reads the API server at each call, and is
// safe for concurrent use.
type Single struct {
	object Object
	key    string
}

var _ share.Store = (*Single)(nil)

// NewSingle checks the settings. It sends nothing.
func NewSingle(object Object, key string) (*Single, error) {
	return &Single{object, key}, object.check()
}

// Load implements [share.Store].
func (s *Single) Load(ctx context.Context) (record []byte, version string, err error) {
	c, err := s.object.get(ctx)
	if err != nil || c.ResourceVersion == "" {
		return nil, "", err
	}
	return []byte(c.data[s.key]), c.ResourceVersion, nil
}

// Save implements [share.Store]. An object that was deleted meanwhile is a conflict, too. What others
// keep in the object stays: its labels, annotations and other keys.
func (s *Single) Save(ctx context.Context, record []byte, version string) error {
	c := s.object.empty()
	if version != "" {
		var err error
		if c, err = s.object.get(ctx); err != nil {
			return err
		}
		if c.ResourceVersion != version {
			return fmt.Errorf("cannot write the %s: %w", s.object, share.ErrConflict)
		}
	}
	c.data[s.key] = string(record)
	return s.object.put(ctx, c)
}
