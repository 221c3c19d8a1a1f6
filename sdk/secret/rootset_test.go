package secret

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var aDay = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func rootAt(t *testing.T, life time.Duration) *pki.Bundle {
	t.Helper()
	// A CA's root begins an hour before its clock.
	return catest.NewCA(catest.Options{Now: func() time.Time { return aDay.Add(time.Hour) }, CALifetime: life}).Bundle()
}

func in(d time.Duration) func() time.Time { return func() time.Time { return aDay.Add(d) } }

func both(t time.Time) rotation.Time { return rotation.Time{Wall: t, Mono: t} }

// The clock is ahead for a minute, as before the first answer of an NTP server.
func TestClockAheadRemovesNoDroppedRoot(t *testing.T) {
	was, is := rootAt(t, 240*time.Hour), rootAt(t, 240*time.Hour)
	var s rootSet
	s.announce(was, aDay, in(time.Hour))
	s.announce(is, aDay, in(time.Hour))
	all := is.Union(was)
	for _, now := range []rotation.Time{
		both(aDay),
		{Wall: aDay.Add(24 * time.Hour), Mono: aDay.Add(time.Minute)},
		{Wall: aDay.AddDate(1, 0, 0), Mono: aDay.Add(2 * time.Minute)},
		both(aDay.Add(3 * time.Minute)),
	} {
		if s.prune(now); len(s.dropped) != 1 {
			t.Errorf("at %s: %d dropped roots", now.Wall, len(s.dropped))
		}
	}
	if got := s.served(both(aDay.Add(4 * time.Minute))); !got.Equal(all) {
		t.Errorf("%d roots are served", got.Len())
	}
	if got := s.served(both(aDay.Add(time.Hour))); !got.Equal(is) {
		t.Errorf("after the overlap %d roots are served", got.Len())
	}
}

func TestDroppedRootsAreBounded(t *testing.T) {
	var s rootSet
	for i := range maxDropped + 20 {
		s.announce(rootAt(t, 240*time.Hour), aDay.Add(time.Duration(i)), in(time.Hour))
	}
	if n := s.served(both(aDay)).Len(); n != maxDropped+1 {
		t.Errorf("%d roots are served", n)
	}
}

func TestReplySentBeforeNewSetCountsAsDropped(t *testing.T) {
	was, is := rootAt(t, 240*time.Hour), rootAt(t, 240*time.Hour)
	for overlap, want := range map[time.Duration]*pki.Bundle{0: is, time.Hour: is.Union(was)} {
		t.Run(fmt.Sprint(overlap), func(t *testing.T) {
			var s rootSet
			s.announce(is, aDay.Add(time.Minute), in(overlap))
			s.reply(was, aDay, in(overlap))
			if got := s.served(both(aDay)); !got.Equal(want) {
				t.Errorf("%d roots are served, want %d", got.Len(), want.Len())
			}
			if got := s.served(both(aDay.Add(2 * time.Hour))); !got.Equal(is) {
				t.Errorf("later, %d roots are served", got.Len())
			}
		})
	}
}

func TestRepeatedSetDoesNotOutdateReplies(t *testing.T) {
	told, replied := rootAt(t, 240*time.Hour), rootAt(t, 240*time.Hour)
	var s rootSet
	s.announce(told, aDay, in(0))
	s.reply(replied, aDay.Add(time.Minute), in(0))
	s.announce(told, aDay.Add(2*time.Minute), in(0))
	if got := s.served(both(aDay)); !got.Equal(told.Union(replied)) {
		t.Errorf("%d roots are served", got.Len())
	}
}

func TestDroppedRootEndsByItsExpiry(t *testing.T) {
	short, long := rootAt(t, 2*time.Hour), rootAt(t, 240*time.Hour)
	var s rootSet
	s.announce(short, aDay, in(0))
	s.announce(long, aDay, in(100*time.Hour))
	if next := s.next(aDay); !next.Equal(aDay.Add(2 * time.Hour)) {
		t.Errorf("the next change is at %s", next)
	}
	if !s.served(both(aDay.Add(2 * time.Hour))).Equal(long) {
		t.Error("a root outlived itself")
	}
}

func TestNoAuthorityCrowdsOutAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	var many []*x509.Certificate
	for range pki.MaxCertificates + 200 {
		many = append(many, certtest.Root(t).Cert)
	}
	first, second := pki.NewBundle(many...), rootAt(t, time.Hour)
	all := merge([]*pki.Bundle{nil, first, second})
	if _, err := pki.ParseBundle(all.PEM()); err != nil || !all.Contains(second.Certificates()[0]) || all.Len() < 250 {
		t.Errorf("%d roots: %v", all.Len(), err)
	}
	if few := merge([]*pki.Bundle{second, nil}); !few.Equal(second) {
		t.Errorf("%d roots of one", few.Len())
	}
}

func TestRootsAreCountedInUTF16(t *testing.T) {
	t.Parallel()
	text := []byte{0xff, 0xfe}
	for range maxRoots + 1 {
		root := certtest.SelfSigned(t, &x509.Certificate{NotAfter: aDay, IsCA: true, BasicConstraintsValid: true})
		for _, c := range pki.EncodeCertificates([]*x509.Certificate{root.Cert}) {
			text = append(text, c, 0)
		}
	}
	if _, _, err := parseRoots(text); err == nil || !strings.Contains(err.Error(), "there are 251, 250 are allowed") {
		t.Errorf("got %v", err)
	}
}
