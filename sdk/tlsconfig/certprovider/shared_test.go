package certprovider

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// hung is a source on a file system that hangs.
type hung struct {
	secret.Map
	answers chan struct{}
}

func (h *hung) Close() error { <-h.answers; return nil }

// grpc-go holds a lock over the providers of the whole program while it builds or closes one.
func TestHungFileSystemDelaysItsProvidersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opening, closing := make(chan struct{}), make(chan struct{})
		r := newRegistry(func(config) (closer, error) {
			<-opening
			return &hung{answers: closing}, nil
		})
		one := config{CredentialFolder: "/mnt/away"}
		get, release := r.acquire(one)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		stop, err := r.serve("other", &secret.Map{})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		close(opening)
		if _, err := get(t.Context()); err != nil {
			t.Error(err)
		}
		release()
		if s := r.share(one); s.users != 1 {
			t.Errorf("a source that closes has %d users", s.users)
		} else {
			s.release()
		}
		close(closing)
	})
}
