package signing

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// Rewrites bounds the waits between two writes of a certificate.
var Rewrites = rotation.Row{First: time.Second, Most: 20 * time.Second}

// ErrOver means that nothing is left to do about a request: it is gone or finished.
var ErrOver = errors.New("the request is deleted or finished")

// Gone turns "not found" into [ErrOver].
func Gone(err error) error {
	if apierrors.IsNotFound(err) {
		return ErrOver
	}
	return err
}

// Finish makes a call that ends the work on a request. It returns [ErrOver] if the request is gone.
func (s *Slots) Finish(ctx context.Context, owner string, f func(context.Context) error) error {
	return Gone(s.Do(ctx, owner, func(ctx context.Context) error {
		ctx, cancel := Linger(ctx)
		defer cancel()
		return f(ctx)
	}))
}

// Delivery brings a certificate into a request of an owner.
type Delivery struct {
	Gate  *Gate
	Owner string
	UID   types.UID
	// Until is when the certificate can no longer be written, by Now.
	Until time.Time
	Now   func() time.Time
	// Has reports whether the live request has the certificate. Required.
	Has func(ctx context.Context) bool
	// Retry receives the error of a write that is made again.
	Retry func(error)
}

// Do calls write until it succeeds, always for the same certificate, as another would cost another
// one. It returns the last error when the time is up, when write returns [ErrOver], and when ctx ends,
// unless the request has the certificate by then: the reply to a write was lost.
func (d Delivery) Do(ctx context.Context, write func(context.Context) error) error {
	for waits := (rotation.Waits{}); ; {
		err := write(ctx)
		if errors.Is(err, ErrOver) || err != nil && ctx.Err() != nil {
			if !d.has(ctx) {
				return err
			}
			err = nil
		}
		d.Gate.Wrote(d.Owner, d.UID, err)
		wait := waits.Next(Rewrites)
		if err == nil || !d.Now().Add(wait).Before(d.Until) {
			return err
		}
		d.Retry(err)
		Sleep(ctx, wait)
	}
}

// has asks for the live request, also if ctx has ended: the watch may have shown our own write.
func (d Delivery) has(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingers)
	defer cancel()
	return d.Has(ctx)
}
