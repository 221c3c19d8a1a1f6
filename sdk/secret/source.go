// Package secret obtains secrets from certificate authorities, holds them, rotates them
// before they expire and notifies watchers. Servers and embedders query a [Source] by
// caller and name; [Get] waits for a secret. [New] returns the Source that talks to
// authorities, in which one goroutine owns each leaf and one each authority's roots. The
// package knows neither gRPC nor Envoy.
package secret

import (
	"context"
	"errors"
	"fmt"
)

// The errors of a [Source]. Wrapped errors carry the name; no error carries a key.
var (
	// ErrUnknown means that the name is not configured, or not for this caller. A caller
	// cannot tell the two apart and so learns nothing about other names.
	ErrUnknown = errors.New("unknown secret")
	// ErrNotReady means that the name is configured, but no valid item is held yet or the
	// held one has expired. A watcher is notified when that changes.
	ErrNotReady = errors.New("secret is not ready")
	// ErrClosed means that the source is closed and will not answer again.
	ErrClosed = errors.New("secret source is closed")
	// ErrEnded means that the source no longer serves this caller, for example because its
	// token expired, and the caller's stream must end. It wraps the cause, an error of
	// package ca.
	ErrEnded = errors.New("the caller is no longer served")
)

// Unknown returns an ErrUnknown for a name. Its text is made when it is read: where several sources
// stand one after another, each stream and each push asks those that do not have the name.
func Unknown(name string) error { return unknown(name) }

type unknown string

func (u unknown) Error() string { return fmt.Sprintf("secret %.256q: %v", string(u), ErrUnknown) }

func (unknown) Unwrap() error { return ErrUnknown }

// NotReady returns an ErrNotReady for the Peek of a [Source]. It names the secret and has
// the reason of the last failed attempt; last is nil if there was none.
func NotReady(name string, last *Failure) error {
	if last == nil {
		return fmt.Errorf("secret %.256q: %w", name, ErrNotReady)
	}
	return fmt.Errorf("secret %.256q: %w; the last attempt: %s", name, ErrNotReady, last.Text)
}

// Caller identifies who asks for a secret. It is fixed when a stream opens; nothing the
// client sends later changes it. Callers are comparable with ==. The zero value is the
// agent itself.
type Caller struct {
	// ID is the verified identity with its kind as prefix: "uid:1000" for the peer of a
	// Unix socket, a SPIFFE ID ("spiffe://…") if a certificate or token was verified.
	// Empty means the agent itself.
	ID string
	// UID, GID and PID are those of a Unix socket's peer when it connected; zero
	// otherwise. The PID may since belong to another process.
	UID, GID uint32
	PID      int32
	// Session distinguishes streams that each have their own credential; zero if only the
	// ID matters.
	Session uint64
}

// String returns the caller's ID, with its PID if known, or "agent" for the zero value.
func (c Caller) String() string {
	switch {
	case c.ID == "":
		return "agent"
	case c.PID != 0:
		return fmt.Sprintf("%s pid:%d", c.ID, c.PID)
	}
	return c.ID
}

// Source provides secrets. Its methods are safe for concurrent use and never block on the
// outside world.
type Source interface {
	// Peek returns the item held for name, or an error that is ErrUnknown, ErrNotReady or
	// ErrClosed ([errors.Is]). The item is shared: do not modify it.
	Peek(caller Caller, name string) (*Item, error)

	// Watch calls notify with name after each change of what Peek would return, but not
	// for the current state. Watch first, then Peek, and you miss no change. Changes close
	// together may share one call.
	//
	// notify must not block or call back into the source. The source calls it with no lock
	// held, so a call in progress may still arrive during or right after stop. stop is
	// idempotent.
	//
	// An unknown name may be watched; notify then reports when it becomes known. A source
	// whose names never change may return ErrUnknown instead.
	Watch(caller Caller, name string, notify func(name string)) (stop func(), err error)
}

// Get returns the item for name, waiting until source holds one. It returns at once on any
// error but ErrNotReady. When ctx ends, its error wraps [context.Cause] and ErrNotReady, with
// the reason that the source gives; see [NotReady].
func Get(ctx context.Context, source Source, caller Caller, name string) (*Item, error) {
	changed := make(chan struct{}, 1)
	stop, err := source.Watch(caller, name, func(string) {
		select {
		case changed <- struct{}{}:
		default: // a notice is pending
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
			if item, err = source.Peek(caller, name); !errors.Is(err, ErrNotReady) {
				return item, err
			}
			return nil, fmt.Errorf("secret %.256q: %w (%w)", name, context.Cause(ctx), err)
		}
	}
}
