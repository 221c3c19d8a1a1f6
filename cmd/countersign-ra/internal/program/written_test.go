package program

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestRootsCountAsPublishedWhenAllClustersHaveThem(t *testing.T) {
	var told []*pki.Bundle
	w := newWritten(func(authority string, roots *pki.Bundle) {
		if authority != "vault" {
			t.Errorf("notified of %s", authority)
		}
		told = append(told, roots)
	})
	last := func() []string {
		if len(told) == 0 {
			return nil
		}
		return told[len(told)-1].Fingerprints()
	}
	one, two := newRoot(t), newRoot(t)
	both := one.Union(two)

	w.members([]string{"home", "east"})
	w.note("home", "vault", both)
	if len(told) != 0 {
		t.Errorf("east has none, and %v are published", last())
	}
	w.note("east", "vault", one)
	if !slices.Equal(last(), one.Fingerprints()) {
		t.Errorf("published are %v", last())
	}
	w.note("east", "vault", both)
	if !slices.Equal(last(), both.Fingerprints()) {
		t.Errorf("published are %v", last())
	}

	// The bundle in east is emptied, and cannot be put right at once.
	w.note("east", "vault", pki.NewBundle())
	if last() == nil || len(last()) != 0 {
		t.Errorf("east lacks all, and %v are published", last())
	}
	w.note("east", "vault", both)

	// West joins, with a bundle of last year.
	w.members([]string{"home", "east", "west"})
	if !slices.Equal(last(), both.Fingerprints()) {
		t.Errorf("west is unknown, and %v are published", last())
	}
	w.note("west", "vault", one)
	if !slices.Equal(last(), one.Fingerprints()) {
		t.Errorf("west has one, and %v are published", last())
	}
	w.members([]string{"home", "east"})
	if !slices.Equal(last(), both.Fingerprints()) {
		t.Errorf("west has left, and %v are published", last())
	}

	// One that is reached anew may be another cluster; one that is gone delays no other.
	n := len(told)
	w.forget("east")
	w.note("home", "vault", both)
	if len(told) != n {
		t.Errorf("east is new, and %v are published", last())
	}
	w.members([]string{"home"})
	if len(told) != n+1 || !slices.Equal(last(), both.Fingerprints()) {
		t.Errorf("published are %v", last())
	}
	w.members([]string{"home"})
	if len(told) != n+1 {
		t.Error("notified again without a change")
	}
	w.members(nil)
	if len(told) != n+1 {
		t.Errorf("without a cluster, %v are published", last())
	}
}

func newRoot(t *testing.T) *pki.Bundle {
	t.Helper()
	return pki.NewBundle(certtest.Root(t).Cert)
}
