// Package ask (experimental) decides whether a name may have a certificate: by a [URL], a [Command]
// or a [List] of names. Wrap a decider that makes calls in [Remember], which bounds them.
//
// Each has the method Allowed of sdk/ondemand's Decider. Its true and false are answers; its error
// means that there is none, which is never a no.
package ask

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

// Decider decides whether a name may have a certificate. It is safe for concurrent use.
type Decider interface {
	// Allowed returns whether a name, as [names.Fold] returns it, may have a certificate, or an
	// error if that could not be determined.
	Allowed(ctx context.Context, name string) (bool, error)
}

// List allows the names that match. It makes no call, so it needs no [Remember].
type List struct {
	Names *names.Patterns
}

// Allowed returns false only if the file of names, if there is one, could be read when it last
// changed. An error has the reason [ca.Unavailable].
func (l List) Allowed(_ context.Context, name string) (bool, error) {
	if _, ok := l.Names.Match(name); ok {
		return true, nil
	}
	if err := l.Names.Err(); err != nil {
		return false, ca.Errorf(ca.Unavailable, "%w", err)
	}
	return false, nil
}

// checkFolded refuses a name that could be an option of a command or a second parameter of a URL.
func checkFolded(name string) error {
	folded, err := names.Fold(name)
	if err == nil && folded != name {
		err = errors.New("invalid DNS name: it is not in lower case, or has a trailing dot")
	}
	if err != nil {
		return ca.Errorf(ca.Invalid, "%w", err)
	}
	return nil
}
