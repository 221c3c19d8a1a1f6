package errno_test

import (
	"testing"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

func TestRoomIsPositive(t *testing.T) {
	if n := errno.Room(); n < 1 {
		t.Errorf("%d", n)
	}
}
