package chains

import (
	"bytes"
	"encoding/json"
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
	s.step(want, func(r *Record) error { return r.Continue(old, cert(next, time.Hour), now.Add(time.Hour), now) })
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

// A replica whose clock is a day ahead has a certificate of an authority whose clock is right.
func TestClockThatIsAheadForgetsNoMachine(t *testing.T) {
	r := &Record{Version: version}
	ahead := now.Add(20 * time.Hour)
	issued := func(id string) Certificate {
		return Certificate{ID: id, Begins: now.Add(-time.Minute), Ends: now.Add(24 * time.Hour)}
	}
	for _, id := range []string{"a", "b"} {
		if err := r.Begin(machineOf("vm", "spiffe://cluster.local/ns/vm/sa/db"), cert(id, time.Hour), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Begin(machineOf("vm", "spiffe://cluster.local/ns/vm/sa/db"), issued("c"), ahead); err != nil {
		t.Fatal(err)
	}
	if err := r.Continue("c", issued("d"), now.Add(48*time.Hour), ahead); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "d"} {
		if _, err := r.Find(id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func machineOf(namespace, identity string) Chain {
	return Chain{Identity: identity, Subject: ra.Subject{Kind: ra.ServiceAccount, Cluster: "vm", Namespace: namespace, ServiceAccount: "db", Verified: "token of an OIDC issuer"}}
}

func TestChainsOfAnIdentityAreBounded(t *testing.T) {
	r := &Record{Version: version}
	for i := range maxChains {
		c := machineOf("vm", "spiffe://cluster.local/ns/vm/sa/db")
		if err := r.Begin(c, cert(fmt.Sprint(i), time.Hour), now); err != nil {
			t.Fatal(err)
		}
		for n := range 2 { // as a machine has them that renews at half of its certificate's life
			if err := r.Continue(r.Chains[i].Certificates[n].ID, cert(fmt.Sprint(i, "-", n), time.Hour), now.Add(time.Hour), now); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	if err := r.Begin(machineOf("vm", "spiffe://cluster.local/ns/vm/sa/db"), cert("more", time.Hour), now); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "500 chains") {
		t.Error(err)
	}
	later := now.Add(2 * time.Hour)
	if err := r.Begin(machineOf("vm", "spiffe://cluster.local/ns/vm/sa/db"), Certificate{ID: "later", Ends: later.Add(time.Hour)}, later); err != nil || len(r.Chains) != 1 {
		t.Error(len(r.Chains), err)
	}
}

func TestCertificatesOfAChainAreBounded(t *testing.T) {
	s := &story{t: t}
	s.begin("a")
	for i := range maxCertificates - 1 {
		s.renew("a", fmt.Sprint(i), nil)
	}
	s.renew("a", "more", ErrFull)
	s.renew("0", "more", ErrFull)
}

// fill begins chains of a namespace until the record takes no more, and returns how many.
func (r *Record) fill(t *testing.T, namespace string) (n int) {
	t.Helper()
	for ; ; n++ {
		if err := r.Begin(machineOf(namespace, fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%d", namespace, n)), cert(fmt.Sprint(namespace, n), time.Hour), now); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			return n
		}
	}
}

// Namespaces that take all they may leave others room to begin, one of a few machines in particular.
func TestNamespacesTogetherLeaveRoomToBegin(t *testing.T) {
	r := &Record{Version: version}
	for n, least := range []int{500, 180, 60, 20, 10, 10, 10, 10, 10, 10} {
		if got := r.fill(t, fmt.Sprint("tenant-", n)); got < least {
			t.Errorf("after %d others, a namespace has room for %d chains, want %d", n, got, least)
		}
	}
	if text, err := r.Encode(); err != nil || len(text) > roomForFew {
		t.Error(len(text), err)
	}
}

// The owner of a namespace takes no other namespace's room, nor what chains need to go on.
func TestNamespaceDoesNotFillTheRecord(t *testing.T) {
	r := &Record{Version: version}
	fill := func(namespace string) int { return r.fill(t, namespace) }
	if err := r.Begin(machineOf("good", "spiffe://cluster.local/ns/good/sa/db"), cert("good", time.Hour), now); err != nil {
		t.Fatal(err)
	}
	if n := fill("greedy"); n < 500 || len(r.Chains) != n+1 {
		t.Errorf("%d chains", n)
	}
	if n := fill("other"); n < 180 {
		t.Errorf("another namespace has room for %d chains", n)
	}
	if err := r.Continue("good", cert("better", time.Hour), now.Add(time.Hour), now); err != nil {
		t.Error(err)
	}
	if text, err := r.Encode(); err != nil {
		t.Error(len(text), err)
	}
}

// Two namespaces that take all they may leave a third's machine what it needs to go on.
func TestNamespacesTogetherDoNotStopAnother(t *testing.T) {
	r := &Record{Version: version}
	if err := r.Begin(machineOf("good", "spiffe://cluster.local/ns/good/sa/db"), cert("good", time.Hour), now); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"greedy", "other"} {
		for n, err := 0, error(nil); err == nil; n++ {
			identity := fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%d%s", namespace, n, strings.Repeat("<", 300))
			err = r.Begin(machineOf(namespace, identity), cert(namespace+fmt.Sprint(n), time.Hour), now)
		}
	}
	for _, c := range r.Chains[1:] {
		for n, err := 0, error(nil); err == nil; n++ {
			err = r.Continue(c.ID, cert(fmt.Sprintf("%032d", n)+c.ID, time.Hour), now.Add(time.Hour), now)
		}
	}
	for n := range usual - 1 {
		if err := r.Continue(r.Chains[0].Certificates[n].ID, cert(fmt.Sprint("next", n), time.Hour), now.Add(time.Hour), now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Encode(); err != nil {
		t.Error(err)
	}
}

// A record that has more than was counted could not be written for any machine.
func TestChainTakesNoMoreThanIsCounted(t *testing.T) {
	long := strings.Repeat("<", 253)
	c := Chain{ID: ID(strings.Repeat("a", 64)), Identity: long, Issuer: long, Began: now, Last: now, Over: Outlives, Subject: ra.Subject{
		Kind: ra.ServiceAccount, Cluster: long, Namespace: long, ServiceAccount: long, ServiceAccountUID: long,
		Pod: long, PodUID: long, Node: long, NodeUID: long, User: long, Verified: long,
	}}
	for n := range maxCertificates {
		c.Certificates = append(c.Certificates, &Certificate{ID: c.ID, Ends: now, State: Held})
		text, err := json.Marshal(c)
		if counted := c.weight(n + 1); err != nil || len(text) >= counted {
			t.Errorf("%d bytes with %d certificates, %d are counted, %v", len(text), n+1, counted, err)
		}
	}
}

func TestRecordThatIsTooLargeIsNotWritten(t *testing.T) {
	r := &Record{Version: version, Chains: []*Chain{{Identity: strings.Repeat("x", maxSize)}}}
	if _, err := r.Encode(); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}

func TestDamagedEntryLosesItselfAlone(t *testing.T) {
	s := &story{t: t}
	s.begin("a")
	s.begin("b")
	good := string(s.text)
	for _, entry := range []string{"null", "7", `{"identity":"x"}`, `{"began":"2026-01-01T00:00:00Z"}`, `{"id":"x","identity":"x","began":"2026-01-01T00:00:00Z","certificates":[null]}`, `{"id":[]}`} {
		s.text = []byte(strings.Replace(good, `"chains":[`, `"chains":[`+entry+`,`, 1))
		if r, err := Parse(s.text); err != nil || r.Damaged != 1 {
			t.Fatalf("%s: %v", entry, err)
		}
		s.renew("b", "c", nil)
		if r := s.step(nil, func(*Record) error { return nil }); len(r.Chains) != 2 || r.Damaged != 0 {
			t.Errorf("%s: %s", entry, s.text)
		}
	}
}

func TestRecordOfAnotherKindIsRefused(t *testing.T) {
	for _, text := range []string{
		"{", `{"version":2}`, `{}{}`, `{}`, `null`, `[]`, `{"version":1,"chains":{}}`, strings.Repeat(" ", maxSize+1),
	} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.80s is taken", text)
		}
	}
}

func TestChainThatItsCertificatesOutliveIsNotTakenForACopy(t *testing.T) {
	s := &story{t: t}
	s.begin("a")
	s.step(ErrOutlives, func(r *Record) error { return r.Continue("a", cert("b", 2*time.Hour), now.Add(time.Hour), now) })
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
		_ = r.Continue("a", cert("z", time.Hour), now.Add(time.Hour), now)
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
