package secret

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// boxed is a client whose type is comparable, and whose values are not always.
type boxed struct {
	ca.Client
	extra any
}

func TestSameToleratesIncomparableClients(t *testing.T) {
	t.Parallel()
	slice := boxed{extra: []int{}}
	if same(slice, slice) {
		t.Error("a client with a slice is the same as another")
	}
	if one := (boxed{extra: 1}); !same(one, one) {
		t.Error("equal clients are not the same")
	}
}
