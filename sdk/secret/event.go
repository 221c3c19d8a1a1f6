package secret

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// EventKind names an event in one word that fits a metric label.
type EventKind string

// The events.
const (
	Rotated     EventKind = "rotated"      // a new certificate is served
	Failed      EventKind = "failed"       // an attempt to get a certificate or roots failed
	Waiting     EventKind = "waiting"      // the authority has not decided on a request yet
	Expired     EventKind = "expired"      // the held certificate expired without a successor
	NameDiffers EventKind = "name-differs" // the authority chose another name, as it may
	RootAdded   EventKind = "root-added"
	RootRemoved EventKind = "root-removed"
	Restored    EventKind = "restored"     // a certificate from the last run is served
	CutShort    EventKind = "cut-short"    // an authority's own end cuts a certificate short
	StateFailed EventKind = "state-failed" // a record could not be stored, loaded or used
	StateKept   EventKind = "state-kept"   // every record that could not be stored now is
)

// Event is an occurrence that a metric may count. Kind, Secret, Authority and Reason have few values,
// which the program or its configuration chose, and may be a metric's labels; the other fields may
// not.
type Event struct {
	Kind EventKind
	// Secret is empty if the event concerns an authority's roots.
	Secret    string
	Authority string
	// Reason is why an attempt Failed: a reason of package ca, or the name of the
	// package pki check that the reply failed. For StateFailed it is store, load or
	// refused. The list is fixed.
	Reason string
	// NotAfter is that of the item; set for Rotated, Restored, Expired and CutShort.
	NotAfter time.Time
	// Failure describes a Failed, Waiting or StateFailed event in words.
	Failure *Failure
	// Fingerprint is the root's, lower-case hex SHA-256 of the DER.
	Fingerprint string
}

// reasonOf returns err's word from the fixed list.
func reasonOf(err error) string {
	if bad, ok := errors.AsType[*pki.CheckError](err); ok {
		return bad.Check
	}
	return ca.ReasonFor(err).String()
}
