package chains

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/ra"
)

var now = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

func cert(id string, ends time.Duration) Certificate {
	return Certificate{ID: id, Ends: now.Add(ends)}
}

// story applies steps to a record, each kept and read as a replica does.
type story struct {
	t    *testing.T
	text []byte
}

func (s *story) step(want error, do func(r *Record) error) *Record {
	s.t.Helper()
	r, err := Parse(s.text)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := do(r); !errors.Is(err, want) {
		s.t.Errorf("got %v, want %v", err, want)
	}
	if s.text, err = r.Encode(); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *story) begin(id string) {
	s.t.Helper()
	s.step(nil, func(r *Record) error {
		return r.Begin(Chain{Identity: "spiffe://a/b", Subject: ra.Subject{User: "u"}}, cert(id, time.Hour), now)
	})
}

// renew presents a certificate and obtains another.
func (s *story) renew(old, next string, want error) {
	s.t.Helper()
	s.step(want, func(r *Record) error {
		c, err := r.Present(old)
		if err != nil {
			return err
		}
		return r.Continue(c, cert(next, time.Hour), now)
	})
}

func TestChainGoesOnWithTheFirstThatIsPresented(t *testing.T) {
	s := &story{t: t}
	s.begin("a")
	s.renew("a", "b", nil)
	s.renew("a", "c", nil) // the reply with b was lost
	s.renew("c", "d", nil)
	s.renew("d", "e", nil)
	s.renew("x", "y", ErrUnknown)
	s.renew("b", "y", ErrCopied)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.renew(id, "y", ErrCopied)
	}
}

func TestChainsAreApart(t *testing.T) {
	s := &story{t: t}
	s.begin("a")
	s.begin("m")
	s.renew("a", "b", nil)
	s.renew("b", "c", nil)
	s.renew("a", "d", ErrCopied)
	s.renew("m", "n", nil)
	// A certificate is in one chain.
	s.begin("n")
	if r := s.step(nil, func(*Record) error { return nil }); len(r.Chains) != 2 {
		t.Errorf("%d chains", len(r.Chains))
	}
}

func TestWhatHasExpiredIsForgotten(t *testing.T) {
	s := &story{t: t}
	s.begin("a")
	later := now.Add(2 * time.Hour)
	r := s.step(nil, func(r *Record) error {
		return r.Begin(Chain{Identity: "spiffe://a/b"}, Certificate{ID: "m", Ends: later.Add(time.Hour)}, later)
	})
	if len(r.Chains) != 1 || r.Chains[0].Certificates[0].ID != "m" {
		t.Errorf("%s", s.text)
	}
}

func TestRecordIsBounded(t *testing.T) {
	r := &Record{Version: version}
	for i := range maxChains {
		if err := r.Begin(Chain{Identity: "spiffe://a/b"}, cert(fmt.Sprint(i), time.Hour), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Begin(Chain{Identity: "spiffe://a/b"}, cert("more", time.Hour), now); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if err := r.Begin(Chain{Identity: "spiffe://a/c"}, cert("another", time.Hour), now); err != nil {
		t.Error(err)
	}
	for i := 0; ; i++ {
		if err := r.Continue(r.Chains[0], cert(fmt.Sprint("c", i), time.Hour), now); err != nil {
			if i != maxCertificates-1 || !errors.Is(err, ErrFull) {
				t.Error(i, err)
			}
			break
		}
	}
	r.Chains[0].Identity = strings.Repeat("x", maxSize)
	if _, err := r.Encode(); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}

func TestRecordOfAnotherKindIsRefused(t *testing.T) {
	for _, text := range []string{
		"{", `{"version":2}`, `{}{}`, `{"version":1,"chains":[null]}`, `{"version":1,"chains":[{"identity":"x"}]}`,
		`{"version":1,"chains":[{"began":"2026-01-01T00:00:00Z"}]}`, strings.Repeat(" ", maxSize+1),
	} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.80s is taken", text)
		}
	}
}

func TestChainThatItsCertificatesOutliveIsNotTakenForACopy(t *testing.T) {
	s := &story{t: t}
	s.begin("a")
	s.step(nil, func(r *Record) error { r.Chains[0].Over = Outlives; return nil })
	s.renew("a", "b", ErrOutlives)
}

func FuzzParse(f *testing.F) {
	s := &story{t: &testing.T{}}
	s.begin("a")
	s.renew("a", "b", nil)
	f.Add(s.text)
	f.Add([]byte(`{"version":1,"chains":[{"identity":"x","began":"2026-01-01T00:00:00Z","certificates":[null]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if c, err := r.Present("a"); err == nil {
			_ = r.Continue(c, cert("z", time.Hour), now)
		}
		_ = r.Begin(Chain{Identity: "spiffe://a/b"}, cert("q", time.Hour), now)
		first, err := r.Encode()
		if err != nil {
			return
		}
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("%v: %s", err, first)
		}
		if second, err := again.Encode(); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s\n%s\n%v", first, second, err)
		}
	})
}
