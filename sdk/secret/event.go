package secret

import (
	"errors"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// EventType is what happened, one word that fits a metric.
type EventType string

// The events.
const (
	Rotated     EventType = "rotated"      // a new certificate is served
	Failed      EventType = "failed"       // an attempt to get one, or roots, failed
	Expired     EventType = "expired"      // the held one ended without a successor
	NameDiffers EventType = "name-differs" // the authority chose another name, and may
	RootAdded   EventType = "root-added"
	RootRemoved EventType = "root-removed"
	Restored    EventType = "restored"     // a certificate of the last run is served
	StateFailed EventType = "state-failed" // a record could not be kept, read or used
)

// Event is something that a metric may count.
type Event struct {
	Type EventType
	// Secret is empty for what concerns an authority's roots.
	Secret    string
	Authority string
	// Reason says why something Failed: a reason of package ca, or the name of the
	// check of package pki that a reply failed; of StateFailed it is store, load or
	// refused. It comes from a fixed list.
	Reason string
	// NotAfter is the end of a certificate that was Rotated in or Restored, or has Expired.
	NotAfter time.Time
	// Failure is what Failed, in words.
	Failure *Failure
	// Fingerprint is that of a root.
	Fingerprint string
}

// reasonOf returns the fixed word for an error.
func reasonOf(err error) string {
	if bad, ok := errors.AsType[*pki.CheckError](err); ok {
		return bad.Check
	}
	return ca.ReasonFor(err).String()
}

// withoutToken returns err, or where its text quotes the token that was sent, an
// error that says the same without it.
func withoutToken(err error, token ca.Token) error {
	if err == nil || token == "" || !strings.Contains(err.Error(), token.Reveal()) {
		return err
	}
	return &ca.Error{
		Reason:     ca.ReasonFor(err),
		Message:    strings.ReplaceAll(err.Error(), token.Reveal(), token.String()),
		RetryAfter: ca.RetryAfter(err),
	}
}
