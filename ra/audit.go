package ra

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// auditTimeout bounds a write to the audit log.
const auditTimeout = 10 * time.Second

// Sink takes the audit log, such as an [*os.File]: JSON lines, one or several in a write, each
// written and synced before the certificate that it is about is given out. One goroutine at a time uses it.
type Sink interface {
	io.Writer
	Sync() error
}

// The events of the audit log.
const (
	eventIssued    = "issued"    // a certificate that passed all checks
	eventDiscarded = "discarded" // a certificate that failed one and was given to no caller
	eventWithheld  = "withheld"  // one that was issued and given to no caller
	eventNoted     = "noted"     // a limitation of one that a caller received
	eventRefused   = "refused"
	eventResumed   = "resumed" // the log can be written again
)

// auditLine is one line. It has no token and no key.
type auditLine struct {
	Time        time.Time  `json:"time"`
	Event       string     `json:"event"`
	Subject     *Subject   `json:"subject,omitempty"`
	Door        string     `json:"door,omitempty"`
	Rule        string     `json:"rule,omitempty"`
	Authority   string     `json:"authority,omitempty"`
	Signer      string     `json:"signer,omitempty"`
	RequestID   string     `json:"request_id,omitempty"`
	Object      string     `json:"object,omitempty"`
	Names       []string   `json:"names,omitempty"`
	KeyType     string     `json:"key_type,omitempty"`
	Serial      string     `json:"serial,omitempty"` // hexadecimal
	Fingerprint string     `json:"fingerprint,omitempty"`
	Root        string     `json:"root,omitempty"` // its fingerprint
	NotBefore   *time.Time `json:"not_before,omitempty"`
	NotAfter    *time.Time `json:"not_after,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Text        string     `json:"text,omitempty"`
	Count       int        `json:"count,omitempty"` // of equal refusals, this line included
	Since       *time.Time `json:"since,omitempty"` // when the first of them was

	key [16]byte // of equal refusals
}

// auditLog writes lines to the sink. Lines that come while others are written and synced wait
// and go together, with one sync: a disk takes some hundred syncs a second.
type auditLog struct {
	sink  Sink
	turn  call.Turn
	fault atomic.Pointer[error] // why the last line could not be written; nil: it was
	torn  bool                  // it may be there in part; the owner of the turn changes it

	mu   sync.Mutex // held briefly
	next *lines     // those that wait for the turn; nil: there are none
	free []byte     // for the next text
}

// lines are written and synced together, or are all taken to be lost.
type lines struct {
	text []byte        // the log's lock guards it until they are taken
	err  error         // once done is closed
	done chan struct{} // closed after the sync
}

// together is how many bytes of lines wait for one sync, and a line more.
const together = 1 << 20

// reusable is the most memory that is kept for the next lines, in bytes.
const reusable = 64 << 10

func newAuditLog(sink Sink) *auditLog { return &auditLog{sink: sink, turn: call.NewTurn()} }

// write returns after the lines are written and synced. It does not end with ctx: a caller that
// leaves must not make the log look broken, nor lose a line.
func (a *auditLog) write(ctx context.Context, all ...auditLine) error {
	text, err := encoded(all)
	if err != nil {
		return err
	}
	with, first := a.join(text)
	if first {
		a.commit(ctx, with)
	}
	<-with.done
	if with.err != nil {
		return ca.Errorf(ca.Unavailable, "the audit log cannot be written, and no certificate is given out without it: %w", with.err)
	}
	return nil
}

func encoded(all []auditLine) (text []byte, err error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out) // ends each with a newline
	for i := range all {
		if err := encoder.Encode(&all[i]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// join adds a text to those that wait. The first of them writes for all.
func (a *auditLog) join(text []byte) (with *lines, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first = a.next == nil || len(a.next.text) >= together; first {
		a.next, a.free = &lines{done: make(chan struct{}), text: a.free[:0]}, nil
	}
	a.next.text = append(a.next.text, text...)
	return a.next, first
}

// commit writes and syncs, once those before are.
func (a *auditLog) commit(ctx context.Context, with *lines) {
	_, with.err = call.Do(context.WithoutCancel(ctx), auditTimeout, a.turn, func(context.Context) (struct{}, error) {
		return struct{}{}, a.put(a.take(with))
	})
	text := a.take(with) // if the turn never came
	var fault *error
	if with.err != nil {
		fault = &with.err
	} else {
		a.reuse(text)
	}
	a.fault.Store(fault)
	close(with.done)
}

// take returns the text, to which nothing is added any more.
func (a *auditLog) take(with *lines) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == with {
		a.next = nil
	}
	return with.text
}

// reuse keeps the memory of a text that was written: a sink that hangs may still read one that was not.
func (a *auditLog) reuse(text []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cap(text) <= reusable {
		a.free = text
	}
}

func (a *auditLog) put(text []byte) error {
	if a.torn {
		text = append([]byte{'\n'}, text...) // what is there of the last line stays apart
	}
	n, err := a.sink.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = a.sink.Sync()
	}
	a.torn = err != nil && (a.torn || n > 0)
	return err
}

// ready returns an error if the log cannot be written, as far as is known: a certificate is
// not asked for that could not be given out.
func (a *auditLog) ready(ctx context.Context, now time.Time) error {
	if a.fault.Load() == nil {
		return nil
	}
	return a.write(ctx, auditLine{Time: now, Event: eventResumed})
}
