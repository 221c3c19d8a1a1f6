package owned

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/loglimit"
)

// CallTimeout limits each call to the API server.
const CallTimeout = 10 * time.Second

// Labels are those of objects that are ours.
func Labels() map[string]string { return map[string]string{ManagedBy: Manager} }

// Find reads an object by a method of client-go. It returns nil if there is none.
func Find[O any](ctx context.Context, get func(context.Context, string, metav1.GetOptions) (*O, error), name string) (*O, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	found, err := get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// Write makes an object, or changes the one that was found unless it has changed since. It returns
// the object's UID, and whether the API server stored what was written.
type Write func(context.Context) (made types.UID, stored bool, err error)

// Do calls the function within [CallTimeout], if held returns nil. It returns [ErrAltered] if the API
// server stored something else.
func (w Write) Do(ctx context.Context, held func() error) (types.UID, error) {
	if err := held(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	made, stored, err := w(ctx)
	if err == nil && !stored {
		err = ErrAltered
	}
	return made, err
}

// Options are those of an apply. Where nothing was found, it does not overwrite what another client
// has made since.
func Options(found bool) metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: Manager, Force: found}
}

// Defaults returns a fence that is always open, and a logger that is bounded, where none are set.
func Defaults(held func() error, log *slog.Logger) (func() error, *slog.Logger) {
	if held == nil {
		held = func() error { return nil }
	}
	return held, loglimit.Limit(cmp.Or(log, slog.Default()))
}

// Notice is a channel that holds one notice. Further ones are dropped until it is received.
type Notice chan struct{}

// NewNotice has no notice.
func NewNotice() Notice { return make(Notice, 1) }

// Send never blocks.
func (n Notice) Send() {
	select {
	case n <- struct{}{}:
	default:
	}
}
