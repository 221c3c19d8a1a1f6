// Package secret obtains secrets from a certificate authority, holds them,
// rotates them before they end and tells those who watch. It knows neither gRPC
// nor Envoy: whatever serves secrets asks a [Source] with the caller and the
// name, and [Get] waits for one. [New] makes the source that talks to authorities.
package secret

import (
	"context"
	"errors"
	"fmt"
)

// What a [Source] answers instead of an item. Wrapped errors carry the name; no
// error carries a key.
var (
	// ErrUnknown: nobody configured that name, or not for this caller. The two are
	// the same to the caller, who learns nothing about others' names.
	ErrUnknown = errors.New("unknown secret")
	// ErrNotReady: the name is configured and nothing valid is held yet, or what
	// was held has expired. A watcher is told when that changes.
	ErrNotReady = errors.New("secret is not ready")
	// ErrClosed: the source has ended and will not answer again.
	ErrClosed = errors.New("secret source is closed")
	// ErrEnded: this caller is not answered any more, as with a token that has
	// expired, and its stream is to end. The error wraps the reason, an error of
	// package ca.
	ErrEnded = errors.New("the caller is no longer served")
)

// Caller is who asks for a secret. It is fixed when a stream opens and nothing
// that the client sends later changes it. Callers can be compared with ==. The
// zero value is the agent itself.
type Caller struct {
	// ID is how the caller is known, with the way it was verified in front:
	// "uid:1000" for the peer of a unix socket, a SPIFFE ID ("spiffe://…") where
	// a certificate or token was verified. Empty is the agent itself.
	ID string
	// UID, GID and PID are those of a unix socket's peer when it connected; zero
	// elsewhere. A PID may since belong to another process.
	UID, GID uint32
	PID      int32
	// Session tells the streams apart of which each has a credential of its own; zero
	// where nothing but the ID counts.
	Session uint64
}

// String returns the caller's ID, or "agent" for the zero value.
func (c Caller) String() string {
	switch {
	case c.ID == "":
		return "agent"
	case c.PID != 0:
		return fmt.Sprintf("%s pid:%d", c.ID, c.PID)
	}
	return c.ID
}

// Source is where secrets come from. Every method may be called by any number of
// goroutines at once; none of them blocks on the outside world.
type Source interface {
	// Peek returns what is held for name now, or an error that is ErrUnknown,
	// ErrNotReady or ErrClosed ([errors.Is]). The item is shared: nobody changes it.
	Peek(caller Caller, name string) (*Item, error)

	// Watch has notify called with name after each change of what Peek would
	// answer, and not for the present state: watch first, then peek, and no change
	// is missed. Changes close together may be told as one.
	//
	// notify must not block, and must not call back into the source. It is called
	// with no lock held, so a call that was on its way may still come while stop
	// returns or right after it. stop may be called more than once.
	//
	// A name that is unknown now may be watched, and notify then tells that it
	// became known. A source whose names never change may answer ErrUnknown instead.
	Watch(caller Caller, name string, notify func(name string)) (stop func(), err error)
}

// Get returns the item for name and waits until source holds one. It gives up
// when ctx ends (with [context.Cause]) and at once on any error but ErrNotReady.
func Get(ctx context.Context, source Source, caller Caller, name string) (*Item, error) {
	changed := make(chan struct{}, 1)
	stop, err := source.Watch(caller, name, func(string) {
		select {
		case changed <- struct{}{}:
		default: // a notice is waiting already
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	for {
		item, err := source.Peek(caller, name)
		if !errors.Is(err, ErrNotReady) {
			return item, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("secret %.256q: %w (%w)", name, context.Cause(ctx), err)
		}
	}
}
