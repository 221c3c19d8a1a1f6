package ra

import (
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// auditTimeout bounds a write to the audit log.
const auditTimeout = 10 * time.Second

// Sink takes the audit log, such as an [*os.File]: JSON lines, each written and synced
// before the certificate that it is about is given out. One goroutine at a time uses it.
type Sink interface {
	io.Writer
	Sync() error
}

// The events of the audit log.
const (
	eventIssued    = "issued"    // a certificate that passed all checks
	eventDiscarded = "discarded" // a certificate that failed one and was given to nobody
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

// auditLog writes lines to the sink.
type auditLog struct {
	sink   Sink
	turn   call.Turn
	broken atomic.Bool // the last line could not be written
	torn   bool        // it may be there in part; whoever has the turn owns this
}

func newAuditLog(sink Sink) *auditLog { return &auditLog{sink: sink, turn: call.NewTurn()} }

// write returns after the lines are written and synced. It does not end with ctx: whoever
// goes away must not make the log look broken, nor lose a line.
func (a *auditLog) write(ctx context.Context, lines ...auditLine) error {
	var text []byte
	for _, line := range lines {
		encoded, err := json.Marshal(line)
		if err != nil {
			return err
		}
		text = append(append(text, encoded...), '\n')
	}
	_, err := call.Do(context.WithoutCancel(ctx), auditTimeout, a.turn, func(context.Context) (struct{}, error) {
		return struct{}{}, a.put(text)
	})
	a.broken.Store(err != nil)
	if err != nil {
		return ca.Errorf(ca.Unavailable, "the audit log cannot be written, and no certificate is given out without it: %w", err)
	}
	return nil
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
	if !a.broken.Load() {
		return nil
	}
	return a.write(ctx, auditLine{Time: now, Event: eventResumed})
}
