package wire

import (
	"context"
	"time"
)

const (
	// readPause is the wait after each set of roots that is read from a provider. One that
	// sends faster has to wait, too.
	readPause = 100 * time.Millisecond
	// passPause is the least time between two sets that are passed on. It grows to so many
	// times as long as the receiver took, and to maxPass at most: whatever a provider
	// sends, its roots cost a twentieth of a core.
	passPause = time.Second
	passShare = 20
	maxPass   = 30 * time.Second
)

// pace receives sets of roots until receive fails, and passes them on: one a second at
// most, the newest. It returns the error of receive or of changed.
func pace(ctx context.Context, receive func() ([]byte, error), changed func(roots []byte) error) error {
	newest, ended := make(chan []byte, 1), make(chan error, 1)
	go func() { ended <- readAll(ctx, receive, newest) }()
	for {
		select {
		case roots := <-newest:
			began := time.Now()
			if err := changed(roots); err != nil {
				return err
			}
			wait := min(maxPass, max(passPause, passShare*time.Since(began)))
			select {
			case <-time.After(wait):
				continue
			case err := <-ended:
				ended <- err
			}
		case err := <-ended:
			select {
			case last := <-newest:
				if err := changed(last); err != nil {
					return err
				}
			default:
			}
			return err
		}
	}
}

// readAll keeps the newest set in a channel with room for one.
func readAll(ctx context.Context, receive func() ([]byte, error), newest chan []byte) error {
	for {
		roots, err := receive()
		if err != nil {
			return err
		}
		select {
		case <-newest: // superseded before anyone took it
		default:
		}
		newest <- roots
		select {
		case <-time.After(readPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
