package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// Storage keeps records across a restart, so that a [Manager] that starts while its
// authority is away can serve at once what is still valid. The Manager calls it from one
// goroutine at a time, with a deadline. Records hold private keys: package sdk/state has a
// Storage that encrypts them.
type Storage interface {
	// Load returns the record last stored for name, or the zero Record if there is none.
	// It returns an error in all other cases.
	Load(ctx context.Context, name string) (Record, error)
	// Store replaces the record. A record without Content means: keep nothing.
	Store(ctx context.Context, name string, record Record) error
}

// Record is what a [Storage] keeps under a name. Its fields belong together: a Storage
// returns all three as they were stored, or an error.
//
// Printing, logging and JSON encoding never show the content. A Storage that writes JSON
// therefore encodes the fields in a struct of its own.
type Record struct {
	// Identity is the requested identity, and Authority the configured name of the signer.
	// Identity is empty in the record of an authority's roots.
	Identity, Authority string
	// Content is opaque and may hold a private key.
	Content []byte
}

// String returns a one-line summary without the content.
func (r Record) String() string {
	return fmt.Sprintf("record of %q by %q (%d bytes)", r.Identity, r.Authority, len(r.Content))
}

// GoString returns String, so that %#v does not show the key either.
func (r Record) GoString() string { return r.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (r Record) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// MarshalJSON encodes the record with the size of its content in place of the content.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Identity  string `json:"identity"`
		Authority string `json:"authority"`
		Bytes     int    `json:"bytes"`
	}{r.Identity, r.Authority, len(r.Content)})
}

// LogValue returns the fields of MarshalJSON.
func (r Record) LogValue() slog.Value {
	return slog.GroupValue(slog.String("identity", r.Identity), slog.String("authority", r.Authority), slog.Int("bytes", len(r.Content)))
}

// RecordOf returns the name of the record that a [Manager] stores of the key pair name.
// Experimental.
func RecordOf(name string) string { return "secret " + name }

// RecordOfRoots returns the name of the record that a [Manager] stores of an authority's roots.
// Experimental.
func RecordOfRoots(authority string) string { return "roots " + authority }
