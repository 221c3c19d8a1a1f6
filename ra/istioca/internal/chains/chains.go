// Package chains is the record of machines that renew by the certificate they hold. A [Chain]
// begins with a certificate that a token obtained. Each further one was obtained by presenting the
// one before it. A [Record] tracks which certificates may still be renewed. Of two that were
// obtained with the same certificate, the first that is presented continues the chain. The other
// is taken for a copy: presenting it ends the chain for both.
//
// It does no I/O, and reads no clock.
package chains

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/ra"
)

const (
	version = 1
	// maxSize is that of an encoded record. A ConfigMap takes 1 MiB.
	maxSize = 900 << 10
	// maxChains are those of one identity, maxCertificates those of a chain that have not
	// expired.
	maxChains       = 500
	maxCertificates = 32
)

// Why a certificate is not renewed, or a chain not continued.
var (
	ErrUnknown  = errors.New("the certificate is in no chain that a token began")
	ErrCopied   = errors.New("the certificate was presented after its successor: somebody has a copy")
	ErrOutlives = errors.New("the authority's certificates last longer than renewals may go on")
	ErrFull     = errors.New("too many certificates that have not expired")
)

// Record is all chains. It is not safe for concurrent use.
type Record struct {
	Version int      `json:"version"`
	Chains  []*Chain `json:"chains,omitempty"`
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
	// Over says why it is, if it is.
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
	ID    string    `json:"id"`
	Ends  time.Time `json:"ends"`
	State State     `json:"state,omitempty"`
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
	r := &Record{Version: version}
	if len(text) == 0 {
		return r, nil
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("the record has %d bytes, %d are allowed", len(text), maxSize)
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("the record is malformed: %w", err)
	}
	if r.Version != version {
		return nil, fmt.Errorf("the record is of version %d, this program reads %d", r.Version, version)
	}
	return r, r.check()
}

func (r *Record) check() error {
	for _, c := range r.Chains {
		if c == nil || c.ID == "" || c.Identity == "" || c.Began.IsZero() || slices.Contains(c.Certificates, nil) {
			return errors.New("the record is malformed: a chain lacks what identifies it")
		}
	}
	return nil
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

// Present says which chain a certificate continues, and that it was presented: those beside it
// and before it are good for nothing any more. It changes the record also with an error.
func (r *Record) Present(id string) (*Chain, error) {
	c, cert := r.find(id)
	switch {
	case c == nil:
		return nil, ErrUnknown
	case c.Over == Outlives:
		return c, ErrOutlives
	case c.Over != "" || cert.State == Past:
		c.Over = Copied
		return c, ErrCopied
	case cert.State == Held:
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
	r.prune(now, nil)
	same := 0
	for _, other := range r.Chains {
		if other.Identity == c.Identity {
			same++
		}
	}
	if same >= maxChains {
		return fmt.Errorf("%w: %s has %d chains", ErrFull, c.Identity, same)
	}
	c.ID, c.Began, c.Last, c.Certificates = first.ID, whole(now), whole(now), nil
	r.Chains = append(r.Chains, &c)
	return r.Continue(&c, first, now)
}

// Room returns ErrFull if Begin would, or if the record were too large then. It changes nothing.
func (r *Record) Room(c Chain, now time.Time) error {
	text, err := r.Encode()
	if err != nil {
		return err
	}
	would, err := Parse(text)
	if err != nil {
		return err
	}
	if err := would.Begin(c, Certificate{ID: strings.Repeat("-", idLength), Ends: now}, now); err != nil {
		return err
	}
	_, err = would.Encode()
	return err
}

// Continue adds a certificate to a chain of the record, unless it is in one already.
func (r *Record) Continue(c *Chain, next Certificate, now time.Time) error {
	if known, _ := r.find(next.ID); known != nil {
		return nil
	}
	r.prune(now, c)
	if c.Full(now) {
		return fmt.Errorf("%w: the chain has %d", ErrFull, len(c.Certificates))
	}
	next.Ends = whole(next.Ends)
	c.Certificates, c.Last = append(c.Certificates, &next), whole(now)
	return nil
}

// Full reports whether a chain takes no further certificate until one of it expires.
func (c *Chain) Full(now time.Time) bool {
	good := 0
	for _, cert := range c.Certificates {
		if !cert.Ends.Before(now) {
			good++
		}
	}
	return good >= maxCertificates
}

// prune forgets certificates that have expired, and chains that nobody can continue but keep.
func (r *Record) prune(now time.Time, keep *Chain) {
	for _, c := range r.Chains {
		c.Certificates = slices.DeleteFunc(c.Certificates, func(cert *Certificate) bool { return cert.Ends.Before(now) })
	}
	r.Chains = slices.DeleteFunc(r.Chains, func(c *Chain) bool { return len(c.Certificates) == 0 && c != keep })
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
