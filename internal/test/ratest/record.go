package ratest

import (
	"context"
	"fmt"
	"sync"

	"github.com/countersign-dev/countersign/ra/share"
)

// Record is a [share.Store] in memory, for several replicas.
type Record struct {
	mu      sync.Mutex
	text    []byte
	version int
}

// Load implements [share.Store].
func (r *Record) Load(context.Context) ([]byte, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == 0 {
		return nil, "", nil
	}
	return r.text, fmt.Sprint(r.version), nil
}

// Save implements [share.Store].
func (r *Record) Save(_ context.Context, text []byte, version string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version != "" && version != fmt.Sprint(r.version) || version == "" && r.version > 0 {
		return share.ErrConflict
	}
	r.text, r.version = text, r.version+1
	return nil
}
