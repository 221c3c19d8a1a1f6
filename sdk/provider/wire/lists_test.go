package wire_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// publisher answers with its lists, or with its error.
type publisher struct {
	fake
	lists string
	err   error
}

func (p *publisher) Revocations(context.Context) ([]byte, error) { return []byte(p.lists), p.err }

func TestListsArriveUnchanged(t *testing.T) {
	const lists = "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n"
	remote := wire.NewRemote(serve(t, &publisher{lists: lists}), wire.RemoteOptions{})
	if got, err := remote.Revocations(t.Context()); err != nil || string(got) != lists {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestListsOfWrongSizeAreInternal(t *testing.T) {
	for _, lists := range []string{"", strings.Repeat("x", 3<<20+1), strings.Repeat("x", 5<<20)} {
		remote := wire.NewRemote(serve(t, &publisher{lists: lists}), wire.RemoteOptions{})
		if got, err := remote.Revocations(t.Context()); !errors.Is(err, ca.ErrInternal) || !strings.Contains(err.Error(), "revocation lists") {
			t.Errorf("%d bytes: got %d, %v", len(lists), len(got), err)
		}
	}
}

func TestReasonWhyThereAreNoListsArrives(t *testing.T) {
	remote := wire.NewRemote(serve(t, &publisher{err: ca.Errorf(ca.Unavailable, "it is sealed")}), wire.RemoteOptions{})
	if _, err := remote.Revocations(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "it is sealed") {
		t.Errorf("got %v", err)
	}
}
