// Package chains is the record of machines that renew by the certificate they hold. A [Chain]
// begins with a certificate that a token obtained. Each further one was obtained by presenting the
// one before it. A [Record] tracks which certificates may still be renewed. Of two that were
// obtained with the same certificate, the first that is presented continues the chain. The other
// is taken for a copy: presenting it ends the chain for both.
//
// One entry that cannot be read costs its own machine a token, and no other.
//
// It does no I/O, and reads no clock.
package chains

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/ra"
)

const version = 1

// Why a certificate is not renewed, or a chain not continued.
var (
	ErrUnknown  = errors.New("the certificate is in no chain that a token began")
	ErrCopied   = errors.New("the certificate was presented after its successor: there is a copy")
	ErrOutlives = errors.New("the authority's certificates last longer than renewals may go on")
	ErrFull     = errors.New("too many certificates that have not expired")
)

// Record is the chains of one object. It is not safe for concurrent use.
type Record struct {
	Version int      `json:"version"`
	Chains  []*Chain `json:"chains,omitempty"`
	// Damaged counts the entries that could not be read. They are lost with the next write.
	Damaged int `json:"-"`
}

// Chain is what one token began.
type Chain struct {
	// ID is that of its first certificate.
	ID string `json:"id"`
	// Subject is the identity that the token established, and Issuer the token's issuer; empty if
	// an API server reviewed it.
	Subject ra.Subject `json:"subject"`
	Issuer  string     `json:"issuer,omitempty"`
	// Identity is the SPIFFE ID of each certificate.
	Identity string `json:"identity"`
	// Began is when, and Last when its last certificate was obtained.
	Began time.Time `json:"began"`
	Last  time.Time `json:"last"`
	// Over is why the chain ended, if it has.
	Over         Over           `json:"over,omitempty"`
	Certificates []*Certificate `json:"certificates"`
}

// Over is why a chain ended before its time.
type Over string

// The reasons.
const (
	Copied   Over = "copied"
	Outlives Over = "outlives"
)

// Certificate is one of a chain.
type Certificate struct {
	// ID is of [ID].
	ID   string    `json:"id"`
	Ends time.Time `json:"ends"`
	// Begins is when it begins by its authority's clock. It is not kept.
	Begins time.Time `json:"-"`
	State  State     `json:"state,omitempty"`
}

// State is what is known of who has a certificate.
type State string

// The states.
const (
	Fresh State = ""     // it was given out, and not presented yet
	Held  State = "held" // it was presented last
	Past  State = "past" // another took its place
)

// ID identifies a certificate by the fingerprint of its leaf: 128 bits of it are enough.
func ID(fingerprint string) string { return fingerprint[:min(len(fingerprint), idLength)] }

const idLength = 32

// Parse reads a record; an empty one has no chains.
func Parse(text []byte) (*Record, error) {
	var read struct {
		Version int               `json:"version"`
		Chains  []json.RawMessage `json:"chains"`
	}
	r := &Record{Version: version}
	switch {
	case len(text) == 0:
		return r, nil
	case len(text) > maxSize:
		return nil, fmt.Errorf("the record has %d bytes, %d are allowed", len(text), maxSize)
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("malformed record: %w", err)
	}
	if read.Version != version {
		return nil, fmt.Errorf("the record is of version %d, this program reads %d", read.Version, version)
	}
	for _, entry := range read.Chains {
		c := new(Chain)
		if json.Unmarshal(entry, c) != nil || !c.valid() {
			r.Damaged++
			continue
		}
		r.Chains = append(r.Chains, c)
	}
	return r, nil
}

func (c *Chain) valid() bool {
	return c.ID != "" && c.Identity != "" && !c.Began.IsZero() && !slices.Contains(c.Certificates, nil)
}

// Encode returns the record, or ErrFull if it is too large to be kept.
func (r *Record) Encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("%w: the record has %d bytes, %d are allowed", ErrFull, len(text), maxSize)
	}
	return text, nil
}

// Find returns the chain that a certificate may continue. With an error other than ErrUnknown, it
// returns the chain as well. It changes nothing.
func (r *Record) Find(id string) (*Chain, error) {
	c, cert := r.find(id)
	switch {
	case c == nil:
		return nil, ErrUnknown
	case c.Over == Outlives:
		return c, ErrOutlives
	case c.Over != "" || cert.State == Past:
		return c, ErrCopied
	}
	return c, nil
}

// Present notes that a certificate was presented: those beside it and before it cannot be renewed any
// more. A copy ends its chain: it changes the record also with an error.
func (r *Record) Present(id string) (*Chain, error) {
	c, err := r.Find(id)
	if errors.Is(err, ErrCopied) {
		c.Over = Copied
	}
	if err != nil {
		return c, err
	}
	_, cert := r.find(id)
	if cert.State == Held {
		return c, nil
	}
	for _, other := range c.Certificates {
		other.State = Past
	}
	cert.State = Held
	return c, nil
}

// Begin begins a chain with its first certificate, unless that is in one already.
func (r *Record) Begin(c Chain, first Certificate, now time.Time) error {
	if known, _ := r.find(first.ID); known != nil {
		return nil
	}
	counted := first.clock(now)
	r.prune(counted)
	if err := r.MayBegin(c, counted); err != nil {
		return err
	}
	c.ID, c.Began, c.Certificates = first.ID, whole(now), nil
	r.Chains = append(r.Chains, &c)
	c.add(first, now)
	return nil
}

// Continue presents a certificate and adds the one that it obtained, unless that is in a chain already.
// One that ends after the limit ends the chain: another would last as long.
func (r *Record) Continue(id string, next Certificate, limit, now time.Time) error {
	c, err := r.Present(id)
	if err != nil {
		return err
	}
	if known, _ := r.find(next.ID); known != nil {
		return nil
	}
	if next.Ends.After(limit) {
		c.Over = Outlives
		return ErrOutlives
	}
	counted := next.clock(now)
	r.prune(counted)
	if err := r.MayContinue(c, counted); err != nil {
		return err
	}
	if !slices.Contains(r.Chains, c) { // all its certificates have expired meanwhile
		r.Chains = append(r.Chains, c)
	}
	c.add(next, now)
	return nil
}

func (c *Chain) add(next Certificate, now time.Time) {
	next.Ends = whole(next.Ends)
	c.Certificates, c.Last = append(c.Certificates, &next), whole(now)
}

// mostBackdated is how much earlier than now a certificate may begin that was issued just now.
const mostBackdated = 2 * time.Hour

// clock returns the time by which others have expired. A clock that is far ahead of the authority's must
// not decide that: machines whose certificates are forgotten need a token.
func (c Certificate) clock(now time.Time) time.Time {
	if !c.Begins.IsZero() && now.Sub(c.Begins) > mostBackdated {
		return c.Begins
	}
	return now
}

// prune forgets certificates that have expired, and chains that have no other.
func (r *Record) prune(now time.Time) {
	for _, c := range r.Chains {
		c.Certificates = slices.DeleteFunc(c.Certificates, func(cert *Certificate) bool { return cert.Ends.Before(now) })
	}
	r.Chains = slices.DeleteFunc(r.Chains, func(c *Chain) bool { return len(c.Certificates) == 0 })
}

func (r *Record) find(id string) (*Chain, *Certificate) {
	for _, c := range r.Chains {
		for _, cert := range c.Certificates {
			if cert.ID == id {
				return c, cert
			}
		}
	}
	return nil, nil
}

// whole is a time as the record has it.
func whole(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
