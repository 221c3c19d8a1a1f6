package secret

import (
	"context"
	"fmt"
	"io"
)

// Storage keeps records over a restart, so that a [Manager] that starts while its
// authority is away serves at once what is still valid. It is called by one
// goroutine at a time, with a context that has a deadline. What it keeps holds
// private keys: see package sdk/state for one that encrypts.
type Storage interface {
	// Load returns the record that Store was last given for name; the zero Record
	// where there is none. Whatever else it finds is an error.
	Load(ctx context.Context, name string) (Record, error)
	// Store keeps the record in place of the one before. One without Content means
	// that nothing is to be kept any more.
	Store(ctx context.Context, name string, record Record) error
}

// Record is what a [Storage] keeps by a name. Its fields belong together: a Storage
// answers with all three as they were stored, or with an error.
//
// However it is printed, its content is not shown.
type Record struct {
	// Identity is what the certificate was asked for, and Authority who signed it, as
	// configured; where it is about an authority's roots, Identity is empty.
	Identity, Authority string
	// Content is opaque, and holds a private key.
	Content []byte
}

// String returns one line about the record, without its content.
func (r Record) String() string {
	return fmt.Sprintf("record of %q by %q (%d bytes)", r.Identity, r.Authority, len(r.Content))
}

// GoString returns String: %#v must not show the key either.
func (r Record) GoString() string { return r.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (r Record) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// secretRecord and rootsRecord are the names of the two kinds of records.
func secretRecord(name string) string { return "secret " + name }
func rootsRecord(name string) string  { return "roots " + name }
