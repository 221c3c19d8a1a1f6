package gateway

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestStreamFailurePrefersServiceReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, own := errors.New("permission denied"), ca.Errorf(ca.Internal, "another type")
		broken := make(chan error, 1)
		if got := new(session).reason(broken, io.EOF); !errors.Is(got, io.EOF) { // it adds nothing
			t.Errorf("got %v", got)
		}
		broken <- said
		if got := new(session).reason(broken, own); !errors.Is(got, own) || len(broken) != 1 {
			t.Errorf("got %v", got)
		}
		if got := new(session).reason(broken, io.EOF); !errors.Is(got, said) {
			t.Errorf("got %v", got)
		}
	})
}
